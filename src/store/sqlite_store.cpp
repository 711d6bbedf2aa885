// SPDX-License-Identifier: Apache-2.0
#include "store/sqlite_store.hpp"

#include <algorithm>

#include "base/result.hpp"
#include "store/stored_row.hpp"

namespace cukiln {

namespace {

constexpr std::chrono::milliseconds kFlushWait{100};
constexpr std::int64_t kClockJumpS = 3600;

}  // namespace

Result<std::unique_ptr<SqliteStore>> SqliteStore::open(const SqliteStoreOptions& options) {
  CUKILN_TRY(std::unique_ptr<StoreSession> session, StoreSession::open(options));
  return std::unique_ptr<SqliteStore>(new SqliteStore(std::move(session)));
}

SqliteStore::~SqliteStore() {
  const ForkGate::Pass pass;
  if (!read_only()) {
    if (auto flushed = guarded([&] { return flush(kFlushWait); }); !flushed) {
      session_->options().log.debug("uses and counters were not written: {}",
                                    flushed.error().message());
    }
  }
  static_cast<void>(guarded([&]() -> Result<void> {
    session_->checkpoint_before_close();
    return {};
  }));
  session_.reset();
}

const char* SqliteStore::tier_name() const noexcept {
  return session_->options().system ? "system" : "disk";
}

void SqliteStore::note_use(const CacheKey& key) {
  if (!read_only()) {
    pending_.used(key, now_s(nullptr));
  }
}

void SqliteStore::count_damage(Damage damage) {
  constexpr const char* kCounters[] = {"corrupt_set", "corrupt_entry", "corrupt_verify"};
  corrupt_.fetch_add(1, std::memory_order_relaxed);
  if (!read_only()) {
    pending_.count("corrupt", 1);
    pending_.count(kCounters[static_cast<int>(damage)], 1);
  }
}

void SqliteStore::found_damaged(const CacheKey& key, Damage damage, const Error& why) {
  count_damage(damage);
  session_->options().log.warn("a damaged entry in the {} store is dropped: {}", tier_name(),
                               why.message());
  if (read_only()) {
    return;
  }
  pending_.damaged(key);
  // If somebody else is writing, the row goes with our next write; until then it stays a miss.
  if (auto flushed = flush(kFlushWait); !flushed) {
    session_->options().log.debug("it is removed later: {}", flushed.error().message());
  }
}

Result<void> SqliteStore::flush(std::chrono::milliseconds wait) {
  PendingWrites::Batch batch = pending_.take();
  if (batch.empty()) {
    return {};
  }
  auto done = session_->write(wait, [&](SqliteHandle& db) -> Result<void> {
    CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
    CUKILN_CHECK(apply(db, batch));
    return transaction.commit();
  });
  if (!done) {
    pending_.give_back(std::move(batch));
  }
  return done;
}

Result<PutOutcome> SqliteStore::put(const StoreEntry& entry) {
  const EncodedEntry encoded(entry);
  CUKILN_CHECK(check_consistent(entry, encoded));
  const std::string source_text = compress(entry.source_text);
  const std::uint64_t bytes = encoded.bytes() + source_text.size();
  const SqliteStoreOptions& options = session_->options();
  if (bytes > session_->max_bytes() || bytes > kMaxRowBytes) {
    return PutOutcome::too_large;
  }
  if (read_only()) {
    return PutOutcome::not_stored;
  }
  auto outcome = session_->write(options.write_wait, [&](SqliteHandle& db) -> Result<PutOutcome> {
    CUKILN_CHECK(make_room(db, bytes));
    auto first = insert(db, entry, encoded, source_text);
    if (first || db.trouble() != SqliteTrouble::full) {
      return first;
    }
    options.log.warn("no space for the store in {}: {}; old entries are removed",
                     directory().root(), first.error().message());
    free_disk(db, bytes);
    auto again = insert(db, entry, encoded, source_text);
    session_->make_reserve();
    return again;
  });
  if (!outcome) {
    errors_.fetch_add(1, std::memory_order_relaxed);
  } else if (*outcome == PutOutcome::stored) {
    stored_.fetch_add(1, std::memory_order_relaxed);
    pending_.count("stored", 1);
  }
  return outcome;
}

Result<PutOutcome> SqliteStore::insert(SqliteHandle& db, const StoreEntry& entry,
                                       const EncodedEntry& encoded, ByteView source_text) {
  PendingWrites::Batch batch = pending_.take();
  auto outcome = insert(db, entry, encoded, source_text, batch);
  if (!outcome || *outcome != PutOutcome::stored) {
    pending_.give_back(std::move(batch));
  }
  return outcome;
}

Result<PutOutcome> SqliteStore::insert(SqliteHandle& db, const StoreEntry& entry,
                                       const EncodedEntry& encoded, ByteView source_text,
                                       const PendingWrites::Batch& batch) {
  CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
  for (const CacheKey& damaged : batch.damaged) {
    CUKILN_TRY([[maybe_unused]] const bool removed, remove_entry(db, damaged));
  }
  std::optional<Error> damage;
  CUKILN_TRY(const auto there, look_up(db, entry.key, &damage));
  if (there) {
    CUKILN_TRY(const bool known, is_recorded(db, entry.request, entry.key));
    if (!known) {  // it could not be found, or it would not have been compiled again
      CUKILN_CHECK(record_set(db, entry.request, entry.request_canonical, {entry.key, 0},
                              entry.dependencies));
      CUKILN_CHECK(apply(db, batch));
      CUKILN_CHECK(transaction.commit());
    }
    return PutOutcome::already_there;
  }
  if (damage) {
    count_damage(Damage::entry);
    CUKILN_TRY([[maybe_unused]] const bool removed, remove_entry(db, entry.key));
  }
  const EntryParts& parts = encoded.parts;
  const std::int64_t created = session_->options().clock->now_s();
  const auto files = static_cast<std::int64_t>(entry.dependencies.files());
  const Checksum check =
      checksum_of(entry.key, entry.request, parts, entry.compile_us, created, files);
  CUKILN_CHECK(db.query("INSERT INTO cubin(data) VALUES(?)").blob(parts.image).run());
  const std::int64_t cubin_id = db.last_row_id();
  const std::int64_t now = now_s(&db);
  CUKILN_CHECK(
      db.query(
            "INSERT INTO entry(key, request, cubin_id, created_s, last_used_s, hits, compile_us, "
            "origin, cubin_bytes, dependency_count, check128, name, source, target, flags, "
            "compiler, signer, kernels, dependencies, log, source_text) "
            "VALUES(?,?,?,?,?,0,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")
          .blob(view_of(entry.key))
          .blob(view_of(entry.request))
          .number(cubin_id)
          .number(created)
          .number(now)
          .number(entry.compile_us)
          .number(parts.origin)
          .number(static_cast<std::int64_t>(parts.image.size()))
          .number(files)
          .blob(view_of(check))
          .text(parts.name)
          .text(parts.source)
          .text(parts.target)
          .text(parts.flags)
          .text(parts.compiler)
          .text(parts.signer)
          .blob(parts.kernels)
          .blob(parts.dependencies)
          .text(parts.log)
          .blob(source_text)
          .run());
  const auto id = static_cast<std::uint64_t>(db.last_row_id());
  CUKILN_CHECK(drop_excess_sets(db, entry.request));
  CUKILN_CHECK(
      record_set(db, entry.request, entry.request_canonical, {entry.key, id}, entry.dependencies));
  CUKILN_CHECK(apply(db, batch));
  CUKILN_CHECK(transaction.commit());
  return PutOutcome::stored;
}

/// A request has room for a thousand sets; beyond that the least recently used goes.
Result<void> SqliteStore::drop_excess_sets(SqliteHandle& db, const RequestDigest& request) {
  CUKILN_TRY(const auto leaves, leaves_of(db, request));
  if (leaves.size() <= SetTree::kMaxSets) {
    return {};
  }
  Query query = db.query(
      "SELECT key, cubin_bytes FROM entry WHERE request=? ORDER BY last_used_s, id LIMIT 1");
  CUKILN_TRY(const bool there, query.blob(view_of(request)).next());
  if (there) {
    const auto key = digest_from<CacheKey>(query.column_bytes(0));
    pending_.count("evicted_bytes", query.column_number(1));
    CUKILN_TRY([[maybe_unused]] const bool removed, remove_entry(db, key));
    evicted_.fetch_add(1, std::memory_order_relaxed);
    pending_.count("evicted", 1);
  }
  return {};
}

std::int64_t SqliteStore::now_s(SqliteHandle* db) {
  std::int64_t last = last_stamp_s_.load(std::memory_order_relaxed);
  if (db != nullptr) {
    static_assert(kLastStampS == 4294967296);
    if (auto youngest =
            db->number("SELECT max(last_used_s) FROM entry WHERE last_used_s<4294967296");
        youngest) {
      last = std::max(last, *youngest);
    }
  }
  const std::int64_t clock = session_->options().clock->now_s();
  // A clock that jumped back far keeps nobody from telling old from young: time then counts uses.
  const std::int64_t now = clock < last - kClockJumpS ? last + 1 : std::max(clock, last);
  last_stamp_s_.store(now, std::memory_order_relaxed);
  return now;
}

Result<std::string> SqliteStore::source_text(const CacheKey& key) {
  auto stored = session_->read([&](SqliteHandle& db) -> Result<std::optional<std::string>> {
    Query query = db.query("SELECT source_text FROM entry WHERE key=?");
    CUKILN_TRY(const bool row, query.blob(view_of(key)).next());
    return row ? std::optional<std::string>(query.column_bytes(0)) : std::nullopt;
  });
  if (!stored) {
    return std::move(stored).error();
  }
  if (!*stored) {
    return make_error(ErrorCode::not_found, "no entry {} in the {} store", key.hex(), tier_name());
  }
  return decompress(**stored);
}

std::optional<StatRecord> SqliteStore::find_stat_record(const std::string& path) {
  if (auto pending = pending_.find_stat_record(path)) {
    return pending;
  }
  auto found = session_->read([&](SqliteHandle& db) -> Result<std::optional<StatRecord>> {
    Query query = db.query("SELECT " CUKILN_STAT_COLUMNS " FROM stat_cache WHERE path=?");
    CUKILN_TRY(const bool row, query.text(path).next());
    return row ? stat_record_of(query) : std::nullopt;
  });
  return found ? *std::move(found) : std::nullopt;
}

}  // namespace cukiln
