// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "store/eviction.hpp"
#include "store/maintenance.hpp"
#include "store/store_accounting.hpp"
#include "store/store_session.hpp"

namespace cukiln {

struct Damages;

/// Reads all that an SQLite store has and checks it, and removes what is damaged. Threads: safe.
class Verification {
 public:
  Verification(StoreSession& session, StoreAccounting& accounting, Eviction& eviction)
      : session_(session), accounting_(accounting), eviction_(eviction) {}

  Result<VerifyReport> verify(bool repair_too);

 private:
  Result<void> repair(const Damages& damages);

  StoreSession& session_;
  StoreAccounting& accounting_;
  Eviction& eviction_;
};

}  // namespace cukiln
