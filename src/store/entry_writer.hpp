// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "store/cubin_store.hpp"
#include "store/entry_codec.hpp"
#include "store/eviction.hpp"
#include "store/store_accounting.hpp"
#include "store/store_session.hpp"

namespace cukiln {

/// Writes entries to an SQLite store and removes them. Threads: safe.
class EntryWriter {
 public:
  EntryWriter(StoreSession& session, StoreAccounting& accounting, Eviction& eviction)
      : session_(session), accounting_(accounting), eviction_(eviction) {}

  Result<PutOutcome> put(const StoreEntry& entry);
  Result<bool> remove(const CacheKey& key);
  /// Removes all entries and blobs, and returns their number.
  Result<std::uint64_t> remove_all();

 private:
  /// Inserts an entry together with the pending writes, in one transaction.
  Result<PutOutcome> insert(SqliteHandle& db, const StoreEntry& entry, const EncodedEntry& encoded,
                            ByteView source_text);
  Result<PutOutcome> insert(SqliteHandle& db, const StoreEntry& entry, const EncodedEntry& encoded,
                            ByteView source_text, const PendingWrites::Batch& batch);
  /// Removes the least recently used entry of a request that has more than SetTree::kMaxSets.
  Result<void> drop_excess_sets(SqliteHandle& db, const RequestDigest& request);

  StoreSession& session_;
  StoreAccounting& accounting_;
  Eviction& eviction_;
};

}  // namespace cukiln
