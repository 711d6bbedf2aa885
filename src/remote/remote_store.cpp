// SPDX-License-Identifier: Apache-2.0
#include "remote/remote_store.hpp"

#include <algorithm>

#include "base/result.hpp"

namespace cukiln {

namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    std::string_view part = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    part.remove_prefix(std::min(part.find_first_not_of(' '), part.size()));
    part = part.substr(0, part.find_last_not_of(' ') + 1);
    if (!part.empty()) {
      parts.emplace_back(part);
    }
  }
  return parts;
}

}  // namespace

void RemoteTraffic::add(RemoteStatus how, std::chrono::microseconds time) noexcept {
  ++ended[static_cast<std::size_t>(how)];
  took += time;
  for (std::size_t i = 0; i < kBoundsMs.size(); ++i) {
    within[i] += time <= milliseconds(kBoundsMs[i]) ? 1 : 0;
  }
}

Result<std::unique_ptr<RemoteStore>> RemoteStore::open(const std::string& stores,
                                                       const std::string& trust,
                                                       const std::string& sign,
                                                       milliseconds look_up_timeout,
                                                       const Logger& log) {
  Options options;
  for (const std::string& url : split(stores)) {
    CUKILN_TRY(auto endpoint, make_remote_endpoint(url));
    options.endpoints.push_back(std::move(endpoint));
  }
  if (options.endpoints.empty()) {
    return std::unique_ptr<RemoteStore>();
  }
  CUKILN_TRY(options.trusted, TrustedKeys::parse(trust));
  if (!sign.empty()) {
    CUKILN_TRY(options.key, SecretKey::load(sign));
  }
  if (options.trusted.empty() && !options.key) {
    return Error(ErrorCode::invalid_argument,
                 "no key is trusted, so nothing from the remote store can be used; name the public "
                 "key of who fills it in remote_trust (CUKILN_REMOTE_TRUST)");
  }
  options.look_up_timeout = look_up_timeout;
  options.log = log;
  return std::make_unique<RemoteStore>(std::move(options));
}

RemoteStore::RemoteStore(Options options) : options_(std::move(options)) {
  if (options_.key) {
    options_.trusted.add(options_.key->public_key());
  }
  for (auto& endpoint : options_.endpoints) {
    servers_.push_back({std::move(endpoint), std::make_unique<ServerBreaker>(), {}});
  }
}

RemoteStore::~RemoteStore() {
  finish(milliseconds(0));
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  renew_.notify_all();
  for (std::thread* thread : {&uploader_, &renewer_}) {
    if (thread->joinable()) {
      thread->join();
    }
  }
}

/// One request, counted, and told to the breaker: an object that came is told by whoever opens it.
/// What never was sent is `unreachable`, uncounted.
RemoteAnswer RemoteStore::ask(Server& server, RemoteOp op, const Question& question, Judge judge) {
  const SteadyTime start = SteadyClock::now();
  if (!server.breaker->allows(start)) {
    const std::lock_guard lock(stats_mutex_);
    ++stats_.skipped;
    return {RemoteStatus::unreachable, {}, "left alone after failures"};
  }
  RemoteAnswer answer = question(*server.endpoint);
  {
    const std::lock_guard lock(stats_mutex_);
    ++stats_.requests[static_cast<std::size_t>(answer.status)];
    server.traffic[static_cast<std::size_t>(op)].add(
        answer.status, std::chrono::ceil<std::chrono::microseconds>(SteadyClock::now() - start));
    stats_.received_bytes += answer.body.size();
  }
  if (answer.status == RemoteStatus::ok || answer.status == RemoteStatus::absent) {
    if (answer.status == RemoteStatus::absent || judge == Judge::here) {
      server.breaker->succeeded();
    }
  } else if (server.breaker->failed(answer.status, SteadyClock::now())) {
    if (answer.status == RemoteStatus::denied) {
      options_.log.warn(
          "{} is not used any more, it refuses us ({}): set right who may read and "
          "write there",
          server.endpoint->where(), answer.detail);
    } else {
      options_.log.warn("{} is left alone for {} s: {} ({})", server.endpoint->where(),
                        server.breaker->pause().count(), answer.detail, name_of(answer.status));
    }
  } else {
    options_.log.info("{}: {} ({})", server.endpoint->where(), answer.detail,
                      name_of(answer.status));
  }
  return answer;
}

