// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "store/cubin_store.hpp"
#include "store/sqlite_handle.hpp"
#include "store/stored_row.hpp"

namespace cukiln {

Error another_request(const CacheKey& key);

/// The entry of a row with its cubin, checked in full. `request`: what `request_canonical` hashes
/// to. Absent and `damage` engaged: the row cannot be believed.
Lookup read_entry(SqliteHandle& db, const CacheKey& key, const StoredRow& row,
                  const RequestDigest& request, ByteView request_canonical,
                  std::optional<Error>* damage);

/// The same by its key. Absent and `damage` not engaged: there is no row.
Lookup read_entry(SqliteHandle& db, const CacheKey& key, std::optional<Error>* damage);

}  // namespace cukiln
