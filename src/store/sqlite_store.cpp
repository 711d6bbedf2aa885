#include "store/sqlite_store.hpp"

#include <algorithm>

#include "base/result.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kMaxSetsPerRequest = 4;
constexpr std::chrono::milliseconds kFlushWait{100};
constexpr std::int64_t kClockJumpS = 3600;

#define CUKILN_SELECT_ENTRY                                                                       \
  "SELECT check128, request_canonical, dependencies, cubin_id, cubin_bytes, kernels, log, name, " \
  "source, target, flags, compiler, signer, origin, compile_us, created_s, last_used_s, hits "    \
  "FROM entry WHERE "

}  // namespace

Result<std::unique_ptr<SqliteStore>> SqliteStore::open(const SqliteStoreOptions& options) {
  CUKILN_TRY(std::unique_ptr<StoreSession> session, StoreSession::open(options));
  return std::unique_ptr<SqliteStore>(new SqliteStore(std::move(session)));
}

SqliteStore::~SqliteStore() {
  if (!read_only()) {
    if (auto flushed = flush(kFlushWait); !flushed) {
      session_->options().log.debug("uses and counters were not written: {}",
                                    flushed.error().message());
    }
  }
  const ForkGate::Pass pass;
  session_->checkpoint_before_close();
  session_.reset();
}

const char* SqliteStore::tier_name() const noexcept {
  return session_->options().system ? "system" : "disk";
}

Result<std::vector<RecordedSet>> SqliteStore::find_dependency_sets(const RequestDigest& request,
                                                                   ByteView request_canonical) {
  std::vector<CacheKey> damaged;
  auto found = session_->read([&](SqliteHandle& db) -> Result<std::vector<RecordedSet>> {
    std::vector<RecordedSet> sets;
    damaged.clear();
    Query query = db.query(
        "SELECT key, request_canonical, dependencies, id FROM entry WHERE request=? "
        "ORDER BY id DESC LIMIT 4");
    query.blob(view_of(request));
    for (;;) {
      CUKILN_TRY(const bool row, query.next());
      if (!row) {
        return sets;
      }
      const CacheKey key{digest_from(query.column_bytes(0))};
      const ByteView canonical = query.column_bytes(1);
      const ByteView dependencies = query.column_bytes(2);
      if (canonical != request_canonical) {
        continue;  // another request with the same digest, or a damaged row that get will find
      }
      auto set = DependencySet::parse(dependencies);
      if (!set || cache_key_of(canonical, dependencies) != key) {
        damaged.push_back(key);
        continue;
      }
      sets.push_back({key, *std::move(set), query.column_number(3)});
    }
  });
  for (const CacheKey& key : damaged) {
    found_damaged(key, Error(ErrorCode::corrupt, "its dependency set does not hash to its key"));
  }
  if (!found) {
    errors_.fetch_add(1, std::memory_order_relaxed);
  }
  return found;
}

Lookup SqliteStore::look_up(SqliteHandle& db, const CacheKey& key, std::int64_t row,
                            std::optional<Error>* damage) {
  Query query =
      db.query(row != 0 ? CUKILN_SELECT_ENTRY "id=?1 AND key=?2" : CUKILN_SELECT_ENTRY "key=?2");
  query.number(row).blob(view_of(key));
  CUKILN_TRY(const bool there, query.next());
  if (!there) {
    return std::optional<StoreEntry>();
  }
  // The cubin goes straight into the memory that is handed out. In the statement's row it would be
  // copied on the way, and large ones twice into memory that has to be found for it.
  CUKILN_TRY(std::optional<std::string> image,
             db.read_blob("cubin", "data", query.column_number(3), query.column_number(4)));
  EntryParts parts;
  parts.request_canonical = query.column_bytes(1);
  parts.dependencies = query.column_bytes(2);
  parts.kernels = query.column_bytes(5);
  parts.log = query.column_bytes(6);
  parts.name = query.column_bytes(7);
  parts.source = query.column_bytes(8);
  parts.target = query.column_bytes(9);
  parts.flags = query.column_bytes(10);
  parts.compiler = query.column_bytes(11);
  parts.signer = query.column_bytes(12);
  parts.origin = query.column_number(13);
  auto entry = decode_entry(key, parts, SharedBytes(std::move(image).value_or(std::string())),
                            query.column_bytes(0));
  if (!entry) {
    *damage = std::move(entry).error();
    return std::optional<StoreEntry>();
  }
  entry->compile_us = query.column_number(14);
  entry->created_s = query.column_number(15);
  entry->last_used_s = query.column_number(16);
  entry->hits = query.column_number(17);
  return std::optional<StoreEntry>(*std::move(entry));
}

Lookup SqliteStore::get_at(const CacheKey& key, std::int64_t row) {
  std::optional<Error> damage;
  auto found = session_->read([&](SqliteHandle& db) {
    Lookup there = look_up(db, key, row, &damage);
    const bool gone = row != 0 && there && !*there && !damage;  // removed, or stored again
    return gone ? look_up(db, key, 0, &damage) : std::move(there);
  });
  if (damage) {
    found_damaged(key, *damage);
  }
  if (!found) {
    errors_.fetch_add(1, std::memory_order_relaxed);
  } else if (*found) {
    hits_.fetch_add(1, std::memory_order_relaxed);
    note_use(key);
  } else {
    misses_.fetch_add(1, std::memory_order_relaxed);
  }
  return found;
}

Lookup SqliteStore::peek(const CacheKey& key) {
  std::optional<Error> damage;
  auto found = session_->inspect([&](SqliteHandle& db) { return look_up(db, key, 0, &damage); });
  return damage ? Lookup(*std::move(damage)) : std::move(found);
}

