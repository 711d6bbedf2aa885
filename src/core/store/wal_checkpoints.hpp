// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "core/base/fork_gate.hpp"
#include "core/base/mutex.hpp"
#include "core/store/maintenance.hpp"
#include "core/store/maintenance_owner.hpp"
#include "core/store/space_limits.hpp"
#include "core/store/sqlite_handle.hpp"
#include "core/store/sqlite_options.hpp"

namespace cukiln {

/// Merges a store's write-ahead log into its database. Call with the writer lock held. Threads:
/// safe.
class WalCheckpoints {
 public:
  WalCheckpoints(const SqliteStoreOptions& options, const SpaceLimits& limits,
                 const MaintenanceOwner& owner)
      : options_(options), limits_(limits), owner_(owner) {}

  /// Merges the log and truncates it. False if a reader is in the way.
  Result<bool> run(SqliteHandle& db);
  /// The same if the log is long. Called after each write.
  void run_if_long(SqliteHandle& db);

  MaintenanceRuns runs() const {
    const ForkSafeLock lock(mutex_);
    return runs_;
  }

 private:
  const SqliteStoreOptions& options_;
  const SpaceLimits& limits_;
  const MaintenanceOwner& owner_;
  std::atomic<int> stuck_pages_{0};  // of a log that a reader kept from being truncated
  mutable Mutex mutex_;
  MaintenanceRuns runs_ CUKILN_GUARDED_BY(mutex_);
};

}  // namespace cukiln
