// SPDX-License-Identifier: Apache-2.0
#include "core/store/sqlite_lookup.hpp"

#include <type_traits>
#include <utility>

#include "core/base/result.hpp"
#include "core/key/compile_request.hpp"
#include "core/store/set_records.hpp"

namespace cukiln {

namespace {

/// A request as it was read, and its entry if it has one only.
struct FoundRequest {
  bool there = false;
  std::optional<SetTree> tree;  ///< if the row is sound
  std::optional<Checked<StoreEntry>> only;
};

Result<FoundRequest> read_request(SqliteHandle& db, const RequestDigest& request,
                                  ByteView canonical) {
  FoundRequest found;
  Query query = db.query("SELECT " CUKILN_REQUEST_COLUMNS ", " CUKILN_OBJECT_COLUMNS
                         " FROM request r LEFT JOIN object o ON o.id=r.only_entry"
                         " WHERE r.digest=?");
  CUKILN_TRY(found.there, query.blob(view_of(request)).next());
  if (!found.there) {
    return found;
  }
  found.tree = RequestRow(query).sound_tree(request, canonical);
  ObjectRow only(query, kRequestColumns);
  // The number of an entry that was evicted may be that of another object by now.
  if (found.tree && only.id != 0 && only.request == view_of(request)) {
    const CacheKey key{only.object.name.bytes};
    CUKILN_TRY(found.only, read_entry(db, key, std::move(only), request, canonical));
  }
  return found;
}

Result<Checked<StoreEntry>> read_leaf(SqliteHandle& db, const SetTree::Leaf& leaf,
                                      const RequestDigest& request, ByteView canonical) {
  CUKILN_TRY(auto row, row_of(db, leaf));
  return row ? read_entry(db, leaf.key, *std::move(row), request, canonical)
             : Checked<StoreEntry>{ObjectName::of(leaf.key), {}, {}};
}

}  // namespace

Lookup SqliteLookup::find(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
                          Purpose purpose) {
  Lookup found = search(request, request_canonical, check, purpose);
  return purpose == Purpose::use ? counted(std::move(found)) : found;
}

Lookup SqliteLookup::search(const RequestDigest& request, ByteView request_canonical,
                            SetCheck& check, Purpose purpose) {
  CUKILN_TRY(FoundRequest found, session_.read([&](SqliteHandle& db) {
    return read_request(db, request, request_canonical);
  }));
  std::optional<StoreEntry> miss;
  if (!found.there) {
    return miss;
  }
  if (!found.tree) {
    const bool is_damaged = CompileRequest::digest_of(request_canonical) == request;
    if (is_damaged) {  // else the caller's arguments do not match
      check.lost(SetCheck::Loss::damaged);
    }
    if (is_damaged && purpose == Purpose::use) {
      accounting_.drop_damaged(
          request, make_error(ErrorCode::corrupt, "the request {} does not match its checksum",
                              request.hex()));
    }
    return miss;
  }
  if (found.only) {
    auto entry = usable(*std::move(found.only), check, purpose);
    return entry && check.holds(entry->dependencies, entry->may_trust_toolkit()) ? std::move(entry)
                                                                                 : miss;
  }
  // Reads the cubin with the set: one that the tree leads to almost always holds.
  return find_in_sets(*found.tree, request_canonical, check,
                      [&](const SetTree::Leaf& leaf) -> Lookup {
                        CUKILN_TRY(auto read, session_.read([&](SqliteHandle& db) {
                          return read_leaf(db, leaf, request, request_canonical);
                        }));
                        return usable(std::move(read), check, purpose);
                      });
}

std::optional<StoreEntry> SqliteLookup::usable(Checked<StoreEntry> read, SetCheck& check,
                                               Purpose purpose) {
  if (!read.sound) {
    check.lost(read.damage ? SetCheck::Loss::damaged : SetCheck::Loss::evicted);
  }
  if (read.damage && purpose == Purpose::use) {
    accounting_.drop_damaged(read.name, StoreAccounting::Damage::entry, *read.damage);
  }
  complete(read.sound);
  return std::move(read.sound);
}

void SqliteLookup::complete(std::optional<StoreEntry>& entry) const {
  if (!entry) {
    return;
  }
  entry->of_root = session_.directory().is_of_root();
  const bool is_of_others = session_.options().system && !entry->of_root;
  if (is_of_others && entry->origin == Origin::compiled) {
    entry->origin = Origin::imported;  // what another user's store made came from elsewhere
  }
}

Lookup SqliteLookup::counted(Lookup found) {
  if (!found) {
    accounting_.counters().add(StoreEvent::error);
  } else if (*found) {
    accounting_.counters().add(StoreEvent::hit);
    accounting_.touch(ObjectName::of((*found)->key));
  } else {
    accounting_.counters().add(StoreEvent::miss);
  }
  return found;
}

Result<SetTree> SqliteLookup::find_sets(const RequestDigest& request, ByteView request_canonical) {
  return session_.read([&](SqliteHandle& db) -> Result<SetTree> {
    Query query = db.query("SELECT " CUKILN_REQUEST_COLUMNS " FROM request r WHERE r.digest=?");
    CUKILN_TRY(const bool there, query.blob(view_of(request)).next());
    if (!there) {
      return SetTree();
    }
    return RequestRow(query).sound_tree(request, request_canonical).value_or(SetTree());
  });
}

Result<std::vector<RecordedSet>> SqliteLookup::list_sets(const RequestDigest& request) {
  return session_.read([&](SqliteHandle& db) -> Result<std::vector<RecordedSet>> {
    CUKILN_TRY(const auto leaves, leaves_of(db, request));
    std::vector<RecordedSet> sets;
    for (const SetTree::Leaf& leaf : leaves) {
      CUKILN_TRY(auto set, set_of(db, request, leaf));
      if (set) {
        sets.push_back({leaf.key, *std::move(set)});
      }
    }
    return sets;
  });
}

template <class T, class Read>
Result<std::optional<T>> SqliteLookup::look_up(const Read& query, Purpose purpose) {
  CUKILN_TRY(Checked<T> read,
             purpose == Purpose::use ? session_.read(query) : session_.inspect(query));
  if (read.damage && purpose == Purpose::inspect) {
    return make_error(ErrorCode::corrupt, "{}; 'cukiln verify --repair' removes it",
                      read.damage->message());
  }
  if (read.damage) {
    const bool is_entry = std::is_same_v<T, StoreEntry>;
    accounting_.drop_damaged(
        read.name, is_entry ? StoreAccounting::Damage::entry : StoreAccounting::Damage::blob,
        *read.damage);
  }
  if constexpr (std::is_same_v<T, StoreEntry>) {
    complete(read.sound);
  } else if (read.sound && purpose == Purpose::use) {
    accounting_.touch(read.name);
  }
  return std::move(read.sound);
}

Lookup SqliteLookup::get(const CacheKey& key) {
  return counted(
      look_up<StoreEntry>([&](SqliteHandle& db) { return read_entry(db, key); }, Purpose::use));
}

Lookup SqliteLookup::peek(const CacheKey& key) {
  return look_up<StoreEntry>([&](SqliteHandle& db) { return read_entry(db, key); },
                             Purpose::inspect);
}

BlobLookup SqliteLookup::get(const BlobName& name) {
  return look_up<StoreBlob>([&](SqliteHandle& db) { return read_blob(db, name.id); }, Purpose::use);
}

BlobLookup SqliteLookup::peek(const BlobId& id) {
  return look_up<StoreBlob>([&](SqliteHandle& db) { return read_blob(db, id); }, Purpose::inspect);
}

Result<std::optional<std::string>> SqliteLookup::signer_of(const BlobName& name) {
  return session_.read([&](SqliteHandle& db) -> Result<std::optional<std::string>> {
    Query query = db.query("SELECT signer FROM object WHERE name=?");
    CUKILN_TRY(const bool there, query.blob(view_of(name.id)).next());
    return there ? std::optional(std::string(query.column_bytes(0))) : std::nullopt;
  });
}

}  // namespace cukiln
