// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/store/generation.hpp"
#include "core/store/maintenance.hpp"
#include "core/store/sqlite_handle.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// What a check found, as far as a repair needs it.
struct StoreDamage {
  /// A statement that removes a damaged row, and its parameters: ?1 is `id`, ?2 the blob `name`.
  struct Removal {
    const char* sql;
    std::int64_t id;
    std::string name;
  };
  std::vector<Removal> removals;
  bool meta = false;  ///< a row of `meta`, which are written again
};

/// Checks every row of every table, in short read transactions: a long one would keep the
/// write-ahead log from being truncated. Errors: corrupt (the database itself is damaged), io.
Result<void> check_tables(SqliteHandle& db, const StoreSchema& schema, VerifyReport& report,
                          StoreDamage& damage);

}  // namespace cukiln
