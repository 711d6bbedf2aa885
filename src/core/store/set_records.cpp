// SPDX-License-Identifier: Apache-2.0
#include "core/store/set_records.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/base/result.hpp"

namespace cukiln {

Checksum RequestRow::checksum(const RequestDigest& digest) const noexcept {
  return Checksummer()
      .add(view_of(digest))
      .add_number(static_cast<std::uint64_t>(only_entry))
      .add_number(static_cast<std::uint64_t>(peak_bytes))
      .add_sized(canonical)
      .add_sized(tree)
      .finish();
}

Result<std::optional<ObjectRow>> row_of(SqliteHandle& db, const SetTree::Leaf& leaf) {
  if (leaf.hint != 0) {
    Query query = db.query("SELECT " CUKILN_OBJECT_COLUMNS " FROM object o WHERE o.id=?");
    CUKILN_TRY(const bool there, query.number(static_cast<std::int64_t>(leaf.hint)).next());
    if (there) {
      ObjectRow row(query);
      if (row.object.name == ObjectName::of(leaf.key)) {
        return std::optional(std::move(row));
      }
    }
  }
  Query query = db.query("SELECT " CUKILN_OBJECT_COLUMNS " FROM object o WHERE o.name=?");
  CUKILN_TRY(const bool there, query.blob(view_of(leaf.key)).next());
  return there ? std::optional(ObjectRow(query)) : std::nullopt;
}

Result<std::vector<SetTree::Leaf>> leaves_of(SqliteHandle& db, const RequestDigest& request) {
  std::vector<SetTree::Leaf> leaves;
  Query query = db.query("SELECT id, name FROM object WHERE request=? ORDER BY id DESC");
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
  const auto encoded =
      row && row->request == view_of(request) ? set_in_details(row->object.details) : std::nullopt;
  if (!encoded || cache_key_of(request, *encoded) != leaf.key) {
    return std::optional<DependencySet>();
  }
  auto set = DependencySet::parse(*encoded);
  return set ? std::optional(*std::move(set)) : std::nullopt;
}

Result<std::optional<RequestRow>> request_of(SqliteHandle& db, const RequestDigest& request) {
  Query query = db.query("SELECT " CUKILN_REQUEST_COLUMNS " FROM request r WHERE r.digest=?");
  CUKILN_TRY(const bool there, query.blob(view_of(request)).next());
  if (!there) {
    return std::optional<RequestRow>();
  }
  RequestRow row(query);
  return row.is_sound(request) && SetTree::parse(row.tree) ? std::optional(std::move(row))
                                                           : std::nullopt;
}

bool leads_to(const SetTree& tree, const CacheKey& key) {
  const auto leaves = tree.leaves();
  return std::any_of(leaves.begin(), leaves.end(),
                     [&](const SetTree::Leaf& leaf) { return leaf.key == key; });
}

Result<void> record_set(SqliteHandle& db, const RequestDigest& request, RequestRow row,
                        const SetTree::Leaf& leaf, const DependencySet& set) {
  assert(db.in_transaction());
  std::optional<Error> failed;  // the first error of the database: the tree is not written
  SetTree tree = SetTree::from_verified(row.tree);
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
  row.only_entry = leaves.size() == 1 ? static_cast<std::int64_t>(leaves.front().hint) : 0;
  row.tree = tree.encoded();
  const Checksum check = row.checksum(request);
  return db
      .query(
          "INSERT INTO request(digest, only_entry, peak_bytes, check128, canonical, tree) "
          "VALUES(?,?,?,?,?,?) ON CONFLICT(digest) DO UPDATE SET only_entry=excluded.only_entry, "
          "peak_bytes=excluded.peak_bytes, check128=excluded.check128, "
          "canonical=excluded.canonical, tree=excluded.tree")
      .blob(view_of(request))
      .number(row.only_entry)
      .number(row.peak_bytes)
      .blob(view_of(check))
      .blob(row.canonical)
      .blob(row.tree)
      .run();
}

Result<bool> remove_request(SqliteHandle& db, const RequestDigest& request) {
  assert(db.in_transaction());
  CUKILN_CHECK(db.query("DELETE FROM object WHERE request=?").blob(view_of(request)).run());
  const int entries = db.changes();
  CUKILN_CHECK(db.query("DELETE FROM request WHERE digest=?").blob(view_of(request)).run());
  return entries + db.changes() > 0;
}

}  // namespace cukiln
