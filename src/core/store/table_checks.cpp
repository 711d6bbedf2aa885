// SPDX-License-Identifier: Apache-2.0
#include "core/store/table_checks.hpp"

#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/result.hpp"
#include "core/store/meta_rows.hpp"
#include "core/store/object_rows.hpp"
#include "core/store/pending_writes.hpp"
#include "core/store/set_records.hpp"
#include "core/store/source_text.hpp"

namespace cukiln {

namespace {

class TableChecks {
 public:
  TableChecks(SqliteHandle& db, const StoreSchema& schema, VerifyReport& report,
              StoreDamage& damage)
      : db_(db), schema_(schema), report_(report), damage_(damage) {}

  Result<void> run() {
    CUKILN_CHECK(check_structure());
    CUKILN_CHECK(check_meta_rows());
    CUKILN_CHECK(check_requests());
    CUKILN_CHECK(check_objects());
    CUKILN_CHECK(check_counters());
    return check_stat_records();
  }

 private:
  struct Request {
    bool is_sound = false;
    std::optional<ContentHash> source;  ///< if it has one only
    OutputKind output = OutputKind::cubin;
  };

  void report(const CacheKey& key, std::string what) {
    ++report_.damaged;
    report_.findings.push_back({key, std::move(what)});
  }

  void remove(const char* sql, std::int64_t id, ByteView name) {
    damage_.removals.push_back({sql, id, std::string(name)});
  }

  Result<void> check_structure() {
    Query check = db_.query("PRAGMA quick_check(1)");
    CUKILN_TRY(const bool row, check.next());
    if (!row || check.column_bytes(0) != "ok") {
      if (db_.has_failed_to_read()) {
        return make_error(ErrorCode::io, "the database cannot be read: {}; check the disk",
                          row ? check.column_bytes(0) : ByteView("no answer"));
      }
      return make_error(ErrorCode::corrupt, "the database is damaged: {}",
                        row ? check.column_bytes(0) : ByteView("no answer"));
    }
    return {};
  }

  Result<void> check_meta_rows() {
    CUKILN_TRY(std::vector<std::string> wrong, check_meta(db_, schema_));
    damage_.meta = !wrong.empty();
    for (std::string& one : wrong) {
      report({}, std::move(one));
    }
    return {};
  }

  /// Calls `check` for every row. `sql` selects some rows whose id is above its parameter, in the
  /// order of ids, for one read transaction; `check` returns the id of its row.
  template <class Check>
  Result<void> check_pages(const char* sql, Check check) {
    std::int64_t last = INT64_MIN;
    for (bool more = true; more;) {
      Query query = db_.query(sql);
      query.number(last);
      more = false;
      for (;;) {
        CUKILN_TRY(const bool there, query.next());
        if (!there) {
          break;
        }
        more = true;
        CUKILN_TRY(last, check(query));
      }
    }
    return {};
  }

  Result<void> check_requests() {
    return check_pages("SELECT r.id, r.digest, " CUKILN_REQUEST_COLUMNS
                       " FROM request r WHERE r.id>? ORDER BY r.id LIMIT 500",
                       [this](const Query& query) -> Result<std::int64_t> {
                         check_request(query);
                         return query.column_number(0);
                       });
  }

  void check_request(const Query& query) {
    const auto digest = digest_from<RequestDigest>(query.column_bytes(1));
    const RequestRow row(query, 2);
    const bool is_sound =
        CompileRequest::digest_of(row.canonical) == digest && row.is_sound(digest);
    const auto tree = is_sound ? SetTree::parse(row.tree) : std::nullopt;
    if (!tree) {
      requests_[digest] = {};
      remove("DELETE FROM request WHERE id=?1 AND digest=?2", query.column_number(0),
             query.column_bytes(1));
      report({}, fmt::format("the request {} is damaged", digest.hex().substr(0, 12)));
      return;
    }
    requests_[digest] = {true, only_source_of(digest, row.canonical),
                         output_of_request(row.canonical)};
    for (const SetTree::Leaf& leaf : tree->leaves()) {
      recorded_.insert(leaf.key);
    }
  }

  Result<void> check_objects() {
    return check_pages("SELECT " CUKILN_OBJECT_COLUMNS
                       ", p.source_text, p.data FROM object o LEFT JOIN payload p ON p.id=o.id "
                       "WHERE o.id>? ORDER BY o.id LIMIT 200",
                       [this](const Query& query) -> Result<std::int64_t> {
                         ObjectRow row(query);
                         row.object.data =
                             SharedBytes::borrowed(query.column_bytes(kObjectColumns + 1));
                         CUKILN_CHECK(check_object(row, query.column_bytes(1),
                                                   query.column_bytes(kObjectColumns)));
                         return row.id;
                       });
  }