void SqliteStore::note_use(const CacheKey& key) {
  if (!read_only()) {
    pending_.used(key, now_s(nullptr));
  }
}

void SqliteStore::found_damaged(const CacheKey& key, const Error& why) {
  corrupt_.fetch_add(1, std::memory_order_relaxed);
  session_->options().log.warn("a damaged entry in the {} store is dropped: {}", tier_name(),
                               why.message());
  if (read_only()) {
    return;
  }
  pending_.damaged(key);
  pending_.count("corrupt", 1);
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
  if (bytes > options.max_bytes || bytes > kMaxRowBytes) {
    return PutOutcome::too_large;
  }
  if (read_only()) {
    return PutOutcome::not_stored;
  }
  auto there = session_->read([&](SqliteHandle& db) -> Result<bool> {
    return db.query("SELECT 1 FROM entry WHERE key=?").blob(view_of(entry.key)).next();
  });
  if (there && *there && !pending_.is_damaged(entry.key)) {
    return PutOutcome::already_there;
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
  {
    Query same = db.query("SELECT 1 FROM entry WHERE key=?");
    CUKILN_TRY(const bool there, same.blob(view_of(entry.key)).next());
    if (there) {
      return PutOutcome::already_there;
    }
  }
  const EntryParts& parts = encoded.parts;
  const Digest128 check = checksum_of(parts);
  CUKILN_CHECK(db.query("INSERT INTO cubin(data) VALUES(?)").blob(parts.image).run());
  const std::int64_t cubin_id = db.last_row_id();
  const std::int64_t now = now_s(&db);
  CUKILN_CHECK(
      db.query(
            "INSERT INTO entry(key, request, cubin_id, created_s, last_used_s, hits, compile_us, "
            "origin, cubin_bytes, dependency_count, check128, name, source, target, flags, "
            "compiler, signer, kernels, request_canonical, dependencies, log, source_text) "
            "VALUES(?,?,?,?,?,0,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")
          .blob(view_of(entry.key))
          .blob(view_of(entry.request))
          .number(cubin_id)
          .number(session_->options().clock->now_s())
          .number(now)
          .number(entry.compile_us)
          .number(parts.origin)
          .number(static_cast<std::int64_t>(parts.image.size()))
          .number(static_cast<std::int64_t>(entry.dependencies.present.size()))
          .blob(view_of(check))
          .text(parts.name)
          .text(parts.source)
          .text(parts.target)
          .text(parts.flags)
          .text(parts.compiler)
          .text(parts.signer)
          .blob(parts.kernels)
          .blob(parts.request_canonical)
          .blob(parts.dependencies)
          .text(parts.log)
          .blob(source_text)
          .run());
  CUKILN_CHECK(drop_old_sets(db, entry.request));
  CUKILN_CHECK(apply(db, batch));
  CUKILN_CHECK(transaction.commit());
  return PutOutcome::stored;
}

Result<void> SqliteStore::drop_old_sets(SqliteHandle& db, const RequestDigest& request) {
  std::vector<CacheKey> keys;
  {
    Query query = db.query("SELECT key FROM entry WHERE request=? ORDER BY id DESC");
    query.blob(view_of(request));
    for (;;) {
      CUKILN_TRY(const bool row, query.next());
      if (!row) {
        break;
      }
      keys.push_back(CacheKey{digest_from(query.column_bytes(0))});
    }
  }
  for (std::size_t i = kMaxSetsPerRequest; i < keys.size(); ++i) {
    CUKILN_TRY([[maybe_unused]] const bool removed, remove_entry(db, keys[i]));
    evicted_.fetch_add(1, std::memory_order_relaxed);
    pending_.count("evicted", 1);
  }
  return {};
}

std::int64_t SqliteStore::now_s(SqliteHandle* db) {
  std::int64_t last = last_stamp_s_.load(std::memory_order_relaxed);
  if (db != nullptr) {
    if (auto youngest = db->number("SELECT max(last_used_s) FROM entry"); youngest) {
      last = std::max(last, *youngest);
    }
  }
  const std::int64_t clock = session_->options().clock->now_s();
  // A clock that jumped back far keeps nobody from telling old from young: time then counts uses.
  const std::int64_t now = clock < last - kClockJumpS ? last + 1 : std::max(clock, last);
  last_stamp_s_.store(now, std::memory_order_relaxed);
  return now;
}

Result<bool> SqliteStore::remove(const CacheKey& key) {
  return session_->write(session_->options().write_wait, [&](SqliteHandle& db) -> Result<bool> {
    CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
    CUKILN_TRY(const bool removed, remove_entry(db, key));
    CUKILN_CHECK(transaction.commit());
    return removed;
  });
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
    Query query = db.query(
        "SELECT device, inode, size, mtime_ns, ctime_ns, digest, note, recorded_ns "
        "FROM stat_cache WHERE path=?");
    CUKILN_TRY(const bool row, query.text(path).next());
    if (!row || query.column_bytes(5).size() != 16) {
      return std::optional<StatRecord>();
    }
    StatRecord record;
    record.path = path;
    record.stamp = {static_cast<std::uint64_t>(query.column_number(0)),
                    static_cast<std::uint64_t>(query.column_number(1)),
                    static_cast<std::uint64_t>(query.column_number(2)), query.column_number(3),
                    query.column_number(4)};
    record.digest = digest_from(query.column_bytes(5));
    record.note = query.column_bytes(6);
    record.recorded_ns = query.column_number(7);
    return std::optional<StatRecord>(std::move(record));
  });
  return found ? *std::move(found) : std::nullopt;
}

}  // namespace cukiln
