// SPDX-License-Identifier: Apache-2.0
#include "core/store/sqlite_maintenance.hpp"

#include <algorithm>

#include "core/base/file_lock.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

// A collection doubles its batches while they take less than this: larger ones share more pages.
constexpr auto kShortBatch = std::chrono::milliseconds(50);
constexpr std::int64_t kMaxBatchRows = 6400;

}  // namespace

Result<void> StoreMaintenance::maintain() {
  if (session_.read_only()) {
    return {};
  }
  session_.try_acquire_maintenance();
  CUKILN_CHECK(accounting_.flush(session_.options().write_wait));
  if (!session_.is_maintenance_due_here()) {
    return {};
  }
  const auto began = std::chrono::steady_clock::now();
  auto below = bring_below_cap();
  log_.add(&MaintenanceStats::gc_by_timer, began, below, accounting_.now_s());
  session_.checkpoint_before_close();
  return below ? Result<void>() : Result<void>(below.error());
}

Result<bool> StoreMaintenance::bring_below_cap() {
  CUKILN_TRY(const std::uint64_t live,
             session_.read([](SqliteHandle& db) { return live_bytes(db); }));
  if (live <= session_.limits().max_bytes()) {
    return true;
  }
  GcOptions options;
  options.max_bytes = session_.limits().max_bytes();
  CUKILN_TRY(const GcReport report, collect(options));
  return !report.already_running;
}

Result<GcReport> StoreMaintenance::collect(const GcOptions& options) {
  GcReport report;
  report.bytes_before = report.bytes_after = session_.file_bytes();
  const std::int64_t since =
      options.max_age_s ? accounting_.now_s() - *options.max_age_s : Eviction::kNever;
  const auto excess = [&](SqliteHandle& db) -> Result<std::uint64_t> {
    CUKILN_TRY(const std::uint64_t live, live_bytes(db));
    return options.max_bytes && live > *options.max_bytes ? live - *options.max_bytes : 0;
  };
  if (options.dry_run) {
    CUKILN_TRY(const Eviction::Evicted would_go,
               session_.read([&](SqliteHandle& db) -> Result<Eviction::Evicted> {
                 CUKILN_TRY(const std::uint64_t bytes, excess(db));
                 return eviction_.choose(db, bytes, since, -1, nullptr);
               }));
    report.entries = would_go.entries;
    report.blobs = would_go.blobs;
    report.bytes = would_go.bytes;
    return report;
  }
  if (session_.read_only()) {
    return make_error(ErrorCode::io, "the store in {} is read-only", session_.directory().root());
  }
  auto lock = FileLock::acquire(session_.directory().path("gc.lock"), FileLock::Mode::exclusive,
                                std::chrono::milliseconds(0));
  if (!lock) {
    if (lock.error().code() != ErrorCode::timeout) {
      return std::move(lock).error();
    }
    report.already_running = true;
    return report;
  }
  // Pending uses count in the choice. The flush may fail: a full disk has no room for it.
  static_cast<void>(accounting_.flush(session_.options().write_wait));
  std::int64_t max_rows = kMaxBatchRows;
  // The writer lock is held for one short batch at a time: others may write in between.
  for (std::int64_t rows = Eviction::kBatchRows;;) {
    std::chrono::steady_clock::duration batch_time{};
    const auto gone = eviction_.write_deletion([&](SqliteHandle& db) -> Result<Eviction::Evicted> {
      const auto began = std::chrono::steady_clock::now();
      db.use_cache(SqliteHandle::Cache::large);
      CUKILN_TRY(const std::uint64_t bytes, excess(db));
      CUKILN_TRY(const Eviction::Evicted batch, eviction_.evict_batch(db, bytes, since, rows));
      // After each batch, while few pages are free: SQLite searches all free pages for each.
      CUKILN_CHECK(db.query("PRAGMA incremental_vacuum(2048)").run());
      batch_time = std::chrono::steady_clock::now() - began;
      return batch;
    });
    if (!gone && rows > Eviction::kBatchRows) {
      rows = max_rows = Eviction::kBatchRows;  // a full disk has no room for a larger one
      continue;
    }
    if (!gone) {
      return gone.error();
    }
    report.entries += gone->entries;
    report.blobs += gone->blobs;
    report.bytes += gone->bytes;
    if (gone->rows() == 0) {
      break;
    }
    rows = batch_time < kShortBatch ? std::min(rows * 2, max_rows)
                                    : std::max(rows / 2, Eviction::kBatchRows);
  }
  CUKILN_CHECK(eviction_.shrink_file());
  report.bytes_after = session_.file_bytes();
  return report;
}

}  // namespace cukiln
