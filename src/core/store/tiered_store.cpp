// SPDX-License-Identifier: Apache-2.0
#include "core/store/tiered_store.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/base/clock.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

void add_new(std::vector<RecordedSet>& sets, std::vector<RecordedSet> more) {
  for (RecordedSet& one : more) {
    const bool known = std::any_of(sets.begin(), sets.end(),
                                   [&](const RecordedSet& set) { return set.key == one.key; });
    if (!known) {
      sets.push_back(std::move(one));
    }
  }
}

/// Errors: the reason for which there is no disk tier.
Result<std::unique_ptr<SqliteStore>> open_disk(const TieredStore::Options& options) {
  SqliteStoreOptions disk = options.disk;
  disk.directory = options.store.directory;
  disk.max_bytes = options.store.max_bytes;
  disk.allow_network_file_system = options.store.allow_network_file_system;
  disk.system = false;
  disk.log = Logger(options.store.log);
  return SqliteStore::open(disk);
}

Result<std::unique_ptr<SqliteStore>> reopen_disk(const TieredStore::Options& options) {
  CUKILN_TRY(std::unique_ptr<SqliteStore> disk, open_disk(options));
  if (!disk->read_only()) {
    Logger(options.store.log)
        .info("kernels are kept on disk again, in {}", options.store.directory);
  }
  return disk;
}

/// Null if none is configured, or none can be opened; `problem` says why one that is there cannot.
std::unique_ptr<SqliteStore> open_system(const TieredStore::Options& options,
                                         std::string& problem) {
  const std::string& directory = options.store.system_directory;
  if (directory.empty() || directory == options.store.directory) {
    return nullptr;
  }
  SqliteStoreOptions system = options.disk;
  system.directory = directory;
  system.allow_network_file_system = options.store.allow_network_file_system;
  system.system = true;
  system.log = Logger(options.store.log);
  auto opened = SqliteStore::open(system);
  if (!opened) {
    if (opened.error().code() != ErrorCode::not_found) {
      problem = opened.error().message();
      system.log.warn("the system store is not used: {}", problem);
    }
    return nullptr;
  }
  return *std::move(opened);
}

}  // namespace

TieredStore::TieredStore(Options options)
    : options_(std::move(options)),
      revoked_keys_(options_.store.revoked_keys),
      key_scopes_(options_.store.scoped_keys),
      log_(options_.store.log),
      events_(options_.store.events),
      memory_(options_.memory_bytes, *options_.disk.clock) {}

Result<std::unique_ptr<TieredStore>> TieredStore::open(Options options) {
  const std::string& directory = options.store.directory;
  if (!options.store.memory_only && (directory.empty() || directory.front() != '/')) {
    return make_error(ErrorCode::invalid_argument,
                      "the store's directory is \"{}\"; expected an absolute path", directory);
  }
  std::unique_ptr<TieredStore> self(new TieredStore(std::move(options)));
  self->options_.disk.events = self->events_ ? &self->events_ : nullptr;
  const Options& own = self->options_;
  if (own.store.memory_only) {
    self->bypass_reason_ = "kernels are kept in memory only, as configured";
  } else {
    if (auto disk = open_disk(own)) {
      self->disk_.open(*std::move(disk));
    } else {
      self->bypass_reason_ = disk.error().message();
      self->log_.warn("kernels are kept in memory only: {}", self->bypass_reason_);
    }
    self->disk_.reopen_by([&own] { return reopen_disk(own); }, own.reopen_after);
    self->system_.open(open_system(own, self->system_problem_));
  }
  return self;
}

const std::string& TieredStore::bypass_reason() const noexcept {
  static const std::string none;
  return disk() == nullptr ? bypass_reason_ : none;
}

bool TieredStore::is_store_of(const wire::Greeting& greeting) const noexcept {
  struct stat status {};
  return disk() != nullptr && ::stat(disk()->directory().root().c_str(), &status) == 0 &&
         greeting.store_inode != 0 && status.st_ino == greeting.store_inode &&
         status.st_dev == greeting.store_device;
}