  Result<void> check_object(const ObjectRow& row, ByteView name, ByteView source_text) {
    const bool is_blob = !row.object.is_entry() && !row.object.is_failure();
    ++(is_blob ? report_.checked_blobs : report_.checked);
    const auto checked = row.check(row.object.name);
    std::string damage = checked ? std::string() : std::string(checked.error().message());
    if (checked && !is_blob) {
      CUKILN_TRY(damage, damage_of_entry(row, source_text));
    } else if (checked) {
      const auto blob = decode_blob(row.object);
      damage = blob ? std::string() : std::string(blob.error().message());
    }
    if (!damage.empty()) {
      remove("DELETE FROM object WHERE id=?1 AND name=?2", row.id, name);
      report(CacheKey{row.object.name.bytes}, std::move(damage));
    }
    return {};
  }

  /// Returns what is wrong with an entry; empty if nothing is.
  Result<std::string> damage_of_entry(const ObjectRow& row, ByteView source_text) {
    const CacheKey key{row.object.name.bytes};
    const auto digest = digest_from<RequestDigest>(row.request);
    CUKILN_TRY(const Request request, request_seen(digest));
    const auto entry = decode_entry(row.object, digest, request.output);
    if (!entry) {
      return std::string(entry.error().message());
    }
    if (!request.is_sound) {
      return fmt::format("the entry {} has no sound request", key.hex());
    }
    if (const auto text = texts_.decode(source_text, request.source); !text) {
      return fmt::format("{}, of the entry {}", text.error().message(), key.hex());
    }
    if (!recorded_.contains(key)) {  // it may have been stored since
      CUKILN_TRY(const auto now, request_of(db_, digest));
      if (!now || !leads_to(SetTree::from_verified(now->tree), key)) {
        return fmt::format("the sets of its request do not lead to the entry {}", key.hex());
      }
    }
    return std::string();
  }

  /// A request that was not seen may have been stored since.
  Result<Request> request_seen(const RequestDigest& digest) {
    if (const auto at = requests_.find(digest); at != requests_.end()) {
      return at->second;
    }
    Query query = db_.query("SELECT " CUKILN_REQUEST_COLUMNS " FROM request r WHERE r.digest=?");
    CUKILN_TRY(const bool there, query.blob(view_of(digest)).next());
    if (!there) {
      return Request{};
    }
    const RequestRow row(query);
    return Request{row.is_sound(digest), only_source_of(digest, row.canonical),
                   output_of_request(row.canonical)};
  }

  Result<void> check_counters() {
    Query query = db_.query("SELECT name, value FROM counter WHERE value NOT BETWEEN 0 AND ?");
    query.number(kMaxCount);
    for (;;) {
      CUKILN_TRY(const bool there, query.next());
      if (!there) {
        return {};
      }
      const ByteView name = query.column_bytes(0);
      remove("DELETE FROM counter WHERE name=CAST(?2 AS TEXT)", 0, name);
      report({}, fmt::format("the counter {} is damaged: {}", name, query.column_number(1)));
    }
  }

  Result<void> check_stat_records() {
    Query query = db_.query("SELECT " CUKILN_STAT_COLUMNS " FROM stat_cache");
    for (;;) {
      CUKILN_TRY(const bool there, query.next());
      if (!there) {
        return {};
      }
      if (!stat_record_of(query)) {
        const ByteView path = query.column_bytes(0);
        remove("DELETE FROM stat_cache WHERE path=CAST(?2 AS TEXT)", 0, path);
        report({}, fmt::format("the digest of the file {} is damaged", path));
      }
    }
  }

  SqliteHandle& db_;
  const StoreSchema& schema_;
  VerifyReport& report_;
  StoreDamage& damage_;
  SourceTextDecoder texts_;
  std::unordered_map<RequestDigest, Request> requests_;
  std::unordered_set<CacheKey> recorded_;  // to which a tree leads
};

}  // namespace

Result<void> check_tables(SqliteHandle& db, const StoreSchema& schema, VerifyReport& report,
                          StoreDamage& damage) {
  return TableChecks(db, schema, report, damage).run();
}

}  // namespace cukiln