void RemoteStore::rejected(Server& server, const ObjectName& name, Rejection why,
                           const Error& error) {
  {
    const std::lock_guard lock(stats_mutex_);
    ++stats_.rejected[static_cast<std::size_t>(why)];
  }
  const SteadyTime now = SteadyClock::now();
  absent_.add(name, now + options_.bad_for, now);
  const bool opened = server.breaker->failed(RemoteStatus::bad_answer, now);
  options_.log.warn("{}: {} ({}); it is not used{}", server.endpoint->where(), error.message(),
                    name_of(why), opened ? ", and the server is left alone for a while" : "");
}

/// Nothing: not there, or no answer; `absent` says which.
std::optional<FleetSets> RemoteStore::sets_on(Server& server, ByteView request_canonical,
                                              SteadyTime deadline, bool& absent) {
  const ObjectName name = ObjectName::of_sets(request_canonical);
  const RemoteAnswer answer = ask(
      server, RemoteOp::get, [&](RemoteEndpoint& endpoint) { return endpoint.get(name, deadline); },
      Judge::whoever_opens);
  absent = answer.status == RemoteStatus::absent;
  if (answer.status != RemoteStatus::ok) {
    return std::nullopt;
  }
  Rejection why = Rejection::none;
  auto sets = open_sets(answer.body, request_canonical, &options_.trusted, why);
  if (!sets) {
    rejected(server, name, why, sets.error());
    return std::nullopt;
  }
  server.breaker->succeeded();
  return *std::move(sets);
}

std::optional<StoreEntry> RemoteStore::get_from(Server& server, const CacheKey& key,
                                                SteadyTime deadline) {
  const ObjectName name = ObjectName::of_entry(key);
  if (absent_.has(name, SteadyClock::now())) {
    return std::nullopt;
  }
  const RemoteAnswer answer = ask(
      server, RemoteOp::get, [&](RemoteEndpoint& endpoint) { return endpoint.get(name, deadline); },
      Judge::whoever_opens);
  if (answer.status != RemoteStatus::ok) {
    return std::nullopt;
  }
  Rejection why = Rejection::none;
  auto entry = open_entry(answer.body, {&options_.trusted, &name}, why);
  if (!entry) {
    rejected(server, name, why, entry.error());
    return std::nullopt;
  }
  server.breaker->succeeded();
  entry->origin = Origin::remote;
  entry->created_s = 0;  // in this store it is new
  return *std::move(entry);
}

std::optional<StoreEntry> RemoteStore::find(ByteView request_canonical, SetCheck& check,
                                            Freshness freshness) {
  const ObjectName name = ObjectName::of_sets(request_canonical);
  const bool known_absent = freshness == Freshness::usual && absent_.has(name, SteadyClock::now());
  const RequestDigest request = CompileRequest::digest_of(request_canonical);
  std::optional<StoreEntry> found;
  bool absent_everywhere = true;
  for (Server& server : servers_) {
    if (known_absent || found) {
      break;
    }
    bool absent = false;
    const auto sets = sets_on(server, request_canonical, look_up_deadline(), absent);
    absent_everywhere = absent_everywhere && absent;
    if (!sets) {
      continue;
    }
    for (const SetTree::Leaf& leaf :
         sets->tree.candidates([&](const std::string& path) { return check.label(path); })) {
      const DependencySet* const set = sets->find(leaf.key);
      if (set != nullptr && !check.holds(*set)) {
        continue;
      }
      found = get_from(server, leaf.key, look_up_deadline());
      if (found && (found->request != request || !check.holds(found->dependencies))) {
        found.reset();
      }
      if (found) {
        break;
      }
    }
  }
  if (!found && !known_absent && absent_everywhere) {
    const SteadyTime now = SteadyClock::now();
    absent_.add(name, now + options_.absent_for, now);
  }
  const std::lock_guard lock(stats_mutex_);
  ++(found ? stats_.hits : stats_.misses);
  return found;
}

RemoteStats RemoteStore::stats() const {
  const std::lock_guard queue(mutex_);
  const std::lock_guard lock(stats_mutex_);
  RemoteStats stats = stats_;
  stats.queued = queue_.size() + (uploading_ ? 1 : 0);
  return stats;
}

std::vector<RemoteStore::Health> RemoteStore::health() const {
  std::vector<Health> all;
  const std::lock_guard lock(stats_mutex_);
  for (const Server& server : servers_) {
    all.push_back({server.endpoint->where(), server.breaker->state(SteadyClock::now()),
                   server.endpoint->has_leases(), server.breaker->turns(), server.traffic});
  }
  return all;
}

RemoteAnswer RemoteStore::probe(std::size_t server) {
  return servers_[server].endpoint->get(ObjectName::of_sets("probe"), look_up_deadline());
}

}  // namespace cukiln
