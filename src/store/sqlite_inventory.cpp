// SPDX-License-Identifier: Apache-2.0
#include "store/sqlite_inventory.hpp"

#include <algorithm>

#include "base/result.hpp"
#include "store/entry_codec.hpp"
#include "store/entry_rows.hpp"
#include "store/peak_rows.hpp"

namespace cukiln {

Result<std::vector<EntrySummary>> SqliteInventory::list() {
  return session_.read([](SqliteHandle& db) -> Result<std::vector<EntrySummary>> {
    std::vector<EntrySummary> entries;
    CUKILN_TRY(const PeakRows rows, read_peaks(db));
    Query query = db.query(
        "SELECT key, created_s, last_used_s, hits, compile_us, origin, cubin_bytes, "
        "dependency_count, "
        "name, source, target, flags, compiler, signer, kernels FROM entry ORDER BY id");
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
      entry.compile_us = query.column_number(4);
      entry.origin = static_cast<Origin>(query.column_number(5));
      // Damage is reported when the entry is read; here a size is only kept from being negative.
      entry.cubin_bytes =
          static_cast<std::uint64_t>(std::max<std::int64_t>(query.column_number(6), 0));
      entry.dependencies =
          static_cast<std::size_t>(std::max<std::int64_t>(query.column_number(7), 0));
      entry.labels = {std::string(query.column_bytes(8)), std::string(query.column_bytes(9)),
                      std::string(query.column_bytes(10)), std::string(query.column_bytes(11)),
                      std::string(query.column_bytes(12))};
      entry.signer = query.column_bytes(13);
      if (auto kernels = decode_kernels(query.column_bytes(14))) {
        entry.kernels = *std::move(kernels);
      }
      const auto peak = rows.peaks.find(entry.key);
      entry.peak_bytes = peak != rows.peaks.end() ? peak->second : 0;
      entries.push_back(std::move(entry));
    }
  });
}

std::uint64_t SqliteInventory::peak_bytes(const RequestDigest& request) {
  const auto peak = session_.read([&](SqliteHandle& db) { return read_peak(db, request); });
  return peak ? *peak : 0;
}

StoreStats SqliteInventory::stats() {
  StoreStats stats;
  const auto entries =
      session_.read([](SqliteHandle& db) { return db.number("SELECT count(*) FROM entry"); });
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
    Query query = db.query("SELECT last_used_s FROM entry ORDER BY last_used_s LIMIT 1");
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
        "SELECT e.source_text, e.request, r.canonical"
        " FROM entry e LEFT JOIN request r ON r.digest=e.request WHERE e.key=?");
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
    accounting_.drop_damaged(key, damage);
    return damage;
  }
  return std::string(*text);
}

std::optional<StatRecord> SqliteInventory::find_stat_record(const std::string& path) {
  if (auto pending = accounting_.pending().find_stat_record(path)) {
    return pending;
  }
  auto found = session_.read([&](SqliteHandle& db) -> Result<std::optional<StatRecord>> {
    Query query = db.query("SELECT " CUKILN_STAT_COLUMNS " FROM stat_cache WHERE path=?");
    CUKILN_TRY(const bool row, query.text(path).next());
    return row ? stat_record_of(query) : std::nullopt;
  });
  return found ? *std::move(found) : std::nullopt;
}

}  // namespace cukiln
