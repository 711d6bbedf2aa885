// SPDX-License-Identifier: Apache-2.0
#include "store/tiered_store.hpp"

#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace cukiln {

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kWalResetFixVersion = 3051003;

void add_new(std::vector<RecordedSet>& sets, std::vector<RecordedSet> more) {
  for (RecordedSet& one : more) {
    const bool known = std::any_of(sets.begin(), sets.end(),
                                   [&](const RecordedSet& set) { return set.key == one.key; });
    if (!known) {
      sets.push_back(std::move(one));
    }
  }
}

}  // namespace

TieredStore::TieredStore(Options options)
    : options_(std::move(options)),
      revoked_keys_(options_.store.revoked_keys),
      log_(options_.store.log),
      memory_(options_.memory_bytes, *options_.disk.clock) {}

Result<std::unique_ptr<TieredStore>> TieredStore::open(Options options) {
  const std::string& directory = options.store.directory;
  if (!options.store.memory_only && (directory.empty() || directory.front() != '/')) {
    return make_error(ErrorCode::invalid_argument,
                      "the store's directory is \"{}\"; expected an absolute path", directory);
  }
  std::unique_ptr<TieredStore> self(new TieredStore(std::move(options)));
  if (self->options_.store.memory_only) {
    self->bypass_reason_ = "kernels are kept in memory only, as asked";
  } else {
    self->open_disk();
    self->open_system();
  }
  self->open_daemon();
  return self;
}

void TieredStore::open_disk() {
  SqliteStoreOptions disk = options_.disk;
  disk.directory = options_.store.directory;
  disk.max_bytes = options_.store.max_bytes;
  disk.allow_network_file_system = options_.store.allow_network_file_system;
  disk.system = false;
  disk.log = log_;
  auto opened = SqliteStore::open(disk);
  if (opened) {
    disk_ = *std::move(opened);
    return;
  }
  bypass_reason_ = opened.error().message();
  log_.warn("kernels are kept in memory only: {}", bypass_reason_);
}

void TieredStore::open_system() {
  const std::string& directory = options_.store.system_directory;
  if (directory.empty() || directory == options_.store.directory) {
    return;
  }
  SqliteStoreOptions system = options_.disk;
  system.directory = directory;
  system.allow_network_file_system = options_.store.allow_network_file_system;
  system.system = true;
  system.log = log_;
  auto opened = SqliteStore::open(system);
  if (opened) {
    system_ = *std::move(opened);
  } else if (opened.error().code() != ErrorCode::not_found) {
    log_.warn("the system store is not used: {}", opened.error().message());
  }
}

void TieredStore::open_daemon() {
  if (options_.daemon_sockets.empty() || options_.store.daemon == DaemonUse::off) {
    return;
  }
  wire::DaemonLink::Options link;
  link.sockets = options_.daemon_sockets;
  link.required = options_.store.daemon == DaemonUse::require;
  link.log = log_;
  daemon_link_ = std::make_shared<wire::DaemonLink>(std::move(link));
  daemon_ = std::make_unique<DaemonStore>(daemon_link_);
}

bool TieredStore::is_store_of(const wire::Greeting& greeting) const noexcept {
  struct stat status {};
  return disk_ != nullptr && ::stat(disk_->directory().root().c_str(), &status) == 0 &&
         greeting.store_inode != 0 && status.st_ino == greeting.store_inode &&
         status.st_dev == greeting.store_device;
}

void TieredStore::note_failure(Breaker& breaker, const char* tier, const char* op,
                               const Error& error) {
  errors_.fetch_add(1, std::memory_order_relaxed);
  count(fmt::format("store_errors_{}_{}", op, name_of(error.code())));
  // A timeout has already cost its whole deadline; another one would cost it again.
  const int weight = error.code() == ErrorCode::timeout ? kFailuresToOpen : 1;
  if (breaker.failed(SteadyClock::now(), weight)) {
    log_.warn("the {} store is left alone for {} s: {}", tier, kTierPause.count(), error.message());
  } else {
    log_.info("the {} store failed: {}", tier, error.message());
  }
}

/// A tier that cannot answer has nothing: counted, logged, and after some time asked again.
template <class Ask>
auto TieredStore::ask(Tier tier, const char* op, Ask&& ask)
    -> std::optional<typename decltype(ask(std::declval<SqliteStore&>()))::value_type> {
  SqliteStore* const store = tier == Tier::disk ? disk_.get() : system_.get();
  Breaker& breaker = tier == Tier::disk ? disk_breaker_ : system_breaker_;
  if (store == nullptr || !breaker.allows(SteadyClock::now())) {
    return std::nullopt;
  }
  auto answer = ask(*store);
  if (!answer) {
    note_failure(breaker, store->tier_name(), op, answer.error());
    return std::nullopt;
  }
  breaker.succeeded();
  return *std::move(answer);
}

