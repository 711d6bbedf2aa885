// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "store/cubin_store.hpp"
#include "store/store_accounting.hpp"
#include "store/store_session.hpp"
#include "store/stored_row.hpp"

namespace cukiln {

/// Looks up entries of an SQLite store by request and by key. The public members are those of
/// CubinStore. Threads: safe.
class SqliteLookup {
 public:
  using Purpose = CubinStore::Purpose;

  SqliteLookup(StoreSession& session, StoreAccounting& accounting)
      : session_(session), accounting_(accounting) {}

  Lookup find(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
              Purpose purpose);
  Result<SetTree> find_sets(const RequestDigest& request, ByteView request_canonical);
  Result<std::vector<RecordedSet>> list_sets(const RequestDigest& request);
  Lookup get(const CacheKey& key);
  Lookup peek(const CacheKey& key);

 private:
  /// One lookup by request.
  struct Search {
    const RequestDigest& request;
    ByteView request_canonical;
    SetCheck& check;
    Purpose purpose;
    bool is_row_missing = false;  ///< set if the tree led to an entry that has no row
  };
  /// Returns the entry of a leaf if its set holds. `row` is the row that was read with the request,
  /// if any; its id is 0 if the request had none.
  Lookup read_leaf(Search& search, const SetTree::Leaf& leaf, std::optional<StoredRow> row);
  /// The origin of an entry for its reader: what another user's store made came from elsewhere.
  Origin origin_of(std::int64_t origin) const noexcept;
  /// Completes an entry by what its row does not say: whose the store is.
  Lookup with_owner(Lookup found) const;
  /// Checks all entries of a request whose row is damaged, and has the row repaired.
  Lookup find_without_tree(Search& search);
  /// Has the row of a request that has no entries removed.
  Result<void> repair_if_stray(const Search& search);
  /// Removes the row of a leaf if only its key is damaged. True if it was.
  Result<bool> drop_damaged_key(const Search& search, const SetTree::Leaf& leaf);
  /// True if the dependency set of a damaged entry hashes to its key.
  bool is_set_sound(const CacheKey& key);

  StoreSession& session_;
  StoreAccounting& accounting_;
};

}  // namespace cukiln
