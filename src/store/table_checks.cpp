// SPDX-License-Identifier: Apache-2.0
#include "store/table_checks.hpp"

#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/result.hpp"
#include "store/blob_rows.hpp"
#include "store/entry_rows.hpp"
#include "store/meta_rows.hpp"
#include "store/peak_rows.hpp"
#include "store/pending_writes.hpp"
#include "store/set_records.hpp"

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
    CUKILN_CHECK(check_entries());
    CUKILN_CHECK(check_counters());
    CUKILN_CHECK(check_peaks());
    CUKILN_CHECK(check_blobs());
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

  Result<void> check_entries() {
    return check_pages("SELECT " CUKILN_ENTRY_COLUMNS
                       ", e.source_text, c.data FROM entry e LEFT JOIN cubin c ON "
                       "c.id=e.cubin_id WHERE e.id>? ORDER BY e.id LIMIT 200",
                       [this](const Query& query) -> Result<std::int64_t> {
                         const StoredRow row(query);
                         CUKILN_CHECK(check_entry(row, query.column_bytes(kEntryColumns),
                                                  query.column_bytes(kEntryColumns + 1)));
                         return row.id;
                       });
  }

  Result<void> check_entry(const StoredRow& row, ByteView source_text, ByteView image) {
    ++report_.checked;
    CUKILN_TRY(std::string damage, damage_of(row, source_text, image));
    if (!damage.empty()) {
      // The trigger must not remove the cubin of another entry.
      remove("UPDATE entry SET cubin_id=0 WHERE id=?1 AND key=?2", row.id, row.key);
      remove("DELETE FROM entry WHERE id=?1 AND key=?2", row.id, row.key);
      report(digest_from<CacheKey>(row.key), std::move(damage));
    }
    return {};
  }

  /// Returns what is wrong with an entry; empty if nothing is.
  Result<std::string> damage_of(const StoredRow& row, ByteView source_text, ByteView image) {
    const auto key = digest_from<CacheKey>(row.key);
    const auto digest = digest_from<RequestDigest>(row.request);
    CUKILN_TRY(const Request request, request_of(digest));
    const auto entry = check_row(row, digest, {}, request.output, SharedBytes(std::string(image)));
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
      CUKILN_TRY(const auto tree, tree_of(db_, digest));
      if (!tree || !leads_to(*tree, key)) {
        return fmt::format("the sets of its request do not lead to the entry {}", key.hex());
      }
    }
    return std::string();
  }

  /// A request that was not seen may have been stored since.
  Result<Request> request_of(const RequestDigest& digest) {
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

  Result<void> check_peaks() {
    CUKILN_TRY(const PeakRows rows, read_peaks(db_));
    for (const std::string& key : rows.damaged) {
      remove("DELETE FROM compile_peak WHERE key=?2", 0, key);
      report(digest_from<CacheKey>(key), "the memory that its compile used is damaged");
    }
    return {};
  }

  Result<void> check_blobs() {
    return check_pages("SELECT " CUKILN_BLOB_COLUMNS
                       ", data FROM blob WHERE id>? ORDER BY id LIMIT 200",
                       [this](const Query& query) -> Result<std::int64_t> {
                         const BlobRow row(query);
                         check_blob(row, query.column_bytes(kBlobColumns));
                         return row.id;
                       });
  }

  void check_blob(const BlobRow& row, ByteView data) {
    ++report_.checked_blobs;
    if (!row.is_sound(data)) {
      const auto key = digest_from<CacheKey>(row.digest);
      remove("DELETE FROM blob WHERE id=?1 AND digest=?2", row.id, row.digest);
      report(key, fmt::format("the blob {} does not match its checksum, or has impossible uses",
                              key.hex()));
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
