// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/store/eviction.hpp"
#include "core/store/maintenance.hpp"
#include "core/store/store_accounting.hpp"
#include "core/store/store_session.hpp"

namespace cukiln {

struct StoreDamage;

/// Checks all rows of an SQLite store, and removes those that are damaged. Threads: safe.
class Verification {
 public:
  Verification(StoreSession& session, StoreAccounting& accounting, Eviction& eviction)
      : session_(session), accounting_(accounting), eviction_(eviction) {}

  Result<VerifyReport> verify(bool repair_too);

 private:
  Result<void> repair(const StoreDamage& damage);

  StoreSession& session_;
  StoreAccounting& accounting_;
  Eviction& eviction_;
};

}  // namespace cukiln
