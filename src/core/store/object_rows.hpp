// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "core/base/hasher.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/object_codec.hpp"
#include "core/store/sqlite_handle.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

// Values at or above these are damage.
inline constexpr std::int64_t kMaxLastUsedS = std::int64_t{1} << 32;  ///< in the year 2106
inline constexpr std::int64_t kMaxHits = std::int64_t{1} << 40;
inline constexpr std::int64_t kMaxCount = std::int64_t{1} << 60;  ///< of a row of `counter`

/// Adds counts, to at most kMaxCount: clients of cukilnd report any.
constexpr std::int64_t sum_of_counts(std::int64_t a, std::int64_t b) noexcept {
  return std::min(std::min(a, kMaxCount) + std::min(b, kMaxCount), kMaxCount);
}

/// The columns of an ObjectRow, of a table `object` named o.
#define CUKILN_OBJECT_COLUMNS                                                                \
  "o.id, o.name, o.kind, o.request, o.created_s, o.last_used_s, o.hits, o.bytes, o.origin, " \
  "o.check128, o.signer, o.summary, o.details"
inline constexpr int kObjectColumns = 13;

/// A row of `object` as it was read, not checked. The members `request` and `data` of the object
/// are in other tables.
struct ObjectRow {
  std::int64_t id;  ///< 0 if an outer join found no row
  std::string request, check128;
  std::int64_t last_used_s, hits, bytes, origin;
  Object object;

  /// Reads the columns that begin with `first`.
  explicit ObjectRow(const Query& query, int first = 0);

  /// Checks that the row and `object.data` are what was put under this name, and that its uses are
  /// possible. Errors: corrupt.
  Result<void> check(const ObjectName& name) const;
};

/// Returns `object.check128`, over all columns that do not change, and the payload.
Checksum checksum_of(const Object& object, ByteView request) noexcept;

/// Reads the payload of a row into its object.
Result<void> read_data(SqliteHandle& db, ObjectRow& row);

/// An object as it was read: it is sound or damaged, or there is none.
template <class T>
struct Checked {
  ObjectName name;
  std::optional<T> sound;
  std::optional<Error> damage;
};

/// Reads the payload of a row and checks the whole entry, which must be that of `key`. `request` is
/// the digest of `canonical`.
Result<Checked<StoreEntry>> read_entry(SqliteHandle& db, const CacheKey& key, ObjectRow row,
                                       const RequestDigest& request, ByteView canonical);
/// Reads the entry of a key and checks it with the request that its row names.
Result<Checked<StoreEntry>> read_entry(SqliteHandle& db, const CacheKey& key);
Result<Checked<StoreBlob>> read_blob(SqliteHandle& db, const BlobId& id);

/// Inserts an object that is not there, in the caller's transaction, and returns its id.
/// `source_text` is compressed.
Result<std::int64_t> insert_object(SqliteHandle& db, const Object& object, ByteView request,
                                   ByteView source_text, std::int64_t now_s);
/// Removes an object; a trigger removes its payload, and a request with its last entry. False if
/// there was no such object.
Result<bool> remove_object(SqliteHandle& db, const ObjectName& name);

}  // namespace cukiln