Lookup TieredStore::through_tiers(const std::function<Lookup(CubinStore&)>& look, Purpose purpose) {
  CUKILN_TRY(std::optional<StoreEntry> found, look(memory_));
  if (found) {
    found->found_in = Tier::memory;
    if (disk_ != nullptr && purpose == Purpose::use) {
      disk_->note_use(found->key);
    }
  }
  for (const Tier tier : {Tier::disk, Tier::system}) {
    if (found) {
      break;
    }
    found = ask(tier, "get", look).value_or(std::nullopt);
    if (found) {
      found->found_in = tier;
      if (purpose == Purpose::use) {
        static_cast<void>(memory_.keep(*found));
      }
    }
  }
  if (purpose == Purpose::use) {
    (found ? hits_ : misses_).fetch_add(1, std::memory_order_relaxed);
  }
  return found;
}

Lookup TieredStore::find(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
                         Purpose purpose) {
  return through_tiers(
      [&](CubinStore& tier) { return tier.find(request, request_canonical, check, purpose); },
      purpose);
}

Lookup TieredStore::get(const CacheKey& key) {
  return through_tiers([&](CubinStore& tier) { return tier.get(key); }, Purpose::use);
}

Result<SetTree> TieredStore::find_sets(const RequestDigest& request, ByteView request_canonical) {
  const auto sets_of = [&](CubinStore& tier) { return tier.find_sets(request, request_canonical); };
  CUKILN_TRY(SetTree tree, sets_of(memory_));
  for (const Tier tier : {Tier::disk, Tier::system}) {
    if (auto more = ask(tier, "find", sets_of); more && more->size() > tree.size()) {
      tree = *std::move(more);  // memory has a part of what the disk has
    }
  }
  return tree;
}

Result<std::vector<RecordedSet>> TieredStore::list_sets(const RequestDigest& request,
                                                        ByteView request_canonical) {
  const auto sets_of = [&](CubinStore& tier) { return tier.list_sets(request, request_canonical); };
  CUKILN_TRY(std::vector<RecordedSet> sets, sets_of(memory_));
  for (const Tier tier : {Tier::disk, Tier::system}) {
    if (auto more = ask(tier, "find", sets_of)) {
      add_new(sets, *std::move(more));
    }
  }
  return sets;
}

Lookup TieredStore::peek(const CacheKey& key) {
  CUKILN_TRY(std::optional<StoreEntry> found, memory_.peek(key));
  for (SqliteStore* tier : {disk_.get(), system_.get()}) {
    if (!found && tier != nullptr) {
      CUKILN_TRY(found, tier->peek(key));
    }
  }
  return found;
}

Result<PutOutcome> TieredStore::put(const StoreEntry& entry) {
  CUKILN_TRY(const PutOutcome in_memory, memory_.put(entry));
  if (disk_ == nullptr) {
    return in_memory == PutOutcome::too_large ? in_memory : PutOutcome::not_stored;
  }
  if (!disk_breaker_.allows(SteadyClock::now())) {
    return make_error(ErrorCode::timeout,
                      "the disk store failed moments ago and is left alone for a while");
  }
  auto outcome = disk_->put(entry);
  if (!outcome) {
    note_failure(disk_breaker_, disk_->tier_name(), "put", outcome.error());
  } else {
    disk_breaker_.succeeded();
    stored_.fetch_add(*outcome == PutOutcome::stored ? 1 : 0, std::memory_order_relaxed);
  }
  return outcome;
}

Result<bool> TieredStore::remove(const CacheKey& key) {
  CUKILN_TRY(const bool in_memory, memory_.remove(key));
  if (disk_ == nullptr) {
    return in_memory;
  }
  CUKILN_TRY(const bool on_disk, disk_->remove(key));
  return in_memory || on_disk;
}

Result<std::vector<EntrySummary>> TieredStore::list() {
  CUKILN_TRY(std::vector<EntrySummary> entries, disk_ != nullptr ? disk_->list() : memory_.list());
  if (system_ == nullptr) {
    return entries;
  }
  std::unordered_set<CacheKey> known;
  for (const EntrySummary& entry : entries) {
    known.insert(entry.key);
  }
  CUKILN_TRY(const std::vector<EntrySummary> below, system_->list());
  std::copy_if(below.begin(), below.end(), std::back_inserter(entries),
               [&](const EntrySummary& entry) { return known.count(entry.key) == 0; });
  return entries;
}