void TieredStore::record_failure(SqliteStore& store, const char* op, const Error& error,
                                 bool opened) {
  counters_.add(StoreEvent::error);
  count(fmt::format("store_errors_{}_{}", op, name_of(error.code())));
  const char* const name = store.tier_name();
  if (opened && std::string_view(op) != "put") {  // of a put there is a warning already
    log_.warn("the {} store is not used for {} s (circuit breaker open): {}", name,
              SqliteTier::kPause.count(), error.message());
  } else if (opened) {
    log_.info("the {} store is not used for {} s (circuit breaker open)", name,
              SqliteTier::kPause.count());
  } else {
    log_.info("the {} store failed: {}", name, error.message());
  }
}

void TieredStore::warn_not_stored(const StoreEntry& entry, const Error& error) {
  const auto unreported = put_failures_.add(error, std::chrono::steady_clock::now());
  if (!unreported) {
    return;
  }
  log_.warn("{} is not stored: {} (the next {} minutes without this warning{})", entry.labels.name,
            error.message(), PutFailures::kInterval.count(),
            *unreported == 0 ? "" : fmt::format("; {} more since the last", *unreported));
}

Lookup TieredStore::search_tiers(const std::function<Lookup(CubinStore&)>& look_up,
                                 Purpose purpose) {
  CUKILN_TRY(std::optional<StoreEntry> found, look_up(memory_));
  if (found) {
    found->found_in = Tier::memory;
    if (disk() != nullptr && purpose == Purpose::use) {
      disk()->touch(found->key);
    }
  }
  for (const Tier tier : {Tier::disk, Tier::system}) {
    if (found) {
      break;
    }
    found = tier_of(tier).query("get", look_up).value_or(std::nullopt);
    if (found) {
      found->found_in = tier;
      if (purpose == Purpose::use) {
        static_cast<void>(memory_.put_verified(*found));
      }
    }
  }
  if (purpose == Purpose::use) {
    counters_.add(found ? StoreEvent::hit : StoreEvent::miss);
  }
  return found;
}

Lookup TieredStore::find(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
                         Purpose purpose) {
  return search_tiers(
      [&](CubinStore& tier) { return tier.find(request, request_canonical, check, purpose); },
      purpose);
}

Lookup TieredStore::get(const CacheKey& key) {
  return search_tiers([&](CubinStore& tier) { return tier.get(key); }, Purpose::use);
}

Result<SetTree> TieredStore::find_sets(const RequestDigest& request, ByteView request_canonical) {
  const auto sets_of = [&](CubinStore& tier) { return tier.find_sets(request, request_canonical); };
  CUKILN_TRY(SetTree tree, sets_of(memory_));
  for (const Tier tier : {Tier::disk, Tier::system}) {
    if (auto more = tier_of(tier).query("find", sets_of); more && more->size() > tree.size()) {
      tree = *std::move(more);  // memory has a part of the sets that the disk has
    }
  }
  return tree;
}

Result<std::vector<RecordedSet>> TieredStore::list_sets(const RequestDigest& request,
                                                        ByteView request_canonical) {
  const auto sets_of = [&](CubinStore& tier) { return tier.list_sets(request, request_canonical); };
  CUKILN_TRY(std::vector<RecordedSet> sets, sets_of(memory_));
  for (const Tier tier : {Tier::disk, Tier::system}) {
    if (auto more = tier_of(tier).query("find", sets_of)) {
      add_new(sets, *std::move(more));
    }
  }
  return sets;
}

Lookup TieredStore::peek(const CacheKey& key) {
  CUKILN_TRY(std::optional<StoreEntry> found, memory_.peek(key));
  for (SqliteStore* tier : {disk(), system()}) {
    if (!found && tier != nullptr) {
      CUKILN_TRY(found, tier->peek(key));
    }
  }
  return found;
}

