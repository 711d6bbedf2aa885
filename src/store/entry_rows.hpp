// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "store/cubin_store.hpp"
#include "store/sqlite_handle.hpp"
#include "store/stored_row.hpp"

namespace cukiln {

/// An entry as it was read: it is sound or damaged, or there is none.
struct CheckedEntry {
  CacheKey key;
  std::optional<StoreEntry> sound;
  std::optional<Error> damage;
};

/// Checks a row with its cubin completely, and returns the entry. `request` is the digest of
/// `canonical`, and `output` what its compile returns. Errors: corrupt.
Result<StoreEntry> check_row(const StoredRow& row, const RequestDigest& request, ByteView canonical,
                             OutputKind output, SharedBytes image);

/// Reads the cubin of a row and checks the whole entry, which must be that of `key`. `request` is
/// the digest of `canonical`.
Result<CheckedEntry> read_entry(SqliteHandle& db, const CacheKey& key, const StoredRow& row,
                                const RequestDigest& request, ByteView canonical);

/// Reads the entry of a key and checks it with the request that its row names.
Result<CheckedEntry> read_entry(SqliteHandle& db, const CacheKey& key);

/// Removes an entry; a trigger removes its cubin, and its request with the last entry. False if
/// there was no such entry.
Result<bool> remove_entry(SqliteHandle& db, const CacheKey& key);

/// Removes an entry whose row may name the cubin of another, which stays.
Result<void> remove_damaged_entry(SqliteHandle& db, const CacheKey& key);

}  // namespace cukiln
