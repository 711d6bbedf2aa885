// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/fork_gate.hpp"
#include "core/base/mutex.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// The result of a check of all rows of a store.
struct VerifyReport {
  std::uint64_t checked = 0;  ///< entries
  std::uint64_t checked_blobs = 0;
  std::uint64_t damaged = 0;  ///< findings
  std::uint64_t repaired = 0;
  struct Finding {
    CacheKey key;  ///< all zero if it is not about one entry; of a blob the digits of its id
    std::string what;
  };
  std::vector<Finding> findings;
};

struct GcOptions {
  std::optional<std::uint64_t> max_bytes;  ///< evict until the live data is at most this
  std::optional<std::int64_t> max_age_s;   ///< evict entries that were not used for this long
  bool dry_run = false;                    ///< report what would be evicted, and evict nothing
};

struct GcReport {
  std::uint64_t entries = 0;       ///< evicted
  std::uint64_t blobs = 0;         ///< evicted
  std::uint64_t bytes = 0;         ///< of the evicted entries' cubins, and of the evicted blobs
  std::uint64_t bytes_before = 0;  ///< of the database's files
  std::uint64_t bytes_after = 0;
  bool already_running = false;  ///< another process collects, so that this one did nothing
};

/// How often one kind of maintenance ran, by result, and how long it took.
struct MaintenanceRuns {
  std::uint64_t done = 0;
  std::uint64_t blocked = 0;  ///< another process was in the way: a reader, a second collection
  std::uint64_t failed = 0;
  std::chrono::nanoseconds total_time{0};
  std::uint64_t all() const noexcept { return done + blocked + failed; }
};

/// The maintenance that this process did since it opened the store.
struct MaintenanceStats {
  MaintenanceRuns gc_by_put;    ///< evictions for an entry that had no room
  MaintenanceRuns gc_by_timer;  ///< of the maintenance owner, whether or not an entry was evicted
  std::int64_t gc_last_success_s = 0;  ///< since 1970; 0: none yet
  MaintenanceRuns checkpoints;         ///< of the write-ahead log
};

/// Counts the runs of eviction and collection of this process. Threads: safe.
class MaintenanceLog {
 public:
  using Trigger = MaintenanceRuns MaintenanceStats::*;

  /// Adds a run. `done` is true if it ran, false if another process was in the way, or the error.
  void add(Trigger trigger, std::chrono::steady_clock::time_point began, const Result<bool>& done,
           std::int64_t now_s) {
    const ForkSafeLock lock(mutex_);
    MaintenanceRuns& runs = stats_.*trigger;
    ++(!done ? runs.failed : *done ? runs.done : runs.blocked);
    runs.total_time += std::chrono::steady_clock::now() - began;
    if (done && *done) {
      stats_.gc_last_success_s = now_s;
    }
  }

  /// The checkpoints are left at zero: WalCheckpoints counts them.
  MaintenanceStats stats() const {
    const ForkSafeLock lock(mutex_);
    return stats_;
  }

 private:
  mutable Mutex mutex_;
  MaintenanceStats stats_ CUKILN_GUARDED_BY(mutex_);
};

}  // namespace cukiln
