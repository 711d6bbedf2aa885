// SPDX-License-Identifier: Apache-2.0
#include "store/verification.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/result.hpp"
#include "store/blob_rows.hpp"
#include "store/entry_codec.hpp"
#include "store/meta_rows.hpp"
#include "store/peak_rows.hpp"
#include "store/pending_writes.hpp"
#include "store/set_records.hpp"
#include "store/stored_row.hpp"
#include "store/stray_rows.hpp"

namespace cukiln {

/// The damaged rows that a check found, as far as a repair needs them.
struct DamagedRows {
  struct Entry {
    std::int64_t id = 0, cubin_id = 0;
    std::string key;  ///< as it is in the row
  };
  std::vector<Entry> entries;
  std::vector<std::int64_t> requests;  ///< ids; written again from their entries, or removed
  std::vector<RequestDigest> trees;    ///< sound, but without one of the entries
  std::vector<std::string> stat_records;
  std::vector<std::int64_t> uses;       ///< ids of sound entries whose last use and hits are reset
  std::vector<std::string> counters;    ///< names
  std::vector<std::string> peaks;       ///< keys of compile_peak
  std::vector<std::int64_t> blobs;      ///< ids
  std::vector<std::int64_t> blob_uses;  ///< ids of sound blobs whose last use and hits are reset
  std::vector<std::int64_t> source_texts;  ///< ids of sound entries whose source text is removed
  bool meta = false;                       ///< a row of `meta`
  bool stray_cubins = false;               ///< without an entry
  std::unordered_set<std::int64_t> used_cubins;  ///< of sound entries

  bool any() const noexcept {
    return stray_cubins || meta || !source_texts.empty() || !entries.empty() || !requests.empty() ||
           !trees.empty() || !stat_records.empty() || !uses.empty() || !counters.empty() ||
           !peaks.empty() || !blobs.empty() || !blob_uses.empty();
  }
};

namespace {

constexpr std::size_t kRepairRows = 100;

/// True if the canonical request hashes to the digest.
bool is_request(const RequestDigest& digest, ByteView canonical) {
  return CompileRequest::digest_of(canonical) == digest;
}

/// Checks every table, in short read transactions: a long one would keep the write-ahead log from
/// being truncated.
class TableChecks {
 public:
  TableChecks(SqliteHandle& db, const StoreSchema& schema, VerifyReport& report,
              DamagedRows& damaged)
      : db_(db), schema_(schema), report_(report), damaged_(damaged) {}

  Result<void> run() {
    CUKILN_CHECK(check_structure());
    CUKILN_CHECK(check_meta_rows());
    CUKILN_CHECK(check_requests());
    CUKILN_CHECK(check_entries());
    CUKILN_CHECK(check_cubins());
    CUKILN_CHECK(check_counters());
    CUKILN_CHECK(check_peaks());
    CUKILN_CHECK(check_blobs());
    return check_stat_records();
  }

