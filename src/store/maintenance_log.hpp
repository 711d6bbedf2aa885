// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "base/fork_gate.hpp"
#include "base/mutex.hpp"
#include "store/maintenance.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

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
