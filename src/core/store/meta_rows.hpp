// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/store/generation.hpp"
#include "core/store/sqlite_handle.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// Checks the rows of `meta` in a store of the version `schema`. Returns a sentence for each wrong
/// or missing row; none for a store of a newer version, which alone knows what its rows must be.
Result<std::vector<std::string>> check_meta(SqliteHandle& db, const StoreSchema& schema);

/// Writes the rows of `meta`, and removes all others, in the caller's transaction. A well-formed
/// store_uuid stays.
Result<void> write_meta(SqliteHandle& db, const StoreSchema& schema);

}  // namespace cukiln
