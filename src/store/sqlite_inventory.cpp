// SPDX-License-Identifier: Apache-2.0
// What a SqliteStore has, and what was counted: all that people and metrics ask.

#include <algorithm>

#include "base/result.hpp"
#include "store/sqlite_store.hpp"
#include "store/stored_row.hpp"

namespace cukiln {

Result<std::vector<EntrySummary>> SqliteStore::list() {
  return session_->read([](SqliteHandle& db) -> Result<std::vector<EntrySummary>> {
    std::vector<EntrySummary> entries;
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
      // A damaged row shows when it is read; until then it has no size below none.
      entry.cubin_bytes =
          static_cast<std::uint64_t>(std::max<std::int64_t>(query.column_number(6), 0));
      entry.dependencies =
          static_cast<std::size_t>(std::max<std::int64_t>(query.column_number(7), 0));
      entry.labels = {std::string(query.column_bytes(8)), std::string(query.column_bytes(9)),
                      std::string(query.column_bytes(10)), std::string(query.column_bytes(11)),
                      std::string(query.column_bytes(12))};
      entry.signer = query.column_bytes(13);
      if (auto kernels = decode_kernels(query.column_bytes(14))) {
        entry.kernels = *std::move(kernels);  // a damaged list shows when the entry is read
      }
      entries.push_back(std::move(entry));
    }
  });
}

StoreStats SqliteStore::stats() {
  StoreStats stats;
  const auto entries =
      session_->read([](SqliteHandle& db) { return db.number("SELECT count(*) FROM entry"); });
  stats.entries = entries ? static_cast<std::uint64_t>(*entries) : 0;
  stats.bytes = file_bytes();
  stats.hits = hits_.load(std::memory_order_relaxed);
  stats.misses = misses_.load(std::memory_order_relaxed);
  stats.stored = stored_.load(std::memory_order_relaxed);
  stats.evicted = evicted_.load(std::memory_order_relaxed);
  stats.corrupt = corrupt_.load(std::memory_order_relaxed);
  stats.errors = errors_.load(std::memory_order_relaxed);
  return stats;
}

Result<std::map<std::string, std::int64_t>> SqliteStore::counters() {
  CUKILN_TRY(auto all,
             session_->read([](SqliteHandle& db) -> Result<std::map<std::string, std::int64_t>> {
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
  for (const auto& [name, delta] : pending_.counters()) {
    all[name] += delta;
  }
  return all;
}

Result<std::optional<std::int64_t>> SqliteStore::oldest_use_s() {
  return session_->read([](SqliteHandle& db) -> Result<std::optional<std::int64_t>> {
    Query query = db.query("SELECT last_used_s FROM entry ORDER BY last_used_s LIMIT 1");
    CUKILN_TRY(const bool row, query.next());
    return row ? std::optional(query.column_number(0)) : std::nullopt;
  });
}

UpkeepStats SqliteStore::upkeep() const {
  UpkeepStats stats;
  {
    const ForkSafeLock hold(upkeep_mutex_);
    stats = upkeep_;
  }
  stats.checkpoints = session_->checkpoints();
  return stats;
}

}  // namespace cukiln
