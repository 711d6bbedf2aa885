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
    case Miss::Why::changed: counters.add(&Stats::misses_header_changed); break;
    case Miss::Why::appeared: counters.add(&Stats::misses_header_appeared); break;
    case Miss::Why::vanished: counters.add(&Stats::misses_header_vanished); break;
    case Miss::Why::damaged: counters.add(&Stats::misses_damaged); break;
  }
}

Miss miss_of(const FileServer::Mismatch& mismatch, const FileServer& files) {
  using What = FileServer::Mismatch::What;
  Miss miss;
  miss.why = mismatch.what == What::changed    ? Miss::Why::changed
             : mismatch.what == What::appeared ? Miss::Why::appeared
                                               : Miss::Why::vanished;
  miss.path = files.real_path(mismatch.path);
  return miss;
}

}  // namespace

std::string Miss::text() const {
  switch (why) {
    case Why::never_seen: return "never seen";
    case Why::changed: return "header changed: " + path;
    case Why::appeared: return "header appeared: " + path;
    case Why::vanished: return "header vanished: " + path;
    case Why::damaged: return "the stored entry was damaged";
  }
  return {};
}

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

/// Marks a request as being worked on in this process; the next thread with the same one waits.
class Builder::InProcessFlight {
 public:
  InProcessFlight(Builder& builder, const RequestDigest& digest)
      : builder_(builder), digest_(digest) {
    std::unique_lock lock(builder_.mutex_);
    while (!builder_.in_flight_.insert(digest_).second) {
      waited_ = true;
      builder_.flight_ended_.wait(lock);
    }
  }
  ~InProcessFlight() {
    {
      const std::lock_guard lock(builder_.mutex_);
      builder_.in_flight_.erase(digest_);
    }
    builder_.flight_ended_.notify_all();
  }
  InProcessFlight(const InProcessFlight&) = delete;
  InProcessFlight& operator=(const InProcessFlight&) = delete;
  bool waited() const noexcept { return waited_; }

 private:
  Builder& builder_;
  RequestDigest digest_;
  bool waited_ = false;
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
  auto sets = store.find_dependency_sets(request.digest, request.canonical);
  if (!sets) {
    if (!optional) {
      counters_.add(&Stats::store_errors);
      options_.log.warn("{}: the store could not be asked: {}", request.name,
                        sets.error().message());
    }
    return;
  }
  if (sets->empty()) {
    return;
  }
  if (files == nullptr) {
    files = request.files(&stats_);
  }
  bool first = found.miss.why == Miss::Why::never_seen;
  for (const RecordedSet& recorded : *sets) {
    const FileServer::Mismatch mismatch = files->check(recorded.dependencies);
    if (mismatch.what != FileServer::Mismatch::What::none) {
      if (first) {  // the youngest set is the one that people mean by "what changed?"
        found.miss = miss_of(mismatch, *files);
        first = false;
      }
      continue;
    }
    const bool inspect = purpose == Purpose::inspect;
    Lookup entry = inspect ? store.peek(recorded.key) : store.get_recorded(recorded);
    if (inspect && !entry && entry.error().code() == ErrorCode::corrupt) {
      entry = std::optional<StoreEntry>();  // what a use of it would find
    }
    if (!entry) {
      if (!optional) {
        counters_.add(&Stats::store_errors);
        options_.log.warn("{}: the store could not be read: {}", request.name,
                          entry.error().message());
      }
      continue;
    }
    if (*entry) {
      found.entry = **std::move(entry);
      return;
    }
    found.miss = {Miss::Why::damaged, {}};
    first = false;
  }
}

Result<Built> Builder::build(const ModuleRequest& request, Found found,
                             const std::function<Result<void>()>& may_compile) {
  const auto hit = [&](StoreEntry entry, const char* reason) {
    counters_.add(&Stats::hits);
    counters_.add(&Stats::saved_us,
                  static_cast<std::uint64_t>(std::max<std::int64_t>(entry.compile_us, 0)));
    return Built{std::move(entry), Outcome::hit, reason, {}};
  };
  if (found.entry) {
    return hit(*std::move(found.entry), "in the store");
  }
  const InProcessFlight flight(*this, request.digest);
  if (flight.waited()) {
    counters_.add(&Stats::singleflight_waits);
    Found again =
        look_up(request);  // the other's files may be other files: its set must hold for ours
    if (again.entry) {
      return hit(*std::move(again.entry), "another thread compiled it");
    }
    found.miss = again.miss;
  }
  if (auto entry = fetch(request, RemoteTier::Freshness::usual)) {
    return hit(*std::move(entry), "in the remote store");
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
  std::optional<StoreEntry> fetched;
  const auto fetch_now = [&] {
    fetched = fetch(request, RemoteTier::Freshness::now);
    return fetched.has_value();
  };
  if (remote != nullptr && remote->found_while_waiting(request.canonical, options_.compile_timeout,
                                                       cancelled_, fetch_now)) {
    counters_.add(&Stats::hits);
    return Built{*std::move(fetched), Outcome::hit, "another machine compiled it", {}};
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
        return Built{*std::move(again.entry), Outcome::hit, "another process compiled it", {}};
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
      return Built{*std::move(superseded_by), Outcome::hit, "another process compiled it", {}};
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
std::optional<StoreEntry> Builder::fetch(const ModuleRequest& request,
                                         RemoteTier::Freshness freshness) {
  if (remote_ == nullptr) {
    return std::nullopt;
  }
  const auto began = SteadyClock::now();
  const auto files = request.files(&stats_);
  for (const RecordedSet& set : remote_->find_dependency_sets(request.canonical, freshness)) {
    if (files->check(set.dependencies).what != FileServer::Mismatch::What::none) {
      continue;
    }
    if (auto entry = remote_->get(request.canonical, set)) {
      counters_.meters.hit(Tier::remote, SteadyClock::now() - began);
      entry->source_text = source_text_of(request.request);
      if (const auto put = store_.put(*entry); !put) {
        counters_.add(&Stats::store_errors);
        options_.log.warn("{}: fetched, but not stored: {}", request.name, put.error().message());
      }
      return entry;
    }
  }
  return std::nullopt;
}

}  // namespace cukiln
