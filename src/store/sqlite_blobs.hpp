// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "store/blob_rows.hpp"
#include "store/eviction.hpp"
#include "store/store_accounting.hpp"
#include "store/store_blob.hpp"
#include "store/store_session.hpp"

namespace cukiln {

/// The blobs of an SQLite store, in a table beside its entries. Threads: safe.
class SqliteBlobs {
 public:
  SqliteBlobs(StoreSession& session, StoreAccounting& accounting, Eviction& eviction)
      : session_(session), accounting_(accounting), eviction_(eviction) {}

  /// Counts as a use. A damaged blob is removed, counted and reported absent.
  Result<std::optional<StoreBlob>> get(const BlobName& name);
  /// Does not count as a use. Errors: corrupt (damaged).
  Result<std::optional<StoreBlob>> peek(const BlobId& id);
  /// Returns the signers of a blob; nothing if there is none. Does not count as a use.
  Result<std::optional<std::string>> signer_of(const BlobName& name);
  /// Replaces the blob of this name. Errors: invalid_argument (larger than the store's cap), io,
  /// timeout.
  Result<void> put(const BlobName& name, ByteView bytes, ByteView signer = {});
  Result<bool> remove(const BlobId& id);
  /// The blobs of a kind; of every kind, if it is empty.
  Result<std::vector<BlobSummary>> list(ByteView kind);

  struct Totals {
    std::uint64_t blobs = 0, bytes = 0;
  };
  Result<Totals> totals();

 private:
  Result<void> insert(SqliteHandle& db, const BlobName& name, ByteView bytes, ByteView signer);

  StoreSession& session_;
  StoreAccounting& accounting_;
  Eviction& eviction_;
};

}  // namespace cukiln
