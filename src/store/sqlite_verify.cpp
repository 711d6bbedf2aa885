// How a SqliteStore goes through all that it has.

#include <utility>

#include "base/result.hpp"
#include "store/set_records.hpp"
#include "store/sqlite_store.hpp"

namespace cukiln {

namespace {

Result<std::vector<CacheKey>> all_keys(SqliteHandle& db) {
  std::vector<CacheKey> keys;
  Query query = db.query("SELECT key FROM entry ORDER BY id");
  for (;;) {
    CUKILN_TRY(const bool row, query.next());
    if (!row) {
      return keys;
    }
    keys.push_back(digest_from<CacheKey>(query.column_bytes(0)));
  }
}

}  // namespace

Result<void> SqliteStore::verify_entry(const CacheKey& key, VerifyReport& report) {
  std::optional<Error> damage;
  auto entry = session_->inspect([&](SqliteHandle& db) { return look_up(db, key, &damage); });
  if (!entry) {
    return std::move(entry).error();
  }
  if (!*entry && !damage) {
    return {};  // evicted meanwhile
  }
  ++report.checked;
  if (!damage) {
    if (auto text = source_text(key); !text && text.error().code() == ErrorCode::corrupt) {
      damage = std::move(text).error();
    }
  }
  if (damage) {
    ++report.damaged;
    report.findings.push_back({key, damage->message()});
  }
  return {};
}

/// What leads from a request to its entries.
Result<void> SqliteStore::verify_requests(bool repair, VerifyReport& report) {
  struct Damaged {
    std::string digest, canonical;  // as they stand there
  };
  std::vector<Damaged> damaged;
  CUKILN_CHECK(session_->inspect([&](SqliteHandle& db) -> Result<void> {
    Query query = db.query("SELECT " CUKILN_REQUEST_COLUMNS ", r.digest FROM request r");
    for (;;) {
      CUKILN_TRY(const bool more, query.next());
      if (!more) {
        return {};
      }
      RequestRow row(query);
      std::string digest(query.column_bytes(kRequestColumns));
      if (!row.is_sound(digest_from<RequestDigest>(digest)) || !SetTree::parse(row.tree)) {
        damaged.push_back({std::move(digest), std::move(row.canonical)});
      }
    }
  }));
  for (const Damaged& row : damaged) {
    ++report.damaged;
    report.findings.push_back({CacheKey{}, "the list of sets of a request is damaged"});
    if (!repair || read_only()) {
      continue;
    }
    CUKILN_CHECK(
        session_->write(session_->options().write_wait, [&](SqliteHandle& db) -> Result<void> {
          CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
          const RequestDigest digest = CompileRequest::digest_of(row.canonical);
          CUKILN_CHECK(db.query("DELETE FROM request WHERE digest=?").blob(row.digest).run());
          if (view_of(digest) == row.digest) {
            CUKILN_CHECK(rebuild_sets(db, digest, row.canonical));
          }
          return transaction.commit();
        }));
    ++report.repaired;
    count_damage(Damage::verify);
  }
  return {};
}

Result<VerifyReport> SqliteStore::verify(bool repair) {
  VerifyReport report;
  auto keys = session_->inspect([&](SqliteHandle& db) -> Result<std::vector<CacheKey>> {
    Query check = db.query("PRAGMA quick_check(1)");
    CUKILN_TRY(const bool row, check.next());
    if (!row || check.column_bytes(0) != "ok") {
      return make_error(ErrorCode::corrupt, "the database is damaged: {}",
                        row ? check.column_bytes(0) : ByteView("no answer"));
    }
    return all_keys(db);
  });
  auto done = keys ? Result<void>() : Result<void>(keys.error());
  for (std::size_t i = 0; done && i < keys->size(); ++i) {
    done = verify_entry((*keys)[i], report);
  }
  if (!done && done.error().code() == ErrorCode::corrupt) {
    ++report.damaged;
    report.findings.push_back({CacheKey{}, done.error().message()});
    if (repair && !read_only()) {
      CUKILN_CHECK(session_->begin_anew(done.error()));
      ++report.repaired;
    }
    return report;
  }
  if (!done) {
    return std::move(done).error();
  }
  if (repair) {
    for (const VerifyReport::Finding& finding : report.findings) {
      const auto removed = remove(finding.key);
      if (!removed && removed.error().code() == ErrorCode::corrupt) {
        // An index: the check above reads the tables alone.
        CUKILN_CHECK(session_->begin_anew(removed.error()));
        report.findings.push_back({CacheKey{}, removed.error().message()});
        report.repaired = ++report.damaged;
        return report;
      }
      if (!removed) {
        return removed.error();
      }
      report.repaired += *removed ? 1 : 0;
      count_damage(Damage::verify);
    }
  }
  CUKILN_CHECK(verify_requests(repair, report));
  return report;
}

}  // namespace cukiln
