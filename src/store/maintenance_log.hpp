// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "base/fork_gate.hpp"
#include "base/mutex.hpp"
#include "store/maintenance.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// What this process did to keep a store below its cap. Threads: safe.
class MaintenanceLog {
 public:
  using Trigger = MaintenanceRuns MaintenanceStats::*;

  /// `done`: whether no other process was in the way, or why it failed.
  void add(Trigger trigger, std::chrono::steady_clock::time_point began, const Result<bool>& done,
           std::int64_t now_s) {
    const ForkSafeLock hold(mutex_);
    MaintenanceRuns& runs = stats_.*trigger;
    ++(!done ? runs.failed : *done ? runs.done : runs.blocked);
    runs.total_time += std::chrono::steady_clock::now() - began;
    if (done && *done) {
      stats_.gc_last_success_s = now_s;
    }
  }

  /// Without the checkpoints, which the session counts.
  MaintenanceStats stats() const {
    const ForkSafeLock hold(mutex_);
    return stats_;
  }

 private:
  mutable Mutex mutex_;
  MaintenanceStats stats_;
};

}  // namespace cukiln
