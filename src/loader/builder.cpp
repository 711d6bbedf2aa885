// SPDX-License-Identifier: Apache-2.0
#include "loader/builder.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/file.hpp"
#include "base/file_lock.hpp"
#include "base/hasher.hpp"
#include "base/result.hpp"
#include "loader/make_entry.hpp"

namespace cukiln {

namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFirstPoll{1};
constexpr milliseconds kLongestPoll{20};

void count_miss(Counters& counters, const Miss& miss) {
  switch (miss.why) {
    case Miss::Why::never_seen: counters.add(&Stats::misses_new); break;
    case Miss::Why::relinked:
    case Miss::Why::changed: counters.add(&Stats::misses_header_changed); break;
    case Miss::Why::appeared: counters.add(&Stats::misses_header_appeared); break;
    case Miss::Why::vanished: counters.add(&Stats::misses_header_vanished); break;
    case Miss::Why::damaged: counters.add(&Stats::misses_damaged); break;
    case Miss::Why::revoked: counters.add(&Stats::misses_revoked); break;
    case Miss::Why::evicted: counters.add(&Stats::misses_evicted); break;
  }
}

Miss miss_of(const FileServer::Mismatch& mismatch, const FileServer& files) {
  using What = FileServer::Mismatch::What;
  Miss miss;
  miss.why = mismatch.what == What::appeared   ? Miss::Why::appeared
             : mismatch.what == What::vanished ? Miss::Why::vanished
             : mismatch.what == What::relinked ? Miss::Why::relinked
                                               : Miss::Why::changed;
  miss.path = files.real_path(mismatch.path);
  return miss;
}

}  // namespace

/// One request that another process compiles.
struct Builder::FlightWait {
  const std::string& name;
  const std::string& lock;
  SteadyClock::time_point deadline;
  milliseconds pause = kFirstPoll;
  bool told = false;
};

/// Ends this machine's turn in the fleet, however the compile ends.
struct Builder::RemoteTurn {
  RemoteTier* remote;
  ByteView request;
  ~RemoteTurn() {
    if (remote != nullptr) {
      remote->end_turn(request);
    }
  }
};

Builder::Builder(CubinStore& store, Compiler& compiler, StatCache& stats, Counters& counters,
                 Options options)
    : store_(store),
      compiler_(compiler),
      stats_(stats),
      counters_(counters),
      options_(std::move(options)) {}

Builder::Found Builder::look_up(const ModuleRequest& request, Purpose purpose) {
  const auto began = SteadyClock::now();
  Found found;
  std::unique_ptr<FileServer> files;
  look_in(store_, request, purpose, files, found);
  if (!found.entry && options_.daemon != nullptr) {
    look_in(*options_.daemon, request, purpose, files, found);
    if (found.entry && purpose == Purpose::use) {
      store_.hold(*found.entry);
    }
  }
  if (found.entry && purpose == Purpose::use) {
    counters_.meters.hit(found.entry->found_in, SteadyClock::now() - began);
  }
  return found;
}

void Builder::look_in(CubinStore& store, const ModuleRequest& request, Purpose purpose,
                      std::unique_ptr<FileServer>& files, Found& found) {
  const bool optional = &store != &store_;  // whoever counts for a daemon is its link
  if (files == nullptr) {
    files = request.files(&stats_);
  }
  FileCheck check(*files);
  Lookup entry = store.find(request.digest, request.canonical, check, purpose);
  if (!entry) {
    if (!optional) {
      counters_.add(&Stats::store_errors);
      options_.log.warn("{}: the store could not be asked: {}", request.name,
                        entry.error().message());
    }
    return;
  }
  if (*entry && options_.revoked_keys.signed_any_of((*entry)->signer)) {
    if (purpose == Purpose::use) {
      static_cast<void>(store.remove((*entry)->key));  // where it can be: else it is a miss again
    }
    found.miss = {Miss::Why::revoked, {}};
  } else if (*entry) {
    found.entry = **std::move(entry);
  } else if (check.has_lost()) {
    const bool is_damaged = check.loss() == SetCheck::Loss::damaged;
    found.miss = {is_damaged ? Miss::Why::damaged : Miss::Why::evicted, {}};
  } else if (found.miss.why == Miss::Why::never_seen &&
             check.mismatch().what != FileServer::Mismatch::What::none) {
    found.miss = miss_of(check.mismatch(), *files);
  }
}

