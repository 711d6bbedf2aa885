// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/remote_store.hpp"

#include <algorithm>
#include <thread>

#include "addons/fleet/module_index.hpp"
#include "core/base/backoff.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

constexpr Backoff::Limits kLeasePolls{milliseconds(10), milliseconds(250), 0.5};

}  // namespace

Result<std::unique_ptr<RemoteStore>> RemoteStore::open(const std::string& stores,
                                                       const std::string& trust,
                                                       const std::string& sign,
                                                       milliseconds look_up_timeout,
                                                       const Logger& log) {
  Options options;
  for (const std::string& url : split_addresses(stores)) {
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
  const bool takes_unsigned =
      std::any_of(options.endpoints.begin(), options.endpoints.end(),
                  [](const auto& endpoint) { return endpoint->takes_unsigned(); });
  if (options.trusted.empty() && !options.key && !takes_unsigned) {
    return Error(
        ErrorCode::invalid_argument,
        fmt::format("no key is trusted, so no object of the remote store can be used{}; set "
                    "remote_trust (CUKILN_REMOTE_TRUST) to the public key of the machine "
                    "that uploads to it",
                    options.trusted.revoked().any() ? ": all keys are revoked" : ""));
  }
  options.look_up_timeout = look_up_timeout;
  options.log = log;
  return std::make_unique<RemoteStore>(std::move(options));
}

RemoteStore::RemoteStore(Options options)
    : options_(std::move(options)),
      leases_(options_),
      uploads_(options_, servers_, leases_, telemetry_, absent_) {
  if (options_.key) {
    options_.trusted.add(options_.key->public_key());
  }
  for (auto& endpoint : options_.endpoints) {
    servers_.push_back(
        std::make_unique<RemoteServer>(std::move(endpoint), options_, telemetry_, absent_));
  }
}

/// Sets `absent` if the server has no sets for the request.
std::optional<StoreEntry> RemoteStore::find_on(RemoteServer& server, ByteView request_canonical,
                                               std::string_view module, SetCheck& check,
                                               bool& absent) {
  const auto sets = server.sets(request_canonical, look_up_deadline(), absent);
  if (!sets) {
    return std::nullopt;
  }
  auto found =
      find_in_sets(sets->tree, request_canonical, check, [&](const SetTree::Leaf& leaf) -> Lookup {
        const DependencySet* const set = sets->find(leaf.key);
        const bool differs =
            set != nullptr && !check.holds(*set, true);  // the entry says if trusted
        return differs ? std::nullopt : server.entry(leaf.key, module, look_up_deadline());
      });
  if (!found || !*found) {
    return std::nullopt;
  }
  const ObjectName name = ObjectName::of((*found)->key);
  return marked(server, name, *std::move(found));
}

template <class Object>
std::optional<Object> RemoteStore::marked(const RemoteServer& server, const ObjectName& name,
                                          std::optional<Object> found) {
  if (found && writes()) {
    uploads_.acknowledged(server, name);
  }
  return found;
}

template <class LookUp>
auto RemoteStore::search(const ObjectName& name, Freshness freshness, const LookUp& look_up)
    -> decltype(look_up(std::declval<RemoteServer&>(), std::declval<bool&>())) {
  const bool known_absent = freshness == Freshness::usual && absent_.has(name, SteadyClock::now());
  decltype(look_up(std::declval<RemoteServer&>(), std::declval<bool&>())) found;
  bool absent_everywhere = true;
  for (const auto& server : servers_) {
    if (known_absent || found) {
      break;
    }
    bool absent = false;
    found = look_up(*server, absent);
    absent_everywhere = absent_everywhere && absent;
  }
  if (!found && !known_absent && absent_everywhere) {
    const SteadyTime now = SteadyClock::now();
    absent_.add(name, now + options_.absent_for, now);
  }
  telemetry_.events.add(found ? RemoteTelemetry::Event::hit : RemoteTelemetry::Event::miss);
  return found;
}

std::optional<StoreEntry> RemoteStore::find(ByteView request_canonical, std::string_view module,
                                            SetCheck& check, Freshness freshness) {
  return search(ObjectName::of_sets(request_canonical), freshness,
                [&](RemoteServer& server, bool& absent) {
                  return find_on(server, request_canonical, module, check, absent);
                });
}

std::optional<StoreBlob> RemoteStore::get(const BlobName& name, Freshness freshness) {
  return search(ObjectName::of(name.id), freshness, [&](RemoteServer& server, bool& absent) {
    return marked(server, ObjectName::of(name.id),
                  server.blob(name.id, look_up_deadline(), absent));
  });
}

RemoteRecord RemoteStore::describe(ByteView request_canonical, std::string_view module,
                                   SetCheck& check) {
  return describe_request(servers_, request_canonical, module, check, options_);
}

std::optional<RemoteLease> RemoteStore::await_peer_or_lease(ByteView request_canonical,
                                                            milliseconds limit,
                                                            CancelFlags cancelled,
                                                            const std::function<bool()>& found) {
  const auto at = std::find_if(servers_.begin(), servers_.end(),
                               [](const auto& server) { return server->has_leases(); });
  if (at == servers_.end()) {
    return RemoteLease();
  }
  const SteadyTime deadline = SteadyClock::now() + limit;
  Backoff backoff(kLeasePolls);
  PeerLease peer(options_, request_canonical);
  RemoteLeases::Claim claim;
  for (bool waited = false;; waited = true) {
    const auto [state, token] = leases_.acquire(**at, request_canonical, claim);
    RemoteLease lease = state == RemoteLeases::State::acquired
                            ? RemoteLease(*this, request_canonical)
                            : RemoteLease();
    if (state == RemoteLeases::State::unknown) {
      return lease;
    }
    if (state != RemoteLeases::State::held_by_peer) {
      // The machine that held the lease before may have stored its result just now.
      if ((waited || writes()) && found()) {
        return std::nullopt;
      }
      return lease;
    }
    if (!waited) {
      telemetry_.events.add(RemoteTelemetry::Event::wait);
    }
    const SteadyTime now = SteadyClock::now();
    if (cancelled.is_set() || now >= deadline || !peer.is_alive(token, now)) {
      return lease;
    }
    std::this_thread::sleep_for(backoff.next());
    if (found()) {
      return std::nullopt;
    }
  }
}

void RemoteStore::put(const StoreObject& object) {
  const StoreEntry* const entry = std::get_if<StoreEntry>(&object);
  // A set with paths of this machine is of no use elsewhere, and would tell what they are.
  if (!writes() || (entry != nullptr && !entry->dependencies.portable())) {
    return;
  }
  uploads_.put(object);
}

RemoteStats RemoteStore::stats() const {
  RemoteStats stats = telemetry_.stats();
  stats.queued = uploads_.queued();
  return stats;
}

std::vector<RemoteStore::Health> RemoteStore::health() const {
  std::vector<Health> all;
  for (const auto& server : servers_) {
    all.push_back(server->health());
  }
  return all;
}

}  // namespace cukiln
