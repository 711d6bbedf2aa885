// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "base/hasher.hpp"
#include "store/cubin_store.hpp"
#include "store/entry_codec.hpp"
#include "store/sqlite_handle.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

// Values at or above these are damage.
inline constexpr std::int64_t kMaxLastUsedS = std::int64_t{1} << 32;  ///< in the year 2106
inline constexpr std::int64_t kMaxHits = std::int64_t{1} << 40;
inline constexpr std::int64_t kMaxCount = std::int64_t{1} << 60;  ///< of a row of `counter`

/// True if hits and a last use are possible. They change, so no checksum covers them.
constexpr bool are_possible_uses(std::int64_t hits, std::int64_t last_used_s) noexcept {
  return hits >= 0 && hits < kMaxHits && last_used_s >= 0 && last_used_s < kMaxLastUsedS;
}

/// Adds counts, to at most kMaxCount: clients of cukilnd report any.
constexpr std::int64_t sum_of_counts(std::int64_t a, std::int64_t b) noexcept {
  return std::min(std::min(a, kMaxCount) + std::min(b, kMaxCount), kMaxCount);
}

/// The columns of a StoredRow, of a table `entry` named e.
#define CUKILN_ENTRY_COLUMNS                                                                \
  "e.id, e.key, e.request, e.check128, e.dependencies, e.cubin_id, e.cubin_bytes, "         \
  "e.dependency_count, e.kernels, e.log, e.name, e.source, e.target, e.flags, e.compiler, " \
  "e.signer, e.origin, e.compile_us, e.created_s, e.last_used_s, e.hits"
inline constexpr int kEntryColumns = 21;

/// A row of `entry` as it was read, not checked.
struct StoredRow {
  std::int64_t id;  ///< 0 if an outer join found no row
  std::string key, request, check128, dependencies;
  std::int64_t cubin_id, cubin_bytes, dependency_count;
  std::string kernels, log, name, source, target, flags, compiler, signer;
  std::int64_t origin, compile_us, created_s, last_used_s, hits;

  /// Reads the columns that begin with `first`.
  explicit StoredRow(const Query& query, int first = 0)
      : id(query.column_number(first)),
        key(query.column_bytes(first + 1)),
        request(query.column_bytes(first + 2)),
        check128(query.column_bytes(first + 3)),
        dependencies(query.column_bytes(first + 4)),
        cubin_id(query.column_number(first + 5)),
        cubin_bytes(query.column_number(first + 6)),
        dependency_count(query.column_number(first + 7)),
        kernels(query.column_bytes(first + 8)),
        log(query.column_bytes(first + 9)),
        name(query.column_bytes(first + 10)),
        source(query.column_bytes(first + 11)),
        target(query.column_bytes(first + 12)),
        flags(query.column_bytes(first + 13)),
        compiler(query.column_bytes(first + 14)),
        signer(query.column_bytes(first + 15)),
        origin(query.column_number(first + 16)),
        compile_us(query.column_number(first + 17)),
        created_s(query.column_number(first + 18)),
        last_used_s(query.column_number(first + 19)),
        hits(query.column_number(first + 20)) {}

  /// Returns the parts of the entry. The image and the canonical request are in other tables.
  EntryParts parts(ByteView request_canonical, ByteView image) const {
    return {request_canonical, dependencies, image, kernels, log, name, source, target, flags,
            compiler,          signer,       origin};
  }
};

/// Returns `entry.check128`, over all columns of `entry` that do not change, and the cubin.
Checksum checksum_of(const CacheKey& key, const RequestDigest& request, const EntryParts& parts,
                     std::int64_t compile_us, std::int64_t created_s,
                     std::int64_t dependency_count) noexcept;

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