Result<PutOutcome> TieredStore::put(const StoreEntry& entry) {
  CUKILN_TRY(const PutOutcome in_memory, memory_.put(entry));
  SqliteStore* const disk = disk_.store_for_put();
  if (disk == nullptr) {
    return in_memory == PutOutcome::too_large ? in_memory : PutOutcome::not_stored;
  }
  if (!disk_.allows()) {
    // The failure that opened the circuit, so that all entries that it costs have one reason.
    Error error = put_failures_.last().value_or(
        make_error(ErrorCode::timeout, "the disk store failed and is not used for {} s",
                   SqliteTier::kPause.count()));
    warn_not_stored(entry, error);
    return error;
  }
  auto outcome = disk->put(entry);
  if (!outcome) {
    warn_not_stored(entry, outcome.error());
    disk_.failed("put", outcome.error());
  } else {
    disk_.succeeded();
    counters_.add(StoreEvent::stored, *outcome == PutOutcome::stored ? 1 : 0);
  }
  return outcome;
}

Result<bool> TieredStore::remove(const CacheKey& key) {
  CUKILN_TRY(const bool in_memory, memory_.remove(key));
  if (disk() == nullptr) {
    return in_memory;
  }
  CUKILN_TRY(const bool on_disk, disk()->remove(key));
  return in_memory || on_disk;
}

std::uint64_t TieredStore::peak_bytes(const RequestDigest& request) {
  return disk() != nullptr ? disk()->peak_bytes(request) : 0;
}

Result<std::vector<EntrySummary>> TieredStore::list() {
  CUKILN_TRY(std::vector<EntrySummary> entries,
             disk() != nullptr ? disk()->list() : memory_.list());
  if (system() == nullptr) {
    return entries;
  }
  std::unordered_set<CacheKey> known;
  for (const EntrySummary& entry : entries) {
    known.insert(entry.key);
  }
  CUKILN_TRY(const std::vector<EntrySummary> in_system, system()->list());
  std::copy_if(in_system.begin(), in_system.end(), std::back_inserter(entries),
               [&](const EntrySummary& entry) { return known.count(entry.key) == 0; });
  return entries;
}

StoreStats TieredStore::stats() {
  const StoreStats user = disk() != nullptr ? disk()->stats() : memory_.stats();
  StoreStats stats;
  stats.entries = user.entries;
  stats.bytes = user.bytes;
  stats.hits = counters_[StoreEvent::hit];
  stats.misses = counters_[StoreEvent::miss];
  stats.stored = counters_[StoreEvent::stored];
  stats.evicted = user.evicted;
  stats.corrupt = user.corrupt + (system() != nullptr ? system()->stats().corrupt : 0);
  stats.errors = counters_[StoreEvent::error];
  return stats;
}

Result<std::string> TieredStore::source_text(const CacheKey& key) {
  auto text = memory_.source_text(key);
  for (SqliteStore* tier : {disk(), system()}) {
    if (tier == nullptr || (text && !text->empty())) {
      continue;
    }
    auto below = tier->source_text(key);
    // Damage in one tier is reported unless a lower one has the text.
    if (below || text || text.error().code() != ErrorCode::corrupt) {
      text = std::move(below);
    }
  }
  return text;
}

std::string TieredStore::lock_folder() const {
  return disk() == nullptr ? std::string() : disk()->lock_folder();
}

std::string TieredStore::headers_folder() const {
  return disk() == nullptr ? std::string() : disk()->directory().path("headers");
}

Result<SqliteStore*> TieredStore::need_disk() const {
  if (disk() == nullptr) {
    return make_error(ErrorCode::io, "there is no store on disk: {}", bypass_reason_);
  }
  return disk();
}

Result<std::uint64_t> TieredStore::remove_all() {
  CUKILN_TRY(SqliteStore* const disk_store, need_disk());
  memory_.remove_all();
  return disk_store->remove_all();
}

Result<void> TieredStore::flush() const {
  return disk() == nullptr || disk()->read_only() ? Result<void>()
                                                  : disk()->flush(options_.disk.write_wait);
}

const std::string& TieredStore::directory() const noexcept {
  return disk() != nullptr ? disk()->directory().root() : options_.store.directory;
}

std::string TieredStore::file_system() const {
  const long type = options_.disk.facts->file_system_type(directory());
  const char* network = network_file_system_name(type);
  return network != nullptr ? network : fmt::format("{:#x}", type);
}

}  // namespace cukiln
