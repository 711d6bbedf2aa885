// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "store/cubin_store.hpp"
#include "store/store_accounting.hpp"
#include "store/store_session.hpp"
#include "store/stored_row.hpp"

namespace cukiln {

/// Finds entries of an SQLite store: by request, among all its sets, and by key. Members are those
/// of CubinStore. Threads: safe.
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
  Lookup use_row(const RequestDigest& request, ByteView request_canonical,
                 const SetTree::Leaf& leaf, std::optional<StoredRow> row, SetCheck& check,
                 Purpose purpose);
  Lookup find_among_all(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
                        Purpose purpose);
  bool is_set_sound(const CacheKey& key);

  StoreSession& session_;
  StoreAccounting& accounting_;
};

}  // namespace cukiln
