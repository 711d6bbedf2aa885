// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "base/hasher.hpp"
#include "store/sqlite_handle.hpp"

#include <cukiln/blob_store.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// The name of a blob, and the hash of it by which its row is found.
struct BlobName {
  ByteView kind, key;
  BlobId id;

  /// Errors: invalid_argument (a kind or a key that no blob may have).
  static Result<BlobName> make(ByteView kind, ByteView key);
  /// Does not check the limits.
  static BlobId id_of(ByteView kind, ByteView key) noexcept;
};

/// The columns of a BlobRow, of the table `blob`.
#define CUKILN_BLOB_COLUMNS \
  "id, digest, kind, key, created_s, last_used_s, hits, bytes, signer, check128"
inline constexpr int kBlobColumns = 10;

/// A row of `blob` without its bytes, as it was read, not checked.
struct BlobRow {
  std::int64_t id;
  std::string digest, kind, key;
  std::int64_t created_s, last_used_s, hits, bytes;
  std::string signer, check128;

  explicit BlobRow(const Query& query);
  /// True if these bytes are the row's, the row is that of its digest, and its uses are possible.
  bool is_sound(ByteView data) const;
  BlobSummary summary() const;
};

/// Returns `blob.check128`, over all columns that do not change.
Checksum blob_checksum(ByteView kind, ByteView key, std::int64_t created_s, ByteView signer,
                       ByteView data) noexcept;

/// Removes a blob. False if there was none.
Result<bool> remove_blob(SqliteHandle& db, const BlobId& id);

}  // namespace cukiln
