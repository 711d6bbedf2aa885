// SPDX-License-Identifier: Apache-2.0
#include "core/store/sqlite_inventory.hpp"

#include <algorithm>

#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"
#include "core/store/object_rows.hpp"
#include "core/store/set_records.hpp"
#include "core/store/source_text.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kMaxReadAhead = 4096;
constexpr std::int64_t kFewRecords = 16;
constexpr std::int64_t kMaxOfFolder = 256;

/// Damage is reported when an object is read; here a size is only kept from being negative.
std::uint64_t not_negative(std::int64_t number) noexcept {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(number, 0));
}

}  // namespace

Result<std::vector<EntrySummary>> SqliteInventory::list() {
  return session_.read([](SqliteHandle& db) -> Result<std::vector<EntrySummary>> {
    std::vector<EntrySummary> entries;
    Query query = db.query(
        "SELECT o.name, o.created_s, o.last_used_s, o.hits, o.origin, o.bytes, o.signer, "
        "o.summary, r.peak_bytes FROM object o LEFT JOIN request r ON r.digest=o.request "
        "WHERE o.kind='' ORDER BY o.id");
    for (;;) {
      CUKILN_TRY(const bool row, query.next());
      if (!row) {
        return entries;
      }
      EntrySummary entry;
      entry.key = digest_from<CacheKey>(query.column_bytes(0));
      entry.created_s = query.column_number(1);
      entry.last_used_s = query.column_number(2);
      entry.hits = query.column_number(3);
      entry.origin = static_cast<Origin>(query.column_number(4));
      entry.cubin_bytes = not_negative(query.column_number(5));
      entry.signer = query.column_bytes(6);
      auto summary = decode_summary(query.column_bytes(7)).value_or(EntrySummaryFields());
      entry.labels = std::move(summary.labels);
      entry.kernels = std::move(summary.kernels);
      entry.compile_us = summary.compile_us;
      entry.dependencies = summary.files;
      entry.peak_bytes = not_negative(query.column_number(8));
      entries.push_back(std::move(entry));
    }
  });
}

Result<std::vector<BlobSummary>> SqliteInventory::list_blobs(ByteView kind) {
  return session_.read([&](SqliteHandle& db) -> Result<std::vector<BlobSummary>> {
    std::vector<BlobSummary> blobs;
    Query query = db.query(
        "SELECT name, kind, summary, bytes, created_s, last_used_s, hits, signer FROM object "
        "WHERE kind NOT IN ('', '" CUKILN_FAILURE_KIND "') AND (?1='' OR kind=?1) ORDER BY id");
    query.text(kind);
    for (;;) {
      CUKILN_TRY(const bool there, query.next());
      if (!there) {
        return blobs;
      }
      blobs.push_back({digest_from<BlobId>(query.column_bytes(0)),
                       std::string(query.column_bytes(1)), std::string(query.column_bytes(2)),
                       not_negative(query.column_number(3)), query.column_number(4),
                       query.column_number(5), query.column_number(6),
                       std::string(query.column_bytes(7))});
    }
  });
}

Result<SqliteInventory::BlobTotals> SqliteInventory::blob_totals() {
  return session_.read([](SqliteHandle& db) -> Result<BlobTotals> {
    Query query = db.query(
        "SELECT count(*), coalesce(sum(bytes), 0) FROM object "
        "WHERE kind NOT IN ('', '" CUKILN_FAILURE_KIND "')");
    CUKILN_TRY([[maybe_unused]] const bool row, query.next());
    return BlobTotals{not_negative(query.column_number(0)), not_negative(query.column_number(1))};
  });
}

std::uint64_t SqliteInventory::peak_bytes(const RequestDigest& request) {
  const auto row = session_.read([&](SqliteHandle& db) { return request_of(db, request); });
  return row && *row ? not_negative((*row)->peak_bytes) : 0;
}

StoreStats SqliteInventory::stats() {
  StoreStats stats;
  const auto entries = session_.read(
      [](SqliteHandle& db) { return db.number("SELECT count(*) FROM object WHERE kind=''"); });
  stats.entries = entries ? static_cast<std::uint64_t>(*entries) : 0;
  stats.bytes = session_.file_bytes();
  const StoreCounters& counters = accounting_.counters();
  stats.hits = counters[StoreEvent::hit];
  stats.misses = counters[StoreEvent::miss];
  stats.stored = counters[StoreEvent::stored];
  stats.evicted = counters[StoreEvent::evicted];
  stats.corrupt = counters[StoreEvent::corrupt];
  stats.errors = counters[StoreEvent::error];
  return stats;
}