Result<Built> Builder::build(const ModuleRequest& request, Found found,
                             const std::function<Result<void>()>& may_compile) {
  const auto hit = [&](StoreEntry entry, const char* reason) {
    counters_.add(&Stats::hits);
    counters_.add(&Stats::saved_us,
                  static_cast<std::uint64_t>(std::max<std::int64_t>(entry.compile_us, 0)));
    return Built{std::move(entry), Outcome::hit, reason, {}, false};
  };
  if (found.entry) {
    return hit(*std::move(found.entry), "in the store");
  }
  if (const auto corrected = request.with_true_digests(stats_)) {
    return build(*corrected, look_up(*corrected), may_compile);
  }
  const InFlight::Turn flight(in_flight_, request.digest);
  if (flight.waited()) {
    counters_.add(&Stats::singleflight_waits);
    Found again =
        look_up(request);  // the other's files may be other files: its set must hold for ours
    if (again.entry) {
      return hit(*std::move(again.entry), "another thread compiled it");
    }
    found.miss = again.miss;
  }
  if (auto fetched = fetch(request, RemoteTier::Freshness::usual)) {
    Built built = hit(std::move(fetched->entry), "in the remote store");
    built.not_stored = std::move(fetched->not_stored);
    built.store_refused = fetched->store_refused;
    return built;
  }
  count_miss(counters_, found.miss);
  return compile(request, found.miss, may_compile);
}

Result<Built> Builder::compile(const ModuleRequest& request, const Miss& miss,
                               const std::function<Result<void>()>& may_compile) {
  if (options_.offline) {
    return make_error(
        ErrorCode::not_found,
        "{} for {} is not in the store ({}) and compiling is forbidden (offline); compile "
        "it elsewhere and bring the store, or allow compiling",
        request.name, request.request.target.name(), miss.text());
  }
  if (cancelled_.load()) {  // of many, those that have not begun start nothing
    return make_error(ErrorCode::timeout, "compiling {} was cancelled", request.name);
  }
  if (may_compile) {
    CUKILN_CHECK(may_compile());
  }
  if (auto known = failures_.recall(request.digest)) {
    return *std::move(known);
  }

  // Who compiles takes the turn in the fleet, and uploads: a daemon does so itself.
  const bool by_daemon = compiler_.for_target(request.request.target).keeps_flights();
  RemoteTier* const remote = by_daemon ? nullptr : remote_;
  // One compile in the fleet; those who wait for it meanwhile start nothing.
  const RemoteTurn turn{remote, request.canonical};
  std::optional<Built> fetched;
  const auto fetch_now = [&] {
    fetched = fetch(request, RemoteTier::Freshness::now);
    return fetched.has_value();
  };
  if (remote != nullptr && remote->found_while_waiting(request.canonical, options_.compile_timeout,
                                                       cancelled_, fetch_now)) {
    counters_.add(&Stats::hits);
    fetched->reason = "another machine compiled it";
    return *std::move(fetched);
  }

  const std::string flight_lock =
      options_.flight_directory.empty()
          ? std::string()
          : join_path(options_.flight_directory, request.digest.hex() + ".lock");
  bool use_lock = !flight_lock.empty();
  FlightWait wait{request.name, flight_lock, SteadyClock::now() + options_.compile_timeout};
  std::optional<std::string> owner =
      use_lock && !by_daemon ? FileLock::holder(flight_lock) : std::nullopt;
  for (;;) {
    if (owner) {
      CUKILN_TRY(use_lock, wait_for(wait, *owner));
      if (Found again = look_up(request); again.entry) {
        counters_.add(&Stats::hits);
        return Built{
            *std::move(again.entry), Outcome::hit, "another process compiled it", {}, false};
      }
    }
    const auto files = request.files(&stats_);
    Built built;
    built.outcome = Outcome::compiled;
    built.reason = miss.text();
    bool published = false;
    std::optional<StoreEntry> superseded_by;

    CompileJob job;
    job.request = &request.request;
    job.files = files.get();
    job.label = request.name;
    job.labels = &request.labels;
    job.timeout = options_.compile_timeout;
    job.cancelled = &cancelled_;
    job.still_needed = [&] {
      superseded_by = look_up(request).entry;
      return !superseded_by.has_value();
    };
    if (use_lock) {
      job.flight_lock = flight_lock;
      job.publish = [&](const CompileResult& result) {
        store_result(request, result, false, remote, built);
        published = true;
      };
    }
    auto outcome = compiler_.compile(job);
    if (!outcome) {
      counters_.add(&Stats::failed);
      if (!cancelled_.load()) {
        failures_.remember(request.digest, outcome.error());
      }
      return std::move(outcome).error();
    }
    if (outcome->state == CompileState::done) {
      counters_.add(&Stats::compiles);
      if (!published) {
        store_result(request, outcome->result, outcome->stored, remote, built);
      }
      return built;
    }
    if (outcome->state == CompileState::joined) {
      counters_.add(&Stats::singleflight_waits);
      counters_.add(&Stats::hits);
      built.outcome = Outcome::hit;
      built.reason = "another process had it compiled";
      store_result(request, outcome->result, outcome->stored, remote, built);
      return built;
    }
    if (superseded_by) {
      counters_.add(&Stats::hits);
      return Built{
          *std::move(superseded_by), Outcome::hit, "another process compiled it", {}, false};
    }
    owner = std::move(outcome->owner);
  }
}

