// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/store/cubin_store.hpp"
#include "core/store/object_rows.hpp"
#include "core/store/store_accounting.hpp"
#include "core/store/store_session.hpp"

namespace cukiln {

/// Looks up the objects of an SQLite store: entries by request and by key, blobs by name. What
/// fails its check is a miss: a damaged object is removed alone, a damaged request with its
/// entries. The members are those of ObjectTier. Threads: safe.
class SqliteLookup {
 public:
  using Purpose = ObjectTier::Purpose;

  SqliteLookup(StoreSession& session, StoreAccounting& accounting)
      : session_(session), accounting_(accounting) {}

  Lookup find(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
              Purpose purpose);
  Result<SetTree> find_sets(const RequestDigest& request, ByteView request_canonical);
  Result<std::vector<RecordedSet>> list_sets(const RequestDigest& request);
  Lookup get(const CacheKey& key);
  BlobLookup get(const BlobName& name);
  Lookup peek(const CacheKey& key);
  BlobLookup peek(const BlobId& id);
  /// Returns the signers of a blob; nothing if there is none. Does not count as a use.
  Result<std::optional<std::string>> signer_of(const BlobName& name);

 private:
  /// Finds the entry whose set holds, without counting.
  Lookup search(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
                Purpose purpose);
  /// Returns the entry that a set led to if it is sound.
  std::optional<StoreEntry> usable(Checked<StoreEntry> read, SetCheck& check, Purpose purpose);
  /// Gets or peeks an object, which `query` reads.
  template <class T, class Read>
  Result<std::optional<T>> look_up(const Read& query, Purpose purpose);
  /// Completes an entry by what its row does not say: whose the store is.
  void complete(std::optional<StoreEntry>& entry) const;
  /// Counts the result of a use.
  Lookup counted(Lookup found);

  StoreSession& session_;
  StoreAccounting& accounting_;
};

}  // namespace cukiln
