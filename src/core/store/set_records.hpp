// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/key/set_tree.hpp"
#include "core/store/object_rows.hpp"
#include "core/store/sqlite_handle.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

// The sets of a request in a store's database, and the tree that leads to the one that holds.
// Functions that write do so in the caller's transaction.

/// The columns of a RequestRow, of a table `request` named r.
#define CUKILN_REQUEST_COLUMNS "r.only_entry, r.peak_bytes, r.check128, r.canonical, r.tree"
inline constexpr int kRequestColumns = 5;

/// A row of `request` as it was read, not checked.
struct RequestRow {
  std::int64_t only_entry;  ///< the row of the entry if there is one only, else 0
  std::int64_t peak_bytes;  ///< the most memory that a compile of it used here; 0: not known
  std::string check128, canonical, tree;

  RequestRow() = default;
  explicit RequestRow(const Query& query, int first = 0)
      : only_entry(query.column_number(first)),
        peak_bytes(query.column_number(first + 1)),
        check128(query.column_bytes(first + 2)),
        canonical(query.column_bytes(first + 3)),
        tree(query.column_bytes(first + 4)) {}

  /// Returns `check128`, over the other columns.
  Checksum checksum(const RequestDigest& digest) const noexcept;
  bool is_sound(const RequestDigest& digest) const noexcept {
    return view_of(checksum(digest)) == check128;
  }
  /// Returns the tree if the row is sound and belongs to this request.
  std::optional<SetTree> sound_tree(const RequestDigest& digest, ByteView request_canonical) const {
    return canonical == request_canonical && is_sound(digest)
               ? std::optional(SetTree::from_verified(tree))
               : std::nullopt;
  }
};

/// Returns the row of an entry; absent if there is none.
Result<std::optional<ObjectRow>> row_of(SqliteHandle& db, const SetTree::Leaf& leaf);

/// Returns all entries of a request, the youngest first.
Result<std::vector<SetTree::Leaf>> leaves_of(SqliteHandle& db, const RequestDigest& request);

/// Returns the set of an entry; absent if the row was removed or is damaged.
Result<std::optional<DependencySet>> set_of(SqliteHandle& db, const RequestDigest& request,
                                            const SetTree::Leaf& leaf);

/// Returns the row of a request; absent if there is none, or it is damaged.
Result<std::optional<RequestRow>> request_of(SqliteHandle& db, const RequestDigest& request);

/// True if the tree leads to the entry.
bool leads_to(const SetTree& tree, const CacheKey& key);

/// Adds a set to the request's tree, and writes the row of the request. `row` has the tree and the
/// peak so far.
Result<void> record_set(SqliteHandle& db, const RequestDigest& request, RequestRow row,
                        const SetTree::Leaf& leaf, const DependencySet& set);

/// Removes the row of a request, if there is one, and all its entries. False if there were none.
Result<bool> remove_request(SqliteHandle& db, const RequestDigest& request);

}  // namespace cukiln