StoreStats TieredStore::stats() {
  const StoreStats user = disk_ != nullptr ? disk_->stats() : memory_.stats();
  StoreStats stats;
  stats.entries = user.entries;
  stats.bytes = user.bytes;
  stats.hits = hits_.load(std::memory_order_relaxed);
  stats.misses = misses_.load(std::memory_order_relaxed);
  stats.stored = stored_.load(std::memory_order_relaxed);
  stats.evicted = user.evicted;
  stats.corrupt = user.corrupt + (system_ != nullptr ? system_->stats().corrupt : 0);
  stats.errors = errors_.load(std::memory_order_relaxed);
  return stats;
}

Result<std::string> TieredStore::source_text(const CacheKey& key) {
  auto text = memory_.source_text(key);
  for (SqliteStore* tier : {disk_.get(), system_.get()}) {
    if (tier != nullptr && (!text || text->empty())) {
      text = tier->source_text(key);
    }
  }
  return text;
}

std::string TieredStore::flight_directory() {
  if (disk_ == nullptr || disk_->read_only()) {
    return {};
  }
  auto folder = disk_->directory().folder("flights");
  return folder ? *std::move(folder) : std::string();
}

Result<SqliteStore*> TieredStore::need_disk() const {
  if (disk_ == nullptr) {
    return make_error(ErrorCode::io, "there is no store on disk: {}", bypass_reason_);
  }
  return disk_.get();
}

Result<std::uint64_t> TieredStore::remove_all() {
  CUKILN_TRY(SqliteStore* const disk, need_disk());
  memory_.remove_all();
  return disk->remove_all();
}

Result<VerifyReport> TieredStore::verify(bool repair) {
  CUKILN_TRY(SqliteStore* const disk, need_disk());
  return disk->verify(repair);
}

Result<GcReport> TieredStore::collect(const GcOptions& options) {
  CUKILN_TRY(SqliteStore* const disk, need_disk());
  return disk->collect(options);
}

Result<std::map<std::string, std::int64_t>> TieredStore::counters() {
  if (disk_ != nullptr) {
    return disk_->counters();
  }
  std::map<std::string, std::int64_t> own;
  for (const auto& [name, value] : memory_only_.counters()) {
    own[name] = value;
  }
  return own;
}

void TieredStore::count(std::string_view counter, std::int64_t delta) {
  const ForkGate::Pass pass;
  if (disk_ != nullptr) {
    disk_->count(counter, delta);
  } else {
    memory_only_.count(counter, delta);
  }
}

std::optional<StatRecord> TieredStore::find_stat_record(const std::string& path) {
  if (disk_ == nullptr) {
    return memory_only_.find_stat_record(path);
  }
  return disk_breaker_.state(SteadyClock::now()) != Breaker::State::closed
             ? std::nullopt
             : disk_->find_stat_record(path);
}

void TieredStore::save_stat_records(std::vector<StatRecord> records) {
  const ForkGate::Pass pass;
  if (disk_ != nullptr) {
    disk_->save_stat_records(std::move(records));
  } else {
    memory_only_.save(std::move(records));
  }
}

Result<void> TieredStore::flush() {
  return disk_ == nullptr || disk_->read_only() ? Result<void>()
                                                : disk_->flush(options_.disk.write_wait);
}

TieredStore::DiskFacts TieredStore::facts() {
  DiskFacts facts;
  facts.directory = options_.store.directory;
  facts.sqlite_version = sqlite3_libversion();
  facts.sqlite_has_wal_reset_fix = sqlite3_libversion_number() >= kWalResetFixVersion;
  const HostFacts& host = *options_.disk.facts;
  const long type =
      host.file_system_type(disk_ != nullptr ? disk_->directory().root() : facts.directory);
  const char* network = network_file_system_name(type);
  facts.file_system = network != nullptr ? network : fmt::format("{:#x}", type);
  if (disk_ != nullptr) {
    facts.directory = disk_->directory().root();
    if (auto name = disk_->session().generation_name()) {
      facts.generation = *std::move(name);
    }
    if (const auto version = disk_->session().schema_version()) {
      facts.schema = *version;
    }
    const StoreStats now = disk_->stats();
    facts.bytes = now.bytes;
    facts.entries = now.entries;
    facts.rebuilds = disk_->session().rebuilds();
  }
  if (system_ != nullptr) {
    facts.system_directory = system_->directory().root();
  }
  return facts;
}

}  // namespace cukiln
