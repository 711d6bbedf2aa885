#include <sys/stat.h>

#include <algorithm>

#include "base/result.hpp"
#include "store/sqlite_store.hpp"

namespace cukiln {

namespace {

constexpr std::int64_t kBatchRows = 100;
constexpr std::int64_t kVacuumPages = 2048;
constexpr std::int64_t kNever = INT64_MIN;

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

Result<std::vector<CacheKey>> all_keys(SqliteHandle& db) {
  std::vector<CacheKey> keys;
  Query query = db.query("SELECT key FROM entry ORDER BY id");
  for (;;) {
    CUKILN_TRY(const bool row, query.next());
    if (!row) {
      return keys;
    }
    keys.push_back(CacheKey{digest_from(query.column_bytes(0))});
  }
}

}  // namespace

Result<void> SqliteStore::make_room(SqliteHandle& db, std::uint64_t bytes) {
  const std::uint64_t cap = session_->options().max_bytes;
  for (bool first = true;; first = false) {
    CUKILN_TRY(const std::uint64_t live, live_bytes(db));
    if (live + bytes <= cap) {
      return {};
    }
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
    CUKILN_TRY(const Evicted gone, evict_batch(db, live + bytes - cap + cap / 64, kNever));
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
                                                      std::int64_t unused_since_s) {
  CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
  std::vector<std::int64_t> ids;
  CUKILN_TRY(const Evicted gone, choose(db, bytes, unused_since_s, kBatchRows, &ids));
  for (const std::int64_t id : ids) {
    CUKILN_CHECK(db.query("DELETE FROM cubin WHERE id=(SELECT cubin_id FROM entry WHERE id=?)")
                     .number(id)
                     .run());
    CUKILN_CHECK(db.query("DELETE FROM entry WHERE id=?").number(id).run());
  }
  CUKILN_CHECK(transaction.commit());
  evicted_.fetch_add(gone.entries, std::memory_order_relaxed);
  pending_.count("evicted", static_cast<std::int64_t>(gone.entries));
  return gone;
}

void SqliteStore::free_disk(SqliteHandle& db, std::uint64_t bytes) {
  // Deleting writes to the WAL first, so on a full disk nothing can be deleted without the reserve.
  // Each step may fail for want of space and the next still help.
  session_->free_reserve();
  static_cast<void>(session_->checkpoint(db));
  static_cast<void>(evict_batch(db, 4 * bytes + session_->reserve_bytes(), kNever));
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

Result<GcReport> SqliteStore::collect(const GcOptions& options) {
  GcReport report;
  report.bytes_before = report.bytes_after = file_bytes();
  const std::int64_t since = options.max_age_s ? now_s(nullptr) - *options.max_age_s : kNever;
  const auto excess = [&](SqliteHandle& db) -> Result<std::uint64_t> {
    CUKILN_TRY(const std::uint64_t live, live_bytes(db));
    return options.max_bytes && live > *options.max_bytes ? live - *options.max_bytes : 0;
  };
  if (options.dry_run) {
    CUKILN_TRY(const Evicted would_go, session_->read([&](SqliteHandle& db) -> Result<Evicted> {
      CUKILN_TRY(const std::uint64_t bytes, excess(db));
      return choose(db, bytes, since, -1, nullptr);
    }));
    report.entries = would_go.entries;
    report.bytes = would_go.bytes;
    return report;
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
  const auto wait = session_->options().write_wait;
  CUKILN_CHECK(flush(wait));
  for (;;) {  // one short turn per batch: others may write in between
    CUKILN_TRY(const Evicted gone, session_->write(wait, [&](SqliteHandle& db) -> Result<Evicted> {
      CUKILN_TRY(const std::uint64_t bytes, excess(db));
      auto evicted = evict_batch(db, bytes, since);
      if (!evicted && db.trouble() == SqliteTrouble::full) {
        free_disk(db, bytes);
        evicted = evict_batch(db, bytes, since);
      }
      return evicted;
    }));
    report.entries += gone.entries;
    report.bytes += gone.bytes;
    if (gone.entries == 0) {
      break;
    }
  }
  CUKILN_CHECK(shrink_file());
  report.bytes_after = file_bytes();
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
    return {};
  });
}

Result<std::uint64_t> SqliteStore::remove_all() {
  CUKILN_TRY(const std::uint64_t removed,
             session_->write(
                 session_->options().write_wait, [](SqliteHandle& db) -> Result<std::uint64_t> {
                   CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
                   CUKILN_TRY(const std::int64_t entries, db.number("SELECT count(*) FROM entry"));
                   CUKILN_CHECK(db.query("DELETE FROM entry").run());
                   CUKILN_CHECK(db.query("DELETE FROM cubin").run());
                   CUKILN_CHECK(transaction.commit());
                   return static_cast<std::uint64_t>(entries);
                 }));
  CUKILN_CHECK(shrink_file());
  return removed;
}

Result<void> SqliteStore::verify_entry(const CacheKey& key, VerifyReport& report) {
  std::optional<Error> damage;
  auto entry = session_->inspect([&](SqliteHandle& db) { return look_up(db, key, 0, &damage); });
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
      CUKILN_TRY(const bool removed, remove(finding.key));
      report.repaired += removed ? 1 : 0;
      corrupt_.fetch_add(1, std::memory_order_relaxed);
      pending_.count("corrupt", 1);
    }
  }
  return report;
}

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
      entry.key = CacheKey{digest_from(query.column_bytes(0))};
      entry.created_s = query.column_number(1);
      entry.last_used_s = query.column_number(2);
      entry.hits = query.column_number(3);
      entry.compile_us = query.column_number(4);
      entry.origin = static_cast<Origin>(query.column_number(5));
      entry.cubin_bytes = static_cast<std::uint64_t>(query.column_number(6));
      entry.dependencies = static_cast<std::size_t>(query.column_number(7));
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
                 stored[std::string(query.column_bytes(0))] = query.column_number(1);
               }
             }));
  for (const auto& [name, delta] : pending_.counters()) {
    all[name] += delta;
  }
  return all;
}

}  // namespace cukiln
