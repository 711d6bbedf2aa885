// SPDX-License-Identifier: Apache-2.0
#include "store/sqlite_lookup.hpp"

#include <utility>

#include "base/result.hpp"
#include "key/compile_request.hpp"
#include "store/entry_rows.hpp"
#include "store/set_records.hpp"

namespace cukiln {

namespace {

/// Has the row of a request written again from its entries, with the next write.
void repair_later(StoreSession& session, StoreAccounting& accounting, const RequestDigest& request,
                  ByteView request_canonical) {
  if (!session.read_only()) {
    accounting.pending().add_repair(request, std::string(request_canonical));
  }
}

}  // namespace

Lookup SqliteLookup::find(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
                          Purpose purpose) {
  std::optional<RequestRow> recorded;
  std::optional<StoredRow> only;
  bool orphaned = false;  // there are entries, but the row of their request is missing
  auto read = session_.read([&](SqliteHandle& db) -> Result<void> {
    Query query = db.query("SELECT " CUKILN_REQUEST_COLUMNS ", " CUKILN_ENTRY_COLUMNS
                           " FROM request r LEFT JOIN entry e ON e.id=r.only_entry"
                           " WHERE r.digest=?");
    CUKILN_TRY(const bool there, query.blob(view_of(request)).next());
    if (there) {
      recorded.emplace(query);
      only.emplace(query, kRequestColumns);
      return {};
    }
    CUKILN_TRY(
        orphaned,
        db.query("SELECT 1 FROM entry WHERE request=? LIMIT 1").blob(view_of(request)).next());
    return {};
  });
  if (!read) {
    accounting_.counters().add(StoreEvent::error);
    return std::move(read).error();
  }
  if (!recorded && !orphaned) {
    accounting_.counters().add(StoreEvent::miss);
    return std::optional<StoreEntry>();
  }
  const auto tree =
      recorded ? recorded->sound_tree(request, request_canonical) : std::optional<SetTree>();
  Search search{request, request_canonical, check, purpose};
  if (!tree) {
    return find_without_tree(search);
  }
  std::vector<SetTree::Leaf> leaves;
  if (only->id != 0 && only->request == view_of(request)) {
    leaves.push_back({digest_from<CacheKey>(only->key), static_cast<std::uint64_t>(only->id)});
  } else {
    std::string differs;
    leaves = tree->candidates([&](const std::string& path) { return check.label(path); }, &differs);
    if (leaves.empty()) {
      check.differs(differs);
    }
  }
  for (const SetTree::Leaf& leaf : leaves) {
    CUKILN_TRY(auto found, read_leaf(search, leaf, std::exchange(only, {})));
    if (found) {
      return found;
    }
  }
  if (search.is_row_missing) {
    CUKILN_CHECK(repair_if_stray(search));
  }
  accounting_.counters().add(StoreEvent::miss);
  return std::optional<StoreEntry>();
}

Origin SqliteLookup::origin_of(std::int64_t origin) const noexcept {
  const bool is_of_others = session_.options().system && !session_.directory().is_of_root();
  const auto made = static_cast<Origin>(origin);
  return is_of_others && made == Origin::compiled ? Origin::imported : made;
}

Lookup SqliteLookup::with_owner(Lookup found) const {
  if (found && *found) {
    (*found)->of_root = session_.directory().is_of_root();
    (*found)->origin = origin_of(static_cast<std::int64_t>((*found)->origin));
  }
  return found;
}

Lookup SqliteLookup::read_leaf(Search& search, const SetTree::Leaf& leaf,
                               std::optional<StoredRow> row) {
  const RequestDigest& request = search.request;
  const bool is_use = search.purpose == Purpose::use;
  const auto damaged = [&](StoreAccounting::Damage what, const Error& why) {
    search.check.lost(SetCheck::Loss::damaged);
    if (is_use) {
      accounting_.drop_damaged(leaf.key, what, why);
    }
    return std::optional<StoreEntry>();
  };
  Lookup entry = std::optional<StoreEntry>();
  std::optional<Error> damage;
  const auto read_whole = [&](SqliteHandle& db) -> Result<void> {
    damage.reset();
    CUKILN_TRY(entry, read_entry(db, leaf.key, *row, request, search.request_canonical, &damage));
    return {};
  };
  // Reads the cubin in the same transaction: a set that the tree leads to almost always holds.
  const auto reread = [&] {
    return session_.read([&](SqliteHandle& db) -> Result<void> {
      CUKILN_TRY(row, row_of(db, leaf));
      return row && row->request == view_of(request) ? read_whole(db) : Result<void>();
    });
  };
  const bool was_read = row && row->id != 0;
  if (!was_read) {
    CUKILN_CHECK(reread());
  }
  for (int attempt = 0; row; ++attempt) {
    if (row->request != view_of(request)) {
      if (is_use) {  // the trigger removes the row of the request that the entry names
        repair_later(session_, accounting_, request, search.request_canonical);
      }
      return damaged(StoreAccounting::Damage::set, wrong_request_error(leaf.key));
    }
    const auto set = DependencySet::parse(row->dependencies);
    const bool trust_toolkit =
        may_trust_toolkit(origin_of(row->origin), row->signer, session_.directory().is_of_root());
    const bool holds = set && search.check.holds(*set, trust_toolkit);
    if (!holds) {
      if (!set || cache_key_of(request, row->dependencies) != leaf.key) {
        return damaged(StoreAccounting::Damage::set,
                       Error(ErrorCode::corrupt, "its dependency set does not hash to its key"));
      }
      return std::optional<StoreEntry>();
    }
    if (was_read && attempt == 0) {
      CUKILN_CHECK(session_.read(read_whole));
    }
    if (*entry) {
      if (is_use) {
        accounting_.counters().add(StoreEvent::hit);
        accounting_.touch(leaf.key);
        if (leaf.hint != 0 && static_cast<std::uint64_t>(row->id) != leaf.hint) {
          repair_later(session_, accounting_, request, search.request_canonical);
        }
      }
      return with_owner(std::move(entry));
    }
    if (attempt > 0) {
      return damaged(StoreAccounting::Damage::entry, *damage);
    }
    CUKILN_CHECK(reread());  // removed, or stored again, since the row was read
  }
  CUKILN_TRY(const bool is_damaged, drop_damaged_key(search, leaf));
  search.is_row_missing = search.is_row_missing || !is_damaged;
  search.check.lost(is_damaged ? SetCheck::Loss::damaged : SetCheck::Loss::evicted);
  return std::optional<StoreEntry>();
}

Result<bool> SqliteLookup::drop_damaged_key(const Search& search, const SetTree::Leaf& leaf) {
  CUKILN_TRY(const auto key, session_.read([&](SqliteHandle& db) {
    return damaged_key_of(db, search.request, leaf);
  }));
  if (key && search.purpose == Purpose::use) {
    accounting_.drop_damaged(
        *key, StoreAccounting::Damage::set,
        make_error(ErrorCode::corrupt, "the key of the entry {} is damaged", leaf.key.hex()));
  }
  return key.has_value();
}

Result<void> SqliteLookup::repair_if_stray(const Search& search) {
  CUKILN_TRY(const auto leaves,
             session_.read([&](SqliteHandle& db) { return leaves_of(db, search.request); }));
  if (leaves.empty() && search.purpose == Purpose::use) {
    repair_later(session_, accounting_, search.request, search.request_canonical);
  }
  return {};
}

Lookup SqliteLookup::find_without_tree(Search& search) {
  const RequestDigest& request = search.request;
  if (CompileRequest::digest_of(search.request_canonical) != request) {
    return std::optional<StoreEntry>();  // the arguments do not match: the row is not damaged
  }
  CUKILN_TRY(const auto leaves,
             session_.read([&](SqliteHandle& db) { return leaves_of(db, request); }));
  if (search.purpose == Purpose::use) {
    accounting_.count_damage(StoreAccounting::Damage::set, {}, "damaged dependency sets");
    session_.options().log.warn(
        "in the {} store the dependency sets of the request {} were damaged; they are rebuilt from "
        "its entries",
        accounting_.tier_name(), request.hex());
    repair_later(session_, accounting_, request, search.request_canonical);
  }
  for (const SetTree::Leaf& leaf : leaves) {
    CUKILN_TRY(auto found, read_leaf(search, leaf, std::nullopt));
    if (found) {
      return found;
    }
  }
  accounting_.counters().add(StoreEvent::miss);
  return std::optional<StoreEntry>();
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

bool SqliteLookup::is_set_sound(const CacheKey& key) {
  const auto set = session_.read([&](SqliteHandle& db) -> Result<std::optional<DependencySet>> {
    CUKILN_TRY(const auto row, row_of(db, {key}));
    if (!row) {
      return std::optional<DependencySet>();
    }
    return set_of(db, digest_from<RequestDigest>(row->request), {key});
  });
  return set && *set;
}

Lookup SqliteLookup::get(const CacheKey& key) {
  std::optional<Error> damage;
  auto found = session_.read([&](SqliteHandle& db) { return read_entry(db, key, &damage); });
  if (damage) {
    accounting_.drop_damaged(
        key, is_set_sound(key) ? StoreAccounting::Damage::entry : StoreAccounting::Damage::set,
        *damage);
  }
  if (!found) {
    accounting_.counters().add(StoreEvent::error);
  } else if (*found) {
    accounting_.counters().add(StoreEvent::hit);
    accounting_.touch(key);
  } else {
    accounting_.counters().add(StoreEvent::miss);
  }
  return with_owner(std::move(found));
}

Lookup SqliteLookup::peek(const CacheKey& key) {
  std::optional<Error> damage;
  auto found = session_.inspect([&](SqliteHandle& db) { return read_entry(db, key, &damage); });
  return damage ? Lookup(*std::move(damage)) : with_owner(std::move(found));
}

}  // namespace cukiln