Result<std::map<std::string, std::int64_t>> SqliteInventory::counters() {
  CUKILN_TRY(auto all,
             session_.read([](SqliteHandle& db) -> Result<std::map<std::string, std::int64_t>> {
               std::map<std::string, std::int64_t> stored;
               Query query = db.query("SELECT name, value FROM counter");
               for (;;) {
                 CUKILN_TRY(const bool row, query.next());
                 if (!row) {
                   return stored;
                 }
                 const std::int64_t value = query.column_number(1);
                 const bool possible = value >= 0 && value <= kMaxCount;
                 stored[std::string(query.column_bytes(0))] = possible ? value : 0;
               }
             }));
  for (const auto& [name, delta] : accounting_.pending().counters()) {
    all[name] = sum_of_counts(all[name], delta);
  }
  return all;
}

Result<std::optional<std::int64_t>> SqliteInventory::oldest_use_s() {
  return session_.read([](SqliteHandle& db) -> Result<std::optional<std::int64_t>> {
    Query query =
        db.query("SELECT last_used_s FROM object WHERE kind='' ORDER BY last_used_s LIMIT 1");
    CUKILN_TRY(const bool row, query.next());
    return row ? std::optional(query.column_number(0)) : std::nullopt;
  });
}

Result<std::string> SqliteInventory::source_text(const CacheKey& key) {
  struct Row {
    std::string text, request, canonical;
  };
  auto read = session_.read([&](SqliteHandle& db) -> Result<std::optional<Row>> {
    Query query = db.query(
        "SELECT p.source_text, o.request, r.canonical FROM object o "
        "LEFT JOIN payload p ON p.id=o.id LEFT JOIN request r ON r.digest=o.request "
        "WHERE o.name=? AND o.kind=''");
    CUKILN_TRY(const bool there, query.blob(view_of(key)).next());
    return there ? std::optional<Row>({std::string(query.column_bytes(0)),
                                       std::string(query.column_bytes(1)),
                                       std::string(query.column_bytes(2))})
                 : std::nullopt;
  });
  if (!read) {
    return std::move(read).error();
  }
  if (!*read) {
    return make_error(ErrorCode::not_found, "no entry {} in the {} store", key.hex(),
                      accounting_.tier_name());
  }
  const Row& row = **read;
  SourceTextDecoder decoder;
  const auto text = decoder.decode(
      row.text, only_source_of(digest_from<RequestDigest>(row.request), row.canonical));
  if (!text) {
    Error damage =
        make_error(ErrorCode::corrupt, "{}, of the entry {}", text.error().message(), key.hex());
    accounting_.drop_damaged(ObjectName::of(key), StoreAccounting::Damage::entry, damage);
    return damage;
  }
  return std::string(*text);
}

std::optional<StatRecord> SqliteInventory::find_stat_record(const std::string& path) {
  if (auto pending = accounting_.pending().find_stat_record(path)) {
    return pending;
  }
  // With those that follow in its folder, which are usually asked for next: each query locks the
  // file. If one before it is asked for too, all of the folder: headers include each other in any
  // order.
  const std::string folder = path.substr(0, path.rfind('/'));
  const std::string end = folder + '0';  // greater than all in the folder
  bool reads_all = false;
  {
    const ForkSafeLock lock(mutex_);
    if (auto ahead = read_ahead_.extract(path)) {
      return std::move(ahead.mapped());
    }
    if (folders_asked_.size() >= kMaxReadAhead) {
      folders_asked_.clear();
    }
    reads_all = ++folders_asked_[folder] == 2;
  }
  const std::string begin = reads_all ? folder + '/' : path;
  std::int64_t rows = 0;
  auto found = session_.read([&](SqliteHandle& db) -> Result<std::vector<StatRecord>> {
    std::vector<StatRecord> records;
    Query query = db.query("SELECT " CUKILN_STAT_COLUMNS
                           " FROM stat_cache WHERE path>=? AND path<? ORDER BY path LIMIT ?");
    query.text(begin).text(end).number(reads_all ? kMaxOfFolder : kFewRecords);
    for (;;) {
      CUKILN_TRY(const bool row, query.next());
      if (!row) {
        return records;
      }
      ++rows;
      if (auto record = stat_record_of(query)) {
        records.push_back(*std::move(record));
      }
    }
  });
  if (!found) {
    return std::nullopt;
  }
  std::optional<StatRecord> own;
  {
    const ForkSafeLock lock(mutex_);
    if (read_ahead_.size() > kMaxReadAhead) {
      read_ahead_.clear();
    }
    for (StatRecord& record : *found) {
      if (record.path == path) {
        own = std::move(record);
      } else {
        std::string key = record.path;
        read_ahead_.insert_or_assign(std::move(key), std::move(record));
      }
    }
  }
  const bool may_follow = !own && reads_all && rows == kMaxOfFolder;  // in a folder of more
  return may_follow ? find_stat_record(path) : own;
}

}  // namespace cukiln
