#include "store/sqlite_store.hpp"

#include <algorithm>

#include "base/result.hpp"
#include "store/stored_row.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kMaxSetsPerRequest = 4;
constexpr std::chrono::milliseconds kFlushWait{100};
constexpr std::int64_t kClockJumpS = 3600;

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
    Query query = db.query(CUKILN_SELECT_ENTRY "request=? ORDER BY id DESC LIMIT 4");
    query.blob(view_of(request));
    for (;;) {
      CUKILN_TRY(const bool there, query.next());
      if (!there) {
        return sets;
      }
      auto row = std::make_shared<const StoredRow>(query);
      const CacheKey key{digest_from(query.column_bytes(kKeyColumn))};
      if (row->request_canonical != request_canonical) {
        continue;  // another request with the same digest, or a damaged row that get will find
      }
      auto set = DependencySet::parse(row->dependencies);
      if (!set || cache_key_of(row->request_canonical, row->dependencies) != key) {
        damaged.push_back(key);
        continue;
      }
      sets.push_back({key, *std::move(set), std::move(row)});
    }
  });
  for (const CacheKey& key : damaged) {
    found_damaged(key, Damage::set,
                  Error(ErrorCode::corrupt, "its dependency set does not hash to its key"));
  }
  if (!found) {
    errors_.fetch_add(1, std::memory_order_relaxed);
  }
  return found;
}

Lookup SqliteStore::look_up(SqliteHandle& db, const CacheKey& key, std::optional<Error>* damage) {
  Query query = db.query(CUKILN_SELECT_ENTRY "key=?");
  CUKILN_TRY(const bool there, query.blob(view_of(key)).next());
  return there ? entry_of(db, key, StoredRow(query), damage) : Lookup(std::nullopt);
}

Lookup SqliteStore::entry_of(SqliteHandle& db, const CacheKey& key, const StoredRow& row,
                             std::optional<Error>* damage) {
  // The cubin goes straight into the memory that is handed out. In the statement's row it would be
  // copied on the way, and large ones twice into memory that has to be found for it.
  CUKILN_TRY(SharedBytes image, db.read_blob("cubin", "data", row.cubin_id, row.cubin_bytes));
  EntryParts parts;
  parts.request_canonical = row.request_canonical;
  parts.dependencies = row.dependencies;
  parts.kernels = row.kernels;
  parts.log = row.log;
  parts.name = row.name;
  parts.source = row.source;
  parts.target = row.target;
  parts.flags = row.flags;
  parts.compiler = row.compiler;
  parts.signer = row.signer;
  parts.origin = row.origin;
  auto entry = decode_entry(key, parts, std::move(image), row.check128);
  if (!entry) {
    *damage = std::move(entry).error();
    return std::optional<StoreEntry>();
  }
  entry->compile_us = row.compile_us;
  entry->created_s = row.created_s;
  entry->last_used_s = row.last_used_s;
  entry->hits = row.hits;
  return std::optional<StoreEntry>(*std::move(entry));
}

Lookup SqliteStore::get_at(const CacheKey& key, const StoredRow* row) {
  std::optional<Error> damage;
  auto found = session_->read([&](SqliteHandle& db) {
    if (row != nullptr) {
      std::optional<Error> changed;  // since the row was read: removed, or stored again
      Lookup there = entry_of(db, key, *row, &changed);
      if (!changed) {
        return there;
      }
    }
    return look_up(db, key, &damage);
  });
  if (damage) {
    found_damaged(key, Damage::entry, *damage);
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
  auto found = session_->inspect([&](SqliteHandle& db) { return look_up(db, key, &damage); });
  return damage ? Lookup(*std::move(damage)) : std::move(found);
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
  std::vector<std::pair<CacheKey, std::int64_t>> keys;  // and their cubins' bytes
  {
    Query query = db.query("SELECT key, cubin_bytes FROM entry WHERE request=? ORDER BY id DESC");
    query.blob(view_of(request));
    for (;;) {
      CUKILN_TRY(const bool row, query.next());
      if (!row) {
        break;
      }
      keys.emplace_back(CacheKey{digest_from(query.column_bytes(0))}, query.column_number(1));
    }
  }
  for (std::size_t i = kMaxSetsPerRequest; i < keys.size(); ++i) {
    CUKILN_TRY([[maybe_unused]] const bool removed, remove_entry(db, keys[i].first));
    evicted_.fetch_add(1, std::memory_order_relaxed);
    pending_.count("evicted", 1);
    pending_.count("evicted_bytes", keys[i].second);
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