 private:
  void found(const CacheKey& key, std::string what) {
    ++report_.damaged;
    report_.findings.push_back({key, std::move(what)});
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
    damaged_.meta = !wrong.empty();
    for (std::string& one : wrong) {
      found({}, std::move(one));
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
    const bool named = is_request(digest, row.canonical);
    const auto tree = named && row.is_sound(digest) ? SetTree::parse(row.tree) : std::nullopt;
    known_[digest] = {!named ? Request::lost
                      : tree ? Request::sound
                             : Request::damaged,
                      only_source_of(digest, row.canonical), output_of_request(row.canonical)};
    if (!tree) {
      damaged_.requests.push_back(query.column_number(0));
      found({}, fmt::format("the request {} is damaged", digest.hex().substr(0, 12)));
      return;
    }
    for (const SetTree::Leaf& leaf : tree->leaves()) {
      recorded_[leaf.key] = leaf.hint;
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
    const auto key = digest_from<CacheKey>(row.key);
    const auto request = digest_from<RequestDigest>(row.request);
    if (auto sound = check_content(row, key, request, image); !sound) {
      damaged_.entries.push_back({row.id, row.cubin_id, row.key});
      found(key, sound.error().message());
      return {};
    }
    CUKILN_TRY(const Request its, state_of(request));
    if (its == Request::lost) {
      damaged_.entries.push_back({row.id, row.cubin_id, row.key});
      found(key, fmt::format("the entry {} has no request", key.hex()));
      return {};
    }
    damaged_.used_cubins.insert(row.cubin_id);
    if (!row.has_possible_uses()) {
      damaged_.uses.push_back(row.id);
      found(key, fmt::format("the last use of the entry {} is damaged: {} hits, the last at {} s",
                             key.hex(), row.hits, row.last_used_s));
    }
    const auto known = known_.find(request);
    const auto source = known != known_.end() ? known->second.source : std::nullopt;
    if (auto text = texts_.decode(source_text, source); !text) {
      damaged_.source_texts.push_back(row.id);
      found(key, fmt::format("{}, of the entry {}", text.error().message(), key.hex()));
    }
    const auto at = recorded_.find(key);
    const bool leads = at != recorded_.end() && (at->second == 0 || at->second == id_of(row));
    if (its == Request::sound && !leads) {
      CUKILN_TRY(const bool leads_now, is_recorded(db_, request, key, id_of(row)));
      if (!leads_now) {
        damaged_.trees.push_back(request);
        found(key, fmt::format("the sets of its request do not lead to the entry {}", key.hex()));
      }
    }
    return {};
  }

  Result<void> check_content(const StoredRow& row, const CacheKey& key,
                             const RequestDigest& request, ByteView image) {
    const Checksum check = checksum_of(key, request, row.parts({}, image), row.compile_us,
                                       row.created_s, row.dependency_count);
    if (view_of(check) != row.check128 || row.key.size() != key.bytes.size() ||
        row.cubin_bytes != static_cast<std::int64_t>(image.size())) {
      return make_error(ErrorCode::corrupt, "the entry {} does not match its checksum", key.hex());
    }
    const auto known = known_.find(request);
    CUKILN_TRY(
        const StoreEntry entry,
        decode_entry(key, request, known != known_.end() ? known->second.output : OutputKind{},
                     row.parts({}, {}), SharedBytes(std::string(image))));
    return {};
  }

  static std::uint64_t id_of(const StoredRow& row) { return static_cast<std::uint64_t>(row.id); }

  enum class Request { sound, damaged, lost };
  /// A request that was not seen may have been stored since.
  Result<Request> state_of(const RequestDigest& request) {
    const auto at = known_.find(request);
    if (at != known_.end()) {
      return at->second.state;
    }
    Query query = db_.query("SELECT canonical FROM request WHERE digest=?");
    CUKILN_TRY(const bool there, query.blob(view_of(request)).next());
    return there && is_request(request, query.column_bytes(0)) ? Request::sound : Request::lost;
  }

  /// A cubin without an entry is no finding: it takes room, but no lookup reads it.
  Result<void> check_cubins() {
    CUKILN_TRY(const std::int64_t strays, db_.number("SELECT count(*) FROM cubin WHERE id NOT IN "
                                                     "(SELECT cubin_id FROM entry)"));
    damaged_.stray_cubins = strays > 0;
    return {};
  }

  Result<void> check_counters() {
    Query query = db_.query("SELECT name, value FROM counter WHERE value NOT BETWEEN 0 AND ?");
    query.number(kMaxCount);
    for (;;) {
      CUKILN_TRY(const bool there, query.next());
      if (!there) {
        return {};
      }
      damaged_.counters.emplace_back(query.column_bytes(0));
      found({}, fmt::format("the counter {} is damaged: {}", query.column_bytes(0),
                            query.column_number(1)));
    }
  }

  Result<void> check_peaks() {
    CUKILN_TRY(PeakRows rows, read_peaks(db_));
    for (const std::string& key : rows.damaged) {
      found(digest_from<CacheKey>(key), "the memory that its compile used is damaged");
    }
    damaged_.peaks = std::move(rows.damaged);
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
    const auto key = digest_from<CacheKey>(row.digest);
    if (!row.is_sound(data)) {
      damaged_.blobs.push_back(row.id);
      found(key, fmt::format("the blob {} does not match its checksum", key.hex()));
    } else if (!row.has_possible_uses()) {
      damaged_.blob_uses.push_back(row.id);
      found(key, fmt::format("the last use of the blob {} is damaged: {} hits, the last at {} s",
                             key.hex(), row.hits, row.last_used_s));
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
        damaged_.stat_records.emplace_back(query.column_bytes(0));
        found({}, fmt::format("the digest of the file {} is damaged", query.column_bytes(0)));
      }
    }
  }

  SqliteHandle& db_;
  const StoreSchema& schema_;
  VerifyReport& report_;
  DamagedRows& damaged_;
  SourceTextDecoder texts_;
  struct Known {
    Request state = Request::lost;
    std::optional<ContentHash> source;  ///< if it has one only
    OutputKind output = OutputKind::cubin;
  };
  std::unordered_map<RequestDigest, Known> known_;
  std::unordered_map<CacheKey, std::uint64_t> recorded_;  // the row that the tree names for a key
};

Result<void> remove_damaged(SqliteHandle& db, const DamagedRows& damaged,
                            const DamagedRows::Entry& entry) {
  if (damaged.used_cubins.contains(entry.cubin_id)) {  // the trigger must not remove that one
    CUKILN_CHECK(db.query("UPDATE entry SET cubin_id=0 WHERE id=? AND key=?")
                     .number(entry.id)
                     .blob(entry.key)
                     .run());
  }
  return db.query("DELETE FROM entry WHERE id=? AND key=?").number(entry.id).blob(entry.key).run();
}

/// Writes the request of a query's row again from its entries, or removes it.
Result<void> repair_request(SqliteHandle& db, Query query) {
  CUKILN_TRY(const bool there, query.next());
  if (!there) {
    return {};
  }
  const std::int64_t id = query.column_number(0);
  const auto digest = digest_from<RequestDigest>(query.column_bytes(1));
  const std::string canonical(query.column_bytes(2));
  return is_request(digest, canonical)
             ? rebuild_sets(db, digest, canonical)
             : db.query("DELETE FROM request WHERE id=?").number(id).run();
}

Result<void> repair_rest(SqliteHandle& db, const StoreSchema& schema, const DamagedRows& damaged) {
  for (const std::int64_t id : damaged.requests) {
    Query query = db.query("SELECT id, digest, canonical FROM request WHERE id=?");
    query.number(id);
    CUKILN_CHECK(repair_request(db, std::move(query)));
  }
  for (const RequestDigest& digest : damaged.trees) {
    Query query = db.query("SELECT id, digest, canonical FROM request WHERE digest=?");
    query.blob(view_of(digest));
    CUKILN_CHECK(repair_request(db, std::move(query)));
  }
  for (const std::string& path : damaged.stat_records) {
    CUKILN_CHECK(db.query("DELETE FROM stat_cache WHERE path=?").text(path).run());
  }
  for (const std::int64_t id : damaged.uses) {
    CUKILN_CHECK(
        db.query("UPDATE entry SET hits=0, last_used_s=min(max(created_s, 0), ?) WHERE id=?")
            .number(kMaxLastUsedS - 1)
            .number(id)
            .run());
  }
  for (const std::int64_t id : damaged.blobs) {
    CUKILN_CHECK(db.query("DELETE FROM blob WHERE id=?").number(id).run());
  }
  for (const std::int64_t id : damaged.blob_uses) {
    CUKILN_CHECK(
        db.query("UPDATE blob SET hits=0, last_used_s=min(max(created_s, 0), ?) WHERE id=?")
            .number(kMaxLastUsedS - 1)
            .number(id)
            .run());
  }
  for (const std::string& name : damaged.counters) {
    CUKILN_CHECK(db.query("DELETE FROM counter WHERE name=?").text(name).run());
  }
  for (const std::string& key : damaged.peaks) {
    CUKILN_CHECK(remove_peak(db, key));
  }
  for (const std::int64_t id : damaged.source_texts) {
    CUKILN_CHECK(db.query("UPDATE entry SET source_text=x'' WHERE id=?").number(id).run());
  }
  if (damaged.meta) {
    CUKILN_CHECK(write_meta(db, schema));
  }
  CUKILN_CHECK(remove_stray_cubins(db));
  return remove_stray_requests(db);
}

}  // namespace

Result<void> Verification::repair(const DamagedRows& damaged) {
  const auto in_transaction = [&](auto&& body) {
    return eviction_.write_deletion([&](SqliteHandle& db) -> Result<void> {
      CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
      CUKILN_CHECK(body(db));
      return transaction.commit();
    });
  };
  for (std::size_t done = 0; done < damaged.entries.size(); done += kRepairRows) {
    const std::size_t end = std::min(done + kRepairRows, damaged.entries.size());
    auto removed = in_transaction([&](SqliteHandle& db) -> Result<void> {
      for (std::size_t i = done; i < end; ++i) {
        CUKILN_CHECK(remove_damaged(db, damaged, damaged.entries[i]));
      }
      return {};
    });
    CUKILN_CHECK(removed);
  }
  return in_transaction(
      [&](SqliteHandle& db) { return repair_rest(db, session_.options().schema, damaged); });
}

Result<VerifyReport> Verification::verify(bool repair_too) {
  VerifyReport report;
  DamagedRows damaged;
  auto done = session_.inspect([&](SqliteHandle& db) {
    return TableChecks(db, session_.options().schema, report, damaged).run();
  });
  const bool writes = repair_too && !session_.read_only();
  if (done && writes && damaged.any()) {
    done = repair(damaged);
    if (done) {
      report.repaired = report.damaged;
      for (std::uint64_t i = 0; i < report.damaged; ++i) {
        accounting_.count_damage(StoreAccounting::Damage::verify, {}, "found by verify");
      }
    }
  }
  if (!done && done.error().code() == ErrorCode::corrupt) {
    ++report.damaged;
    report.findings.push_back({CacheKey{}, done.error().message()});
    if (writes) {
      CUKILN_CHECK(session_.start_new_generation(done.error()));
      report.repaired = report.damaged;
    }
    return report;
  }
  if (!done) {
    return std::move(done).error();
  }
  return report;
}

}  // namespace cukiln
