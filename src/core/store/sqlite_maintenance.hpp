// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/store/eviction.hpp"
#include "core/store/maintenance.hpp"
#include "core/store/store_accounting.hpp"
#include "core/store/store_session.hpp"

namespace cukiln {

/// Collects an SQLite store, on request (`cukiln gc`) and periodically as the maintenance owner.
/// Threads: safe.
class StoreMaintenance {
 public:
  StoreMaintenance(StoreSession& session, StoreAccounting& accounting, Eviction& eviction,
                   MaintenanceLog& log)
      : session_(session), accounting_(accounting), eviction_(eviction), log_(log) {}

  Result<GcReport> collect(const GcOptions& options);
  /// Writes what is pending; as the maintenance owner also evicts to the cap and merges the log.
  Result<void> maintain();

 private:
  /// False if another process is collecting.
  Result<bool> bring_below_cap();

  StoreSession& session_;
  StoreAccounting& accounting_;
  Eviction& eviction_;
  MaintenanceLog& log_;
};

}  // namespace cukiln
