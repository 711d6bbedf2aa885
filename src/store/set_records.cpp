// SPDX-License-Identifier: Apache-2.0
#include "store/set_records.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/result.hpp"

namespace cukiln {

Checksum checksum_of(const RequestDigest& digest, std::int64_t only_entry, ByteView canonical,
                     ByteView tree) noexcept {
  return Checksummer()
      .add(view_of(digest))
      .add_number(static_cast<std::uint64_t>(only_entry))
      .add_sized(canonical)
      .add_sized(tree)
      .finish();
}

Result<std::optional<StoredRow>> row_of(SqliteHandle& db, const SetTree::Leaf& leaf) {
  if (leaf.hint != 0) {
    Query query = db.query("SELECT " CUKILN_ENTRY_COLUMNS " FROM entry e WHERE e.id=?");
    CUKILN_TRY(const bool there, query.number(static_cast<std::int64_t>(leaf.hint)).next());
    if (there) {
      StoredRow row(query);
      if (row.key == view_of(leaf.key)) {
        return std::optional(std::move(row));
      }
    }
  }
  Query query = db.query("SELECT " CUKILN_ENTRY_COLUMNS " FROM entry e WHERE e.key=?");
  CUKILN_TRY(const bool there, query.blob(view_of(leaf.key)).next());
  return there ? std::optional(StoredRow(query)) : std::nullopt;
}

Result<std::vector<SetTree::Leaf>> leaves_of(SqliteHandle& db, const RequestDigest& request) {
  std::vector<SetTree::Leaf> leaves;
  Query query = db.query("SELECT id, key FROM entry WHERE request=? ORDER BY id DESC");
  query.blob(view_of(request));
  for (;;) {
    CUKILN_TRY(const bool there, query.next());
    if (!there) {
      return leaves;
    }
    leaves.push_back({digest_from<CacheKey>(query.column_bytes(1)),
                      static_cast<std::uint64_t>(query.column_number(0))});
  }
}

Result<std::optional<DependencySet>> set_of(SqliteHandle& db, const RequestDigest& request,
                                            const SetTree::Leaf& leaf) {
  CUKILN_TRY(const auto row, row_of(db, leaf));
  if (!row || row->request != view_of(request) ||
      cache_key_of(request, row->dependencies) != leaf.key) {
    return std::optional<DependencySet>();
  }
  auto set = DependencySet::parse(row->dependencies);
  return set ? std::optional(*std::move(set)) : std::nullopt;
}

Result<std::optional<SetTree>> tree_of(SqliteHandle& db, const RequestDigest& request) {
  Query query = db.query("SELECT " CUKILN_REQUEST_COLUMNS " FROM request r WHERE r.digest=?");
  CUKILN_TRY(const bool there, query.blob(view_of(request)).next());
  if (!there) {
    return std::optional<SetTree>();
  }
  const RequestRow row(query);
  return row.is_sound(request) ? SetTree::parse(row.tree) : std::nullopt;
}

bool leads_to(const SetTree& tree, const CacheKey& key) {
  const auto leaves = tree.leaves();
  return std::any_of(leaves.begin(), leaves.end(),
                     [&](const SetTree::Leaf& leaf) { return leaf.key == key; });
}

Result<void> record_set(SqliteHandle& db, const RequestDigest& request, ByteView canonical,
                        SetTree tree, const SetTree::Leaf& leaf, const DependencySet& set) {
  assert(db.in_transaction());
  std::optional<Error> failed;  // the first error of the database: the tree is not written
  tree.insert(leaf, set, [&](const SetTree::Leaf& other) -> std::optional<DependencySet> {
    if (failed) {
      return std::nullopt;
    }
    auto loaded = set_of(db, request, other);
    if (!loaded) {
      failed = loaded.error();
      return std::nullopt;
    }
    return *std::move(loaded);
  });
  if (failed) {
    return *failed;
  }
  const auto leaves = tree.leaves();
  const std::int64_t only = leaves.size() == 1 ? static_cast<std::int64_t>(leaves.front().hint) : 0;
  const Checksum check = checksum_of(request, only, canonical, tree.encoded());
  return db
      .query(
          "INSERT INTO request(digest, only_entry, check128, canonical, tree) VALUES(?,?,?,?,?) "
          "ON CONFLICT(digest) DO UPDATE SET only_entry=excluded.only_entry, "
          "check128=excluded.check128, canonical=excluded.canonical, tree=excluded.tree")
      .blob(view_of(request))
      .number(only)
      .blob(view_of(check))
      .blob(canonical)
      .blob(tree.encoded())
      .run();
}

Result<bool> remove_request(SqliteHandle& db, const RequestDigest& request) {
  assert(db.in_transaction());
  CUKILN_CHECK(db.query("DELETE FROM entry WHERE request=?").blob(view_of(request)).run());
  const int entries = db.changes();
  CUKILN_CHECK(db.query("DELETE FROM request WHERE digest=?").blob(view_of(request)).run());
  return entries + db.changes() > 0;
}

}  // namespace cukiln
