// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "store/cubin_store.hpp"
#include "store/sqlite_handle.hpp"
#include "store/stored_row.hpp"

namespace cukiln {

/// The damage of an entry whose row names another request than the one that led to it.
Error wrong_request_error(const CacheKey& key);

/// Reads the cubin of a row and checks the whole entry. `request` is the digest of
/// `request_canonical`. If the row is damaged, the result is absent and `damage` is set.
Lookup read_entry(SqliteHandle& db, const CacheKey& key, const StoredRow& row,
                  const RequestDigest& request, ByteView request_canonical,
                  std::optional<Error>* damage);

/// The same for the row of a key. Absent without `damage` means that there is no row.
Lookup read_entry(SqliteHandle& db, const CacheKey& key, std::optional<Error>* damage);

}  // namespace cukiln
