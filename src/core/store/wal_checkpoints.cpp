// SPDX-License-Identifier: Apache-2.0
#include "core/store/wal_checkpoints.hpp"

#include <algorithm>
#include <chrono>

#include "core/base/result.hpp"

namespace cukiln {

namespace {

// A log this many times as long as usual is merged by any process.
constexpr std::uint64_t kOwnerDelayFactor = 8;

}  // namespace

Result<bool> WalCheckpoints::run(SqliteHandle& db) {
  const auto began = std::chrono::steady_clock::now();
  // Does not wait for readers: with one in the way the next checkpoint truncates the WAL.
  db.set_busy_timeout(0);
  Query query = db.query("PRAGMA wal_checkpoint(TRUNCATE)");
  const auto row = query.next();
  const bool done = row && *row && query.column_number(0) == 0;
  {
    const ForkSafeLock lock(mutex_);
    ++(!row ? runs_.failed : done ? runs_.done : runs_.blocked);
    runs_.total_time += std::chrono::steady_clock::now() - began;
  }
  db.set_busy_timeout(static_cast<int>(options_.write_wait.count()));
  if (!row) {
    return row.error();
  }
  if (done) {
    db.forget_wal_pages();
  }
  return done;
}

void WalCheckpoints::run_if_long(SqliteHandle& db) {
  const auto pages = static_cast<std::uint64_t>(db.wal_pages());
  const auto page_bytes = static_cast<std::uint64_t>(options_.page_bytes);
  const auto stuck = static_cast<std::uint64_t>(stuck_pages_.load(std::memory_order_relaxed));
  // A merge may need as much space as the WAL has: on a full disk the reserve must have room for
  // it.
  const std::uint64_t reserve = limits_.reserve_bytes();
  const std::uint64_t limit =
      reserve == 0 ? options_.checkpoint_bytes : std::min(options_.checkpoint_bytes, reserve / 2);
  if ((pages - std::min(stuck, pages)) * page_bytes < limit) {
    if (pages < stuck) {
      stuck_pages_.store(0, std::memory_order_relaxed);
    }
    return;
  }
  // A maintenance owner that hangs must not let the log grow without a limit.
  if (pages * page_bytes < kOwnerDelayFactor * limit && !owner_.is_due_here()) {
    return;
  }
  const auto done = run(db);
  // With a reader in the way, tries again when the WAL has grown as much once more.
  const bool truncated = done && *done;
  stuck_pages_.store(truncated ? 0 : static_cast<int>(pages), std::memory_order_relaxed);
  if (!truncated && pages * page_bytes > 4 * options_.checkpoint_bytes) {
    options_.log.warn(
        "the store's write-ahead log has {} MiB because a reader holds it; expected at "
        "most {} MiB",
        pages * page_bytes >> 20, options_.checkpoint_bytes >> 20);
  }
}

}  // namespace cukiln
