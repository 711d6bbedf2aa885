// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "store/eviction.hpp"
#include "store/maintenance.hpp"
#include "store/maintenance_log.hpp"
#include "store/store_accounting.hpp"
#include "store/store_session.hpp"

namespace cukiln {

/// Collects an SQLite store: when a person asks, and now and then as the maintenance owner.
/// Threads: safe.
class StoreMaintenance {
 public:
  StoreMaintenance(StoreSession& session, StoreAccounting& accounting, Eviction& eviction,
                   MaintenanceLog& log)
      : session_(session), accounting_(accounting), eviction_(eviction), log_(log) {}

  Result<GcReport> collect(const GcOptions& options);
  Result<void> maintain();

 private:
  /// False: another process collects.
  Result<bool> bring_below_cap();

  StoreSession& session_;
  StoreAccounting& accounting_;
  Eviction& eviction_;
  MaintenanceLog& log_;
};

}  // namespace cukiln
