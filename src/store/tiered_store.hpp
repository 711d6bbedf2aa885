// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/logger.hpp"
#include "key/stat_cache.hpp"
#include "store/cubin_store.hpp"
#include "store/daemon_store.hpp"
#include "store/memory_store.hpp"
#include "store/signers.hpp"
#include "store/sqlite_store.hpp"
#include "store/sqlite_tier.hpp"
#include "store/store_records.hpp"

#include <cukiln/store.hpp>

namespace cukiln {

/// Memory over the user's disk over a read-only system store. Lookups go down, hits come back up
/// into memory only; puts go to memory and the user's disk. A tier that fails is a counted, logged
/// miss. This is what compiles need of a store; what a person does to one is StoreAdmin's.
class TieredStore final : public CubinStore {
 public:
  struct Options {
    StoreOptions store;
    std::uint64_t memory_bytes = 256ull << 20;
    SqliteStoreOptions disk;                  ///< directory, cap and log come from `store`
    std::vector<std::string> daemon_sockets;  ///< none: no daemon is asked
  };

  /// Errors: invalid_argument (a relative directory). A disk tier that cannot be had is none: see
  /// `bypass_reason`.
  static Result<std::unique_ptr<TieredStore>> open(Options options);

  /// The tiers of a store of the public interface, for the layers that may include this header.
  static TieredStore& of(const Store& store) noexcept { return *store.tiers_; }

  const char* tier_name() const noexcept override { return "tiered"; }

  Lookup find(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
              Purpose purpose) override;
  /// Of the tier that has the most.
  Result<SetTree> find_sets(const RequestDigest& request, ByteView request_canonical) override;
  /// Of all tiers, each key once.
  Result<std::vector<RecordedSet>> list_sets(const RequestDigest& request,
                                             ByteView request_canonical) override;
  Lookup get(const CacheKey& key) override;
  Lookup peek(const CacheKey& key) override;
  /// Memory has it afterwards whatever happens (unless too_large). Without a disk tier: not_stored.
  /// Errors: the disk tier's.
  Result<PutOutcome> put(const StoreEntry& entry) override;
  void cache_in_memory(const StoreEntry& entry) override {
    static_cast<void>(memory_.put_verified(entry));
  }
  Result<bool> remove(const CacheKey& key) override;
  /// The user's (in memory where there is no disk tier), then what only the system store has.
  Result<std::vector<EntrySummary>> list() override;
  /// Entries and bytes of the user's store; the rest since this was opened.
  StoreStats stats() override;
  Result<std::string> source_text(const CacheKey& key) override;

  /// Those of the options. What they signed is handed out all the same: who uses an entry looks.
  const RevokedKeys& revoked_keys() const noexcept { return revoked_keys_; }
  /// Why there is no disk tier; empty when there is one.
  const std::string& bypass_reason() const noexcept { return bypass_reason_; }
  /// Whether that is so because it was asked for.
  bool memory_only() const noexcept { return options_.store.memory_only; }
  /// Whether the disk tier can be read but not written.
  bool read_only() const noexcept { return disk() != nullptr && disk()->read_only(); }
  /// The folder of the user's store: as resolved, or as asked for when there is no disk tier.
  const std::string& directory() const noexcept;
  /// Of that folder: `ext4`-like magic in hex, or a network file system's name.
  std::string file_system() const;
  /// The folder of the user's store for the lock files of compiles; empty if it cannot be written.
  std::string lock_folder() const;

  /// Empties memory and the user's store. Without one: io, with the bypass reason.
  Result<std::uint64_t> remove_all();

  /// Cumulative counters by name; of this process alone where there is no disk tier.
  Result<std::map<std::string, std::int64_t>> counters() { return records_.counters(); }
  void count(std::string_view counter, std::int64_t delta = 1) { records_.count(counter, delta); }

  /// A remembered digest of a real file, by its path; and new ones, written with the next write.
  std::optional<StatRecord> find_stat_record(const std::string& path) {
    return records_.find_stat_record(path);
  }
  void save_stat_records(std::vector<StatRecord> records) {
    records_.save_stat_records(std::move(records));
  }

  /// Writes uses, counters and stat records now instead of when this goes.
  Result<void> flush() const;

  /// The way to cukilnd, and what it has; null: none is to be asked. Not one of the tiers that a
  /// look-up goes through: it is asked where they have nothing.
  const std::shared_ptr<wire::DaemonLink>& daemon_link() const noexcept { return daemon_link_; }
  CubinStore* daemon() noexcept { return daemon_.get(); }
  /// Whether a greeting is from a daemon that has this same disk store open.
  bool is_store_of(const wire::Greeting& greeting) const noexcept;

  SqliteStore* disk() const noexcept { return disk_.store(); }
  SqliteStore* system() const noexcept { return system_.store(); }
  /// Errors: io, with the bypass reason.
  Result<SqliteStore*> need_disk() const;

 private:
  explicit TieredStore(Options options);
  SqliteTier& tier_of(Tier tier) noexcept { return tier == Tier::disk ? disk_ : system_; }
  /// `op`: `find`, `get` or `put`.
  void note_failure(SqliteTier& tier, const char* op, const Error& error);
  template <class Ask>
  auto ask(Tier tier, const char* op, Ask&& ask)
      -> std::optional<typename decltype(ask(std::declval<SqliteStore&>()))::value_type>;
  Lookup through_tiers(const std::function<Lookup(CubinStore&)>& look, Purpose purpose);

  Options options_;
  RevokedKeys revoked_keys_;
  Logger log_;
  MemoryStore memory_;
  std::string bypass_reason_;
  SqliteTier disk_;
  SqliteTier system_;
  StoreRecords records_{disk_};
  std::shared_ptr<wire::DaemonLink> daemon_link_;
  std::unique_ptr<DaemonStore> daemon_;
  std::atomic<std::uint64_t> hits_{0}, misses_{0}, stored_{0}, errors_{0};
};

}  // namespace cukiln
