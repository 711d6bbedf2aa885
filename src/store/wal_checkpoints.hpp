// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "base/fork_gate.hpp"
#include "base/mutex.hpp"
#include "store/maintenance.hpp"
#include "store/maintenance_owner.hpp"
#include "store/space_limits.hpp"
#include "store/sqlite_handle.hpp"
#include "store/sqlite_options.hpp"

namespace cukiln {

/// Merges a store's write-ahead log into its database. Call as the only writer. Threads: safe.
class WalCheckpoints {
 public:
  WalCheckpoints(const SqliteStoreOptions& options, const SpaceLimits& limits,
                 const MaintenanceOwner& owner)
      : options_(options), limits_(limits), owner_(owner) {}

  /// Merges the log and cuts it to nothing, unless a reader is in the way.
  Result<bool> run(SqliteHandle& db);
  /// The same once the log is long: after each write.
  void run_if_long(SqliteHandle& db);

  MaintenanceRuns runs() const {
    const ForkSafeLock hold(mutex_);
    return runs_;
  }

 private:
  const SqliteStoreOptions& options_;
  const SpaceLimits& limits_;
  const MaintenanceOwner& owner_;
  std::atomic<int> lost_pages_{0};  // of a log that could not be cut
  mutable Mutex mutex_;
  MaintenanceRuns runs_;
};

}  // namespace cukiln
