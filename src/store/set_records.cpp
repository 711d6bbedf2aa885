// SPDX-License-Identifier: Apache-2.0
#include "store/set_records.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/result.hpp"

namespace cukiln {

Checksum checksum_of(const CacheKey& key, const RequestDigest& request, const EntryParts& parts,
                     std::int64_t compile_us, std::int64_t created_s,
                     std::int64_t dependency_count) noexcept {
  const auto& [canonical, dependencies, image, kernels, log, name, source, target, flags, compiler,
               signer, origin] =
      parts;  // the canonical request has a row and a checksum of its own
  Checksummer sum;
  sum.add(view_of(key)).add(view_of(request));
  for (const ByteView part :
       {dependencies, image, kernels, log, name, source, target, flags, compiler, signer}) {
    sum.add_sized(part);
  }
  for (const std::int64_t number : {origin, compile_us, created_s, dependency_count}) {
    sum.add_number(static_cast<std::uint64_t>(number));
  }
  return sum.finish();
}

Checksum checksum_of(const RequestDigest& digest, std::int64_t only_entry, ByteView canonical,
                     ByteView tree) noexcept {
  return Checksummer()
      .add(view_of(digest))
      .add_number(static_cast<std::uint64_t>(only_entry))
      .add_sized(canonical)
      .add_sized(tree)
      .finish();
}

namespace {

/// Returns the tree of a request; absent if there is none yet, or it is damaged.
Result<std::optional<SetTree>> tree_of(SqliteHandle& db, const RequestDigest& request,
                                       ByteView canonical) {
  Query query = db.query("SELECT " CUKILN_REQUEST_COLUMNS " FROM request r WHERE r.digest=?");
  CUKILN_TRY(const bool there, query.blob(view_of(request)).next());
  return there ? RequestRow(query).sound_tree(request, canonical) : std::nullopt;
}

Result<void> write_request(SqliteHandle& db, const RequestDigest& request, ByteView canonical,
                           const SetTree& tree) {
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

}  // namespace

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

Result<bool> is_recorded(SqliteHandle& db, const RequestDigest& request, const CacheKey& key,
                         std::optional<std::uint64_t> id) {
  Query query = db.query("SELECT " CUKILN_REQUEST_COLUMNS " FROM request r WHERE r.digest=?");
  CUKILN_TRY(const bool there, query.blob(view_of(request)).next());
  if (!there) {
    return false;
  }
  const RequestRow row(query);
  const auto tree = row.is_sound(request) ? SetTree::parse(row.tree) : std::nullopt;
  const auto leaves = tree ? tree->leaves() : std::vector<SetTree::Leaf>();
  return std::any_of(leaves.begin(), leaves.end(), [&](const SetTree::Leaf& leaf) {
    return leaf.key == key && (!id || leaf.hint == 0 || leaf.hint == *id);
  });
}

/// Inserts sets into a tree, and keeps the first error of the database.
class TreeBuilder {
 public:
  TreeBuilder(SqliteHandle& db, const RequestDigest& request) : db_(db), request_(request) {}

  Result<void> insert(SetTree& tree, const SetTree::Leaf& leaf, const DependencySet& set) {
    tree.insert(leaf, set, [this](const SetTree::Leaf& other) { return load(other); });
    return failed_ ? Result<void>(*failed_) : Result<void>();
  }
  Result<void> insert_all(SetTree& tree) {
    CUKILN_TRY(const auto leaves, leaves_of(db_, request_));
    for (auto leaf = leaves.rbegin(); leaf != leaves.rend(); ++leaf) {
      const auto set = load(*leaf);
      if (failed_) {
        return *failed_;
      }
      if (set) {
        CUKILN_CHECK(insert(tree, *leaf, *set));
      }
    }
    return {};
  }

 private:
  std::optional<DependencySet> load(const SetTree::Leaf& leaf) {
    if (failed_) {
      return std::nullopt;  // the tree is not written
    }
    auto loaded = set_of(db_, request_, leaf);
    if (!loaded) {
      failed_ = loaded.error();
      return std::nullopt;
    }
    return *std::move(loaded);
  }

  SqliteHandle& db_;
  const RequestDigest& request_;
  std::optional<Error> failed_;
};

Result<void> record_set(SqliteHandle& db, const RequestDigest& request, ByteView canonical,
                        const SetTree::Leaf& leaf, const DependencySet& set) {
  assert(db.in_transaction());
  CUKILN_TRY(std::optional<SetTree> tree, tree_of(db, request, canonical));
  TreeBuilder builder(db, request);
  if (!tree) {
    tree.emplace();
    CUKILN_CHECK(builder.insert_all(*tree));
  }
  CUKILN_CHECK(builder.insert(*tree, leaf, set));
  return write_request(db, request, canonical, *tree);
}

Result<void> rebuild_sets(SqliteHandle& db, const RequestDigest& request, ByteView canonical) {
  assert(db.in_transaction());
  SetTree tree;
  CUKILN_CHECK(TreeBuilder(db, request).insert_all(tree));
  if (tree.empty()) {
    return db.query("DELETE FROM request WHERE digest=?").blob(view_of(request)).run();
  }
  return write_request(db, request, canonical, tree);
}

Result<void> remove_stray_requests(SqliteHandle& db) {
  assert(db.in_transaction());
  return db
      .query(
          "DELETE FROM request WHERE NOT EXISTS "
          "(SELECT 1 FROM entry WHERE entry.request=request.digest)")
      .run();
}

Result<std::optional<CacheKey>> damaged_key_of(SqliteHandle& db, const RequestDigest& request,
                                               const SetTree::Leaf& leaf) {
  Query query = db.query("SELECT e.key, e.dependencies FROM entry e WHERE e.id=? AND e.request=?");
  query.number(static_cast<std::int64_t>(leaf.hint)).blob(view_of(request));
  CUKILN_TRY(const bool there, query.next());
  const bool is_damaged = there && query.column_bytes(0) != view_of(leaf.key) &&
                          cache_key_of(request, query.column_bytes(1)) == leaf.key;
  return is_damaged ? std::optional(digest_from<CacheKey>(query.column_bytes(0))) : std::nullopt;
}

}  // namespace cukiln