/// True when nobody has the flight any more. The store is not asked meanwhile: it has the result
/// before the flight ends, and 64 processes that ask it all the time would take the compiler's
/// core. False when it has taken too long: better compiled twice than never. Errors: timeout
/// (cancelled).
Result<bool> Builder::wait_for(FlightWait& wait, const std::string& owner) {
  if (!std::exchange(wait.told, true)) {
    counters_.add(&Stats::singleflight_waits);
    options_.log.info("{}: waiting for {}", wait.name, owner.empty() ? "another process" : owner);
  }
  do {
    if (cancelled_.load()) {
      return make_error(ErrorCode::timeout, "{}: cancelled while waiting for another process",
                        wait.name);
    }
    if (SteadyClock::now() >= wait.deadline) {
      options_.log.warn("{}: waited {} ms for {}; compiling it here as well", wait.name,
                        options_.compile_timeout.count(), owner);
      return false;
    }
    std::this_thread::sleep_for(wait.pause);
    wait.pause = std::min(wait.pause * 2, kLongestPoll);
  } while (FileLock::holder(wait.lock));
  return true;
}

void Builder::store_result(const ModuleRequest& request, const CompileResult& result,
                           bool is_stored, RemoteTier* remote, Built& built) {
  StoreEntry& entry = built.entry;
  std::optional<NotStored> why_not;
  const auto not_stored = [&](NotStored reason, std::string text) {
    why_not = reason;
    built.not_stored = std::move(text);
  };
  entry = make_entry(request.request, request.canonical, request.labels, result);
  if (result.uses_time) {
    not_stored(NotStored::time, "uses __TIME__, __DATE__ or __TIMESTAMP__");
  } else if (!result.observed) {
    not_stored(NotStored::unobserved,
               "unobserved: what the compiler read is not known for certain");
  } else if (is_stored) {
    store_.hold(entry);
  } else if (auto put = store_.put(entry); !put) {
    counters_.add(&Stats::store_errors);
    options_.log.warn("{}: compiled, but not stored: {}", request.name, put.error().message());
    not_stored(NotStored::error, put.error().message());
  } else if (*put == PutOutcome::too_large) {
    not_stored(NotStored::too_large, "larger than the store's limit");
  } else if (*put == PutOutcome::not_stored) {
    not_stored(NotStored::no_disk, "the store keeps nothing on disk");
  }
  built.store_refused = why_not && *why_not != NotStored::time && *why_not != NotStored::unobserved;
  if (!is_stored || built.outcome == Outcome::compiled) {  // else it is the other's to count
    counters_.add(why_not ? &Stats::not_stored : &Stats::stored);
    if (why_not) {
      counters_.meters.count(*why_not);
    }
  }
  if (remote != nullptr && result.observed && !result.uses_time) {
    remote->put(entry);
  }
}

/// What the fleet has for a request and this host's files. It is kept here too.
std::optional<Built> Builder::fetch(const ModuleRequest& request, RemoteTier::Freshness freshness) {
  if (remote_ == nullptr) {
    return std::nullopt;
  }
  const auto began = SteadyClock::now();
  const auto files = request.files(&stats_);
  FileCheck check(*files);
  auto entry = remote_->find(request.canonical, check, freshness);
  if (!entry) {
    return std::nullopt;
  }
  counters_.meters.hit(Tier::remote, SteadyClock::now() - began);
  entry->source_text = source_text_of(request.request);
  Built built;
  if (const auto put = store_.put(*entry); !put) {
    counters_.add(&Stats::store_errors);
    options_.log.warn("{}: fetched, but not stored: {}", request.name, put.error().message());
    built.not_stored = put.error().message();
  } else if (*put == PutOutcome::too_large) {
    built.not_stored = "larger than the store's limit";
  } else if (*put == PutOutcome::not_stored) {
    built.not_stored = "the store keeps nothing on disk";
  }
  built.store_refused = !built.not_stored.empty();
  built.entry = *std::move(entry);
  return built;
}

}  // namespace cukiln
