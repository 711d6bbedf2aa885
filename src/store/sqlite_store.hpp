// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "key/stat_cache.hpp"
#include "store/cubin_store.hpp"
#include "store/entry_codec.hpp"
#include "store/maintenance.hpp"
#include "store/pending_writes.hpp"
#include "store/set_records.hpp"
#include "store/store_session.hpp"
#include "store/stored_row.hpp"

namespace cukiln {

struct Damages;

/// Cubins in an SQLite file, shared by any number of processes; cache/FORMAT.md is its contract.
/// A read takes no lock of ours; a write is alone across processes and gives up at a deadline.
class SqliteStore final : public CubinStore {
 public:
  /// Errors: see StoreSession::open; each is a reason to go on without this tier.
  static Result<std::unique_ptr<SqliteStore>> open(const SqliteStoreOptions& options);
  ~SqliteStore() override;

  const char* tier_name() const noexcept override;
  Lookup find(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
              Purpose purpose) override;
  Result<SetTree> find_sets(const RequestDigest& request, ByteView request_canonical) override;
  Result<std::vector<RecordedSet>> list_sets(const RequestDigest& request,
                                             ByteView request_canonical) override;
  Lookup get(const CacheKey& key) override;
  Lookup peek(const CacheKey& key) override;
  Result<PutOutcome> put(const StoreEntry& entry) override;
  Result<bool> remove(const CacheKey& key) override;
  Result<std::vector<EntrySummary>> list() override;
  StoreStats stats() override;
  Result<std::string> source_text(const CacheKey& key) override;

  /// An entry was used from a tier above: it is not the least recently used here.
  void note_use(const CacheKey& key);
  Result<std::uint64_t> remove_all();
  Result<VerifyReport> verify(bool repair);
  Result<GcReport> collect(const GcOptions& options);

  /// Cumulative over all processes, with this one's that are not written yet.
  Result<std::map<std::string, std::int64_t>> counters();
  void count(std::string_view counter, std::int64_t delta) { pending_.count(counter, delta); }

  std::optional<StatRecord> find_stat_record(const std::string& path);
  void save_stat_records(std::vector<StatRecord> records) { pending_.save(std::move(records)); }

  /// Writes what is pending now. Errors: io, timeout.
  Result<void> flush(std::chrono::milliseconds wait);
  /// What a keeper (SqliteStoreOptions) does now and then: what is pending is written, the store
  /// brought below its cap, a long write-ahead log merged.
  Result<void> maintain();
  UpkeepStats upkeep() const;
  /// When the entry that goes first was used last; nothing: there is none.
  Result<std::optional<std::int64_t>> oldest_use_s();

  bool read_only() const noexcept { return session_->read_only(); }
  const StoreDirectory& directory() const noexcept { return session_->directory(); }
  StoreSession& session() noexcept { return *session_; }

 private:
  explicit SqliteStore(std::unique_ptr<StoreSession> session) : session_(std::move(session)) {}

  Lookup use_row(const RequestDigest& request, ByteView request_canonical,
                 const SetTree::Leaf& leaf, std::optional<StoredRow> row, SetCheck& check,
                 Purpose purpose);
  Lookup find_among_all(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
                        Purpose purpose);
  /// Absent and `damage` engaged: a row is there and cannot be believed.
  static Lookup look_up(SqliteHandle& db, const CacheKey& key, std::optional<Error>* damage);
  static Lookup entry_of(SqliteHandle& db, const CacheKey& key, const StoredRow& row,
                         const RequestDigest& request, ByteView request_canonical,
                         std::optional<Error>* damage);
  /// Which part of an entry was damaged, or who found it so, for the counters.
  enum class Damage { set, entry, verify };
  void count_damage(Damage damage);
  bool is_set_sound(const CacheKey& key);
  void found_damaged(const CacheKey& key, Damage damage, const Error& why);

  Result<PutOutcome> insert(SqliteHandle& db, const StoreEntry& entry, const EncodedEntry& encoded,
                            ByteView source_text);
  Result<PutOutcome> insert(SqliteHandle& db, const StoreEntry& entry, const EncodedEntry& encoded,
                            ByteView source_text, const PendingWrites::Batch& batch);
  Result<void> drop_excess_sets(SqliteHandle& db, const RequestDigest& request);
  /// Makes room below the cap, in transactions of at most 100 rows each.
  Result<void> make_room(SqliteHandle& db, std::uint64_t bytes);
  /// `is_run`: something had to go.
  Result<void> evict_for(SqliteHandle& db, std::uint64_t bytes, bool& is_run);
  Result<bool> bring_below_cap();
  /// `done`: whether nobody was in the way, or why it failed.
  void note_gc(UpkeepRuns UpkeepStats::*trigger, std::chrono::steady_clock::time_point began,
               const Result<bool>& done);
  struct Evicted {
    std::uint64_t entries = 0, bytes = 0;
  };
  /// One transaction: least recently used first, until `bytes` are gone, or all unused since then.
  Result<Evicted> evict_batch(SqliteHandle& db, std::uint64_t bytes, std::int64_t unused_since_s,
                              std::int64_t rows);
  Result<Evicted> choose(SqliteHandle& db, std::uint64_t bytes, std::int64_t unused_since_s,
                         std::int64_t limit, std::vector<std::int64_t>* ids);
  Result<void> shrink_file();
  void free_disk(SqliteHandle& db, std::uint64_t bytes);
  /// Deleting writes to the WAL first, so on a full disk nothing goes without the reserve.
  void make_room_to_delete(SqliteHandle& db);
  void give_back_space(SqliteHandle& db);
  /// A deletion, as the only writer; on a full disk once more, with the reserve's space.
  template <class Body>
  auto write_deletion(Body&& body) -> decltype(body(std::declval<SqliteHandle&>())) {
    return session_->write(session_->options().write_wait, [&](SqliteHandle& db) {
      auto done = body(db);
      if (!done && db.trouble() == SqliteTrouble::full) {
        make_room_to_delete(db);
        done = body(db);
      }
      return done;
    });
  }
  Result<void> repair(const Damages& damages);
  std::uint64_t file_bytes();
  /// The clock, but never behind a stamp that was given out or read.
  std::int64_t now_s(SqliteHandle* db);

  std::unique_ptr<StoreSession> session_;
  PendingWrites pending_;
  std::atomic<std::int64_t> last_stamp_s_{0};
  std::atomic<std::uint64_t> hits_{0}, misses_{0}, stored_{0}, evicted_{0}, corrupt_{0}, errors_{0};
  mutable std::mutex upkeep_mutex_;
  UpkeepStats upkeep_;  // without the session's part
};

}  // namespace cukiln
