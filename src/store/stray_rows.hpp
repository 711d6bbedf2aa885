// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "store/sqlite_handle.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// Rows that no lookup reads, because a column that leads to them was damaged. They do no harm but
/// take room, so that a collection removes them.
struct StrayRows {
  bool requests = false;                  ///< without an entry
  bool cubins = false;                    ///< without an entry
  std::vector<std::string> stat_records;  ///< the paths of damaged ones

  bool any() const noexcept { return requests || cubins || !stat_records.empty(); }
};

/// Finds stray rows. Cubins are searched only in a store in which damage was found: every other one
/// has none, and the search reads a page of each.
Result<StrayRows> find_stray_rows(SqliteHandle& db);

/// Removes stray rows in the caller's transaction.
Result<void> remove_stray_rows(SqliteHandle& db, const StrayRows& rows);

/// Removes the cubins that have no entry.
Result<void> remove_stray_cubins(SqliteHandle& db);

}  // namespace cukiln
