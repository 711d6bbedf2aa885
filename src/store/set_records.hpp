// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "key/set_tree.hpp"
#include "store/sqlite_handle.hpp"
#include "store/stored_row.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// The sets of a request in a store's database, and the tree that finds the one that holds. The
/// functions that write belong into the caller's transaction.

/// The columns of a RequestRow, of a table `request` named r.
#define CUKILN_REQUEST_COLUMNS "r.only_entry, r.check128, r.canonical, r.tree"
inline constexpr int kRequestColumns = 4;

/// A row of `request`, as it was read. `only_entry`: the row of the entry where there is one only.
struct RequestRow {
  std::int64_t only_entry;
  std::string check128, canonical, tree;

  explicit RequestRow(const Query& query, int first = 0)
      : only_entry(query.column_number(first)),
        check128(query.column_bytes(first + 1)),
        canonical(query.column_bytes(first + 2)),
        tree(query.column_bytes(first + 3)) {}

  bool is_sound(const RequestDigest& digest) const noexcept {
    return view_of(checksum_of(digest, only_entry, canonical, tree)) == check128;
  }
  /// The tree, if the row is sound and this request's.
  std::optional<SetTree> sound_tree(const RequestDigest& digest, ByteView request_canonical) const {
    return canonical == request_canonical && is_sound(digest)
               ? std::optional(SetTree::from_verified(tree))
               : std::nullopt;
  }
};

/// The row of an entry. Absent: there is none.
Result<std::optional<StoredRow>> row_of(SqliteHandle& db, const SetTree::Leaf& leaf);

/// Every entry of the request, the youngest first.
Result<std::vector<SetTree::Leaf>> leaves_of(SqliteHandle& db, const RequestDigest& request);

/// The set of an entry; absent: the row is gone, or damaged.
Result<std::optional<DependencySet>> set_of(SqliteHandle& db, const RequestDigest& request,
                                            const SetTree::Leaf& leaf);

/// Whether the request's tree is sound and leads to an entry. `id`: whose row it must name, if any.
Result<bool> is_recorded(SqliteHandle& db, const RequestDigest& request, const CacheKey& key,
                         std::optional<std::uint64_t> id = std::nullopt);

/// Adds a set to the request's tree. A tree that is damaged, or not there, is made from all
/// entries.
Result<void> record_set(SqliteHandle& db, const RequestDigest& request, ByteView canonical,
                        const SetTree::Leaf& leaf, const DependencySet& set);

/// Makes the request's tree from all its entries.
Result<void> rebuild_sets(SqliteHandle& db, const RequestDigest& request, ByteView canonical);

}  // namespace cukiln
