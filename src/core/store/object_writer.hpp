// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/store/cubin_store.hpp"
#include "core/store/eviction.hpp"
#include "core/store/object_codec.hpp"
#include "core/store/store_accounting.hpp"
#include "core/store/store_session.hpp"

namespace cukiln {

/// Writes entries and blobs to an SQLite store and removes them. Threads: safe.
class ObjectWriter {
 public:
  ObjectWriter(StoreSession& session, StoreAccounting& accounting, Eviction& eviction)
      : session_(session), accounting_(accounting), eviction_(eviction) {}

  Result<PutOutcome> put(const StoreEntry& entry);
  /// Replaces the blob of this name. Errors: invalid_argument (larger than the store's cap), io,
  /// timeout.
  Result<PutOutcome> put(const StoreBlob& blob);
  Result<bool> remove(const ObjectName& name);
  /// Removes all entries and blobs, and returns their number.
  Result<std::uint64_t> remove_all();

 private:
  /// Inserts an entry together with the pending writes, in one transaction.
  Result<PutOutcome> insert(SqliteHandle& db, const StoreEntry& entry, Object& object,
                            ByteView source_text);
  Result<PutOutcome> insert(SqliteHandle& db, const StoreEntry& entry, Object& object,
                            ByteView source_text, const PendingWrites::Batch& batch);
  Result<PutOutcome> insert(SqliteHandle& db, Object& object);
  /// Removes the least recently used entry of a request that has more than SetTree::kMaxSets.
  Result<void> drop_excess_sets(SqliteHandle& db, const RequestDigest& request);

  StoreSession& session_;
  StoreAccounting& accounting_;
  Eviction& eviction_;
};

}  // namespace cukiln
