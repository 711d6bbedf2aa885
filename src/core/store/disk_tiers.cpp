// SPDX-License-Identifier: Apache-2.0
#include "core/store/disk_tiers.hpp"

#include "core/base/fork_gate.hpp"

namespace cukiln {

namespace {

/// Errors: the reason for which there is no disk tier.
Result<std::unique_ptr<SqliteStore>> open_disk(const TieredStoreOptions& options) {
  SqliteStoreOptions disk = options.disk;
  disk.directory = options.store.directory;
  disk.max_bytes = options.store.max_bytes;
  disk.allow_network_file_system = options.store.allow_network_file_system;
  disk.system = false;
  disk.log = Logger(options.store.log);
  return SqliteStore::open(disk);
}

Result<std::unique_ptr<SqliteStore>> reopen_disk(const TieredStoreOptions& options) {
  CUKILN_TRY(std::unique_ptr<SqliteStore> disk, open_disk(options));
  if (!disk->read_only()) {
    Logger(options.store.log)
        .info("kernels are kept on disk again, in {}", options.store.directory);
  }
  return disk;
}

/// Null if none is configured, or none can be opened; `problem` says why one that is there cannot.
std::unique_ptr<SqliteStore> open_system(const TieredStoreOptions& options, std::string& problem) {
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

void DiskTiers::open() {
  if (options_.store.memory_only) {
    bypass_reason_ = "kernels are kept in memory only, as configured";
    return;
  }
  if (auto user = open_disk(options_)) {
    user_.open(*std::move(user));
  } else {
    bypass_reason_ = user.error().message();
    log_.warn("kernels are kept in memory only: {}", bypass_reason_);
  }
  user_.reopen_by([this] { return reopen_disk(options_); }, options_.reopen_after);
  system_.open(open_system(options_, system_problem_));
}

const std::string& DiskTiers::bypass_reason() const noexcept {
  static const std::string none;
  return user() == nullptr ? bypass_reason_ : none;
}

Result<SqliteStore*> DiskTiers::need_user() const {
  if (user() == nullptr) {
    return make_error(ErrorCode::io, "there is no store on disk: {}", bypass_reason_);
  }
  return user();
}

void DiskTiers::record_failure(SqliteStore& store, const char* op, const Error& error,
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

void DiskTiers::warn_not_stored(const StoreEntry& entry, const Error& error) {
  const auto unreported = put_failures_.add(error, std::chrono::steady_clock::now());
  if (!unreported) {
    return;
  }
  log_.warn("{} is not stored: {} (the next {} minutes without this warning{})", entry.labels.name,
            error.message(), PutFailures::kInterval.count(),
            *unreported == 0 ? "" : fmt::format("; {} more since the last", *unreported));
}

void DiskTiers::count(std::string_view counter, std::int64_t delta) {
  const ForkGate::Pass pass;
  if (SqliteStore* const store = user()) {
    store->count(counter, delta);
  } else {
    own_records_.add_count(counter, delta);
  }
}

Result<std::map<std::string, std::int64_t>> DiskTiers::counters() {
  if (SqliteStore* const store = user()) {
    return store->counters();
  }
  const auto own = own_records_.counters();
  return std::map<std::string, std::int64_t>(own.begin(), own.end());
}

std::optional<StatRecord> DiskTiers::find_stat_record(const std::string& path) {
  SqliteStore* const store = user();
  if (store == nullptr) {
    return own_records_.find_stat_record(path);
  }
  return user_.is_closed() ? store->find_stat_record(path) : std::nullopt;
}

void DiskTiers::save_stat_records(std::vector<StatRecord> records) {
  const ForkGate::Pass pass;
  if (SqliteStore* const store = user()) {
    store->save_stat_records(std::move(records));
  } else {
    own_records_.add_stat_records(std::move(records));
  }
}

}  // namespace cukiln
