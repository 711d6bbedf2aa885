// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>

#include "base/result.hpp"
#include "store/old_store.hpp"
#include "store/sqlite_store.hpp"

namespace cukiln {

namespace {

constexpr std::uint64_t kSpareForKeeper = 8;  // an eighth of the cap
constexpr std::int64_t kBatchRows = 100;
// A collection doubles its batches while they take less than this: the rows of many share pages.
constexpr auto kShortTurn = std::chrono::milliseconds(50);
constexpr std::int64_t kMostBatchRows = 6400;
constexpr std::int64_t kVacuumPages = 2048;
constexpr std::int64_t kNever = INT64_MIN;
constexpr std::int64_t kOldStoreKeptS = 30 * 86'400;

std::uint64_t size_of(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

/// Bytes of the pages in use: what the cap counts.
Result<std::uint64_t> live_bytes(SqliteHandle& db) {
  CUKILN_TRY(const std::int64_t pages, db.number("PRAGMA page_count"));
  CUKILN_TRY(const std::int64_t unused, db.number("PRAGMA freelist_count"));
  CUKILN_TRY(const std::int64_t size, db.number("PRAGMA page_size"));
  return static_cast<std::uint64_t>((pages - unused) * size);
}

}  // namespace

void SqliteStore::note_gc(UpkeepRuns UpkeepStats::*trigger,
                          std::chrono::steady_clock::time_point began, const Result<bool>& done) {
  const ForkSafeLock hold(upkeep_mutex_);
  UpkeepRuns& runs = upkeep_.*trigger;
  ++(!done ? runs.failed : *done ? runs.done : runs.held_up);
  runs.took += std::chrono::steady_clock::now() - began;
  if (done && *done) {
    upkeep_.gc_last_success_s = now_s(nullptr);
  }
}

Result<void> SqliteStore::make_room(SqliteHandle& db, std::uint64_t bytes) {
  const auto began = std::chrono::steady_clock::now();
  bool is_run = false;
  auto made = evict_for(db, bytes, is_run);
  if (is_run) {
    session_->remove_leftovers();
    note_gc(&UpkeepStats::gc_by_put, began, made ? Result<bool>(true) : Result<bool>(made.error()));
  }
  return made;
}

Result<void> SqliteStore::evict_for(SqliteHandle& db, std::uint64_t bytes, bool& is_run) {
  const std::uint64_t cap = session_->max_bytes();
  for (bool first = true;; first = false) {
    CUKILN_TRY(const std::uint64_t live, live_bytes(db));
    if (live + bytes <= cap ||
        (live + bytes <= cap + cap / kSpareForKeeper && !session_->is_keeper())) {
      return {};  // a keeper will see to it
    }
    is_run = true;
    if (first && !pending_.empty()) {  // what this process uses counts before it is chosen to go
      PendingWrites::Batch batch = pending_.take();
      auto transaction = WriteTransaction::begin(db);
      auto applied = transaction ? apply(db, batch) : Result<void>(transaction.error());
      if (applied) {
        applied = transaction->commit();
      }
      if (!applied) {
        pending_.give_back(std::move(batch));
        return applied;
      }
    }
    // A little more than is needed, so that not every put at the cap has to evict.
    CUKILN_TRY(const Evicted gone,
               evict_batch(db, live + bytes - cap + cap / 64, kNever, kBatchRows));
    if (gone.entries == 0) {
      return {};  // the cap is below what an empty store takes
    }
  }
}

Result<SqliteStore::Evicted> SqliteStore::choose(SqliteHandle& db, std::uint64_t bytes,
                                                 std::int64_t unused_since_s, std::int64_t limit,
                                                 std::vector<std::int64_t>* ids) {
  CUKILN_TRY(const std::int64_t page, db.number("PRAGMA page_size"));
  Evicted chosen;
  Query query =
      db.query("SELECT id, cubin_bytes, last_used_s FROM entry ORDER BY last_used_s, id LIMIT ?");
  query.number(limit);
  for (;;) {
    CUKILN_TRY(const bool row, query.next());
    if (!row || (chosen.bytes >= bytes && query.column_number(2) >= unused_since_s)) {
      return chosen;
    }
    // Its row shares pages with others: the cubin's own pages are what surely gets free.
    const std::int64_t size = query.column_number(1);
    chosen.bytes += static_cast<std::uint64_t>((size + page - 1) / page * page);
    ++chosen.entries;
    if (ids != nullptr) {
      ids->push_back(query.column_number(0));
    }
  }
}

Result<SqliteStore::Evicted> SqliteStore::evict_batch(SqliteHandle& db, std::uint64_t bytes,
                                                      std::int64_t unused_since_s,
                                                      std::int64_t rows) {
  CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
  std::vector<std::int64_t> ids;
  CUKILN_TRY(const Evicted gone, choose(db, bytes, unused_since_s, rows, &ids));
  for (const std::int64_t id : ids) {
    CUKILN_CHECK(db.query("DELETE FROM entry WHERE id=?").number(id).run());
  }
  CUKILN_CHECK(transaction.commit());
  evicted_.fetch_add(gone.entries, std::memory_order_relaxed);
  pending_.count("evicted", static_cast<std::int64_t>(gone.entries));
  pending_.count("evicted_bytes", static_cast<std::int64_t>(gone.bytes));
  return gone;
}

void SqliteStore::free_disk(SqliteHandle& db, std::uint64_t bytes) {
  // Each step may fail for want of space and the next still help.
  make_room_to_delete(db);
  static_cast<void>(evict_batch(db, 4 * bytes + session_->reserve_bytes(), kNever, kBatchRows));
  give_back_space(db);
}

void SqliteStore::make_room_to_delete(SqliteHandle& db) {
  session_->free_reserve();
  static_cast<void>(session_->checkpoint(db));
}

void SqliteStore::give_back_space(SqliteHandle& db) {
  static_cast<void>(db.query("PRAGMA incremental_vacuum(2048)").run());
  static_cast<void>(session_->checkpoint(db));
}

std::uint64_t SqliteStore::file_bytes() {
  const auto name = session_->generation_name();
  if (!name) {
    return 0;
  }
  const std::string database = join_path(directory().path(*name), "store.db");
  return size_of(database) + size_of(database + "-wal");
}

Result<void> SqliteStore::maintain() {
  if (read_only()) {
    return {};
  }
  session_->become_keeper();
  CUKILN_CHECK(flush(session_->options().write_wait));
  if (!session_->is_keeper()) {
    return {};
  }
  const auto began = std::chrono::steady_clock::now();
  auto below = bring_below_cap();
  note_gc(&UpkeepStats::gc_by_timer, began, below);
  session_->checkpoint_before_close();
  return below ? Result<void>() : Result<void>(below.error());
}

/// False: another process collects.
Result<bool> SqliteStore::bring_below_cap() {
  CUKILN_TRY(const std::uint64_t live,
             session_->read([](SqliteHandle& db) { return live_bytes(db); }));
  if (live <= session_->max_bytes()) {
    return true;
  }
  GcOptions options;
  options.max_bytes = session_->max_bytes();
  CUKILN_TRY(const GcReport report, collect(options));
  return !report.already_running;
}

Result<GcReport> SqliteStore::collect(const GcOptions& options) {
  GcReport report;
  report.bytes_before = report.bytes_after = file_bytes();
  const std::int64_t since = options.max_age_s ? now_s(nullptr) - *options.max_age_s : kNever;
  const auto excess = [&](SqliteHandle& db) -> Result<std::uint64_t> {
    CUKILN_TRY(const std::uint64_t live, live_bytes(db));
    return options.max_bytes && live > *options.max_bytes ? live - *options.max_bytes : 0;
  };
  const auto remove_old = [&] {
    const SqliteStoreOptions& ours = session_->options();
    report.old_store_bytes =
        remove_old_store(folder_of(directory().root()), ours.facts->user(),
                         ours.clock->now_s() - kOldStoreKeptS, options.dry_run);
  };
  if (options.dry_run) {
    remove_old();
    CUKILN_TRY(const Evicted would_go, session_->read([&](SqliteHandle& db) -> Result<Evicted> {
      CUKILN_TRY(const std::uint64_t bytes, excess(db));
      return choose(db, bytes, since, -1, nullptr);
    }));
    report.entries = would_go.entries;
    report.bytes = would_go.bytes;
    return report;
  }
  if (read_only()) {
    return make_error(ErrorCode::io, "the store in {} is read-only", directory().root());
  }
  auto alone = FileLock::acquire(directory().path("gc.lock"), FileLock::Mode::exclusive,
                                 std::chrono::milliseconds(0));
  if (!alone) {
    if (alone.error().code() != ErrorCode::timeout) {
      return std::move(alone).error();
    }
    report.already_running = true;
    return report;
  }
  // Uses count before anything is chosen to go; a full disk has no room for them.
  static_cast<void>(flush(session_->options().write_wait));
  std::int64_t most_rows = kMostBatchRows;
  for (std::int64_t rows = kBatchRows;;) {  // one short turn per batch: others may write in between
    std::chrono::steady_clock::duration turn{};
    const auto gone = write_deletion([&](SqliteHandle& db) -> Result<Evicted> {
      const auto began = std::chrono::steady_clock::now();
      db.use_cache(SqliteHandle::Cache::large);
      CUKILN_TRY(const std::uint64_t bytes, excess(db));
      CUKILN_TRY(const Evicted batch, evict_batch(db, bytes, since, rows));
      // At once, while few pages are free: SQLite looks through all of them for each.
      CUKILN_CHECK(db.query("PRAGMA incremental_vacuum(2048)").run());
      turn = std::chrono::steady_clock::now() - began;
      return batch;
    });
    if (!gone && rows > kBatchRows) {
      rows = most_rows = kBatchRows;  // a full disk has no room for more
      continue;
    }
    if (!gone) {
      return gone.error();
    }
    report.entries += gone->entries;
    report.bytes += gone->bytes;
    if (gone->entries == 0) {
      break;
    }
    rows = turn < kShortTurn ? std::min(rows * 2, most_rows) : std::max(rows / 2, kBatchRows);
  }
  CUKILN_CHECK(shrink_file());
  report.bytes_after = file_bytes();
  remove_old();
  return report;
}

Result<void> SqliteStore::shrink_file() {
  const auto wait = session_->options().write_wait;
  for (bool more = true; more;) {
    CUKILN_TRY(more, session_->write(wait, [&](SqliteHandle& db) -> Result<bool> {
      static_assert(kVacuumPages == 2048);
      CUKILN_CHECK(db.query("PRAGMA incremental_vacuum(2048)").run());
      CUKILN_TRY(const std::int64_t unused, db.number("PRAGMA freelist_count"));
      return unused > 0;
    }));
  }
  return session_->write(wait, [&](SqliteHandle& db) -> Result<void> {
    CUKILN_TRY([[maybe_unused]] const bool cut, session_->checkpoint(db));
    session_->remove_leftovers();
    session_->make_reserve();
    db.use_cache(SqliteHandle::Cache::small);
    return {};
  });
}

Result<bool> SqliteStore::remove(const CacheKey& key) {
  int attempts = 0;
  CUKILN_TRY(const bool removed, write_deletion([&](SqliteHandle& db) -> Result<bool> {
               ++attempts;
               CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
               CUKILN_TRY(const bool there, remove_entry(db, key));
               CUKILN_CHECK(transaction.commit());
               return there;
             }));
  if (attempts > 1) {
    CUKILN_CHECK(shrink_file());  // the reserve comes back
  }
  return removed;
}

Result<std::uint64_t> SqliteStore::remove_all() {
  CUKILN_TRY(const std::uint64_t removed,
             write_deletion([](SqliteHandle& db) -> Result<std::uint64_t> {
               CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
               CUKILN_TRY(const std::int64_t entries, db.number("SELECT count(*) FROM entry"));
               CUKILN_CHECK(db.query("DELETE FROM entry").run());
               CUKILN_CHECK(db.query("DELETE FROM cubin").run());
               CUKILN_CHECK(db.query("DELETE FROM request").run());
               CUKILN_CHECK(transaction.commit());
               return static_cast<std::uint64_t>(entries);
             }));
  CUKILN_CHECK(shrink_file());
  return removed;
}

}  // namespace cukiln
