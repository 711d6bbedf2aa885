// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/event_queue.hpp"
#include "core/base/logger.hpp"
#include "core/key/stat_cache.hpp"
#include "core/store/blob_leases.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/daemon_tier.hpp"
#include "core/store/disk_tiers.hpp"
#include "core/store/memory_store.hpp"
#include "core/store/signers.hpp"

#include <cukiln/store.hpp>

namespace cukiln {

/// Memory, the user's disk, a read-only system store and cukilnd's, in this order. A lookup goes
/// through the tiers; a hit of a lower one is cached in memory only. A put goes to memory and to
/// the user's disk. A tier that fails is a miss, which is counted and logged. Memory keeps no
/// blobs, and the loader looks up entries in cukilnd itself, with reasons for a miss. The interface
/// for compiles; StoreAdmin is the one for commands.
class TieredStore final : public ObjectTier {
 public:
  using Options = TieredStoreOptions;

  /// Errors: invalid_argument (a relative directory). If the disk tier cannot be opened, the store
  /// has none until a later put can open it: see `bypass_reason`.
  static Result<std::unique_ptr<TieredStore>> open(Options options);

  /// Returns the tiers of a public Store, for the layers that may include this header.
  static TieredStore& of(const Store& store) noexcept { return *store.tiers_; }

  const char* tier_name() const noexcept override { return "tiered"; }

  Lookup find(const RequestDigest& request, ByteView request_canonical, SetCheck& check,
              Purpose purpose) override;
  /// Returns the tree of the tier that has the most sets.
  Result<SetTree> find_sets(const RequestDigest& request, ByteView request_canonical) override;
  /// Returns the sets of all tiers, each key once.
  Result<std::vector<RecordedSet>> list_sets(const RequestDigest& request,
                                             ByteView request_canonical) override;
  Lookup get(const CacheKey& key) override;
  /// A blob that a revoked key signed, or one that is trusted for some modules only, is a miss.
  BlobLookup get(const BlobName& name) override;
  Lookup peek(const CacheKey& key) override;
  BlobLookup peek(const BlobId& id) override;
  /// Stores the entry in memory, unless it is too_large, and on the disk. Without a disk tier the
  /// outcome is not_stored. Errors: those of the disk tier.
  Result<PutOutcome> put(const StoreEntry& entry) override;
  /// Stores the blob in cukilnd, unless it was imported, and on the disk. Errors: those of the disk
  /// tier, if cukilnd did not store it; invalid_argument (the name, too large), io (no disk tier).
  Result<PutOutcome> put(const StoreBlob& blob) override;
  void cache_in_memory(const StoreEntry& entry) override {
    static_cast<void>(memory_.put_verified(entry));
  }
  Result<bool> remove(const ObjectName& name) override;
  /// Lists the entries of the disk tier (of memory if there is none), then those that only the
  /// system store has.
  Result<std::vector<EntrySummary>> list() override;
  Result<std::vector<BlobSummary>> list_blobs(ByteView kind) override;
  /// Returns entries and bytes of the disk tier, and counts since this was opened.
  StoreStats stats() override;
  /// Asks the disk tier.
  std::uint64_t peak_bytes(const RequestDigest& request) override;
  Result<std::string> source_text(const CacheKey& key) override;

  /// Returns the revoked keys of the options. Lookups return entries that they signed: the caller
  /// checks.
  const RevokedKeys& revoked_keys() const noexcept { return revoked_keys_; }
  /// Returns the scoped keys of the options. The caller checks, as for revoked keys.
  const KeyScopes& key_scopes() const noexcept { return key_scopes_; }
  /// Why there is no disk tier; empty if there is one.
  const std::string& bypass_reason() const noexcept { return disks_.bypass_reason(); }
  /// Why there is a system store that cannot be used; empty if there is none, or it is used.
  const std::string& system_problem() const noexcept { return disks_.system_problem(); }
  /// True if the options ask for no disk tier.
  bool memory_only() const noexcept { return options_.store.memory_only; }
  /// True if the disk tier can be read but not written.
  bool read_only() const noexcept { return disk() != nullptr && disk()->read_only(); }
  /// The resolved folder of the disk tier; the folder of the options if there is none.
  const std::string& directory() const noexcept;
  /// The file system of that folder: its magic number in hex, or the name of a network file system.
  std::string file_system() const;
  /// The folder of the user's store for the lock files of compiles; empty if it cannot be written.
  std::string lock_folder() const;
  /// The folder of the user's store for the headers that NVRTC carries, which need not exist; empty
  /// if there is no store on disk.
  std::string headers_folder() const;

  /// As `get`, and does not count: for cukilnd, whose clients count.
  std::optional<StoreBlob> search(const BlobName& name);
  /// As `search`, but of the stores on disk alone.
  std::optional<StoreBlob> search_disks(const BlobName& name);
  /// The leases of blobs; see get_or_lease.
  BlobLeases& leases() noexcept { return leases_; }
  /// Whether a store on disk has such a blob.
  bool contains(const BlobName& name);
  /// Puts a blob unless there is one of its name that can be used. Errors: those of `put`.
  Result<PutOutcome> add(const StoreBlob& blob);

  /// Empties memory and the disk tier. Errors: io with the bypass reason if there is no disk tier.
  Result<std::uint64_t> remove_all();

  /// Returns the cumulative counters by name; those of this process if there is no disk tier.
  Result<std::map<std::string, std::int64_t>> counters() { return disks_.counters(); }
  void count(std::string_view counter, std::int64_t delta = 1) { disks_.count(counter, delta); }

  /// Returns the stat record of a real path. New ones are written with the next write.
  std::optional<StatRecord> find_stat_record(const std::string& path) {
    return disks_.find_stat_record(path);
  }
  void save_stat_records(std::vector<StatRecord> records) {
    disks_.save_stat_records(std::move(records));
  }

  /// Writes uses, counters and stat records now instead of when the store is closed.
  Result<void> flush() const;

  /// When `open` was called, and how long it took.
  struct Opening {
    std::chrono::steady_clock::time_point began;
    std::chrono::steady_clock::duration took;
  };
  const Opening& opening() const noexcept { return opening_; }
  const Logger& log() const noexcept { return log_; }
  /// The events of the disk and the system store. The caller of the store delivers them.
  EventQueue& events() noexcept { return events_; }

  /// Sets the store of cukilnd. Call it before the first lookup.
  void use_daemon(std::unique_ptr<DaemonTier> daemon) noexcept { daemon_ = std::move(daemon); }
  DaemonTier* daemon() const noexcept { return daemon_.get(); }  ///< null if no daemon is used
  /// True if that is the folder of the disk store.
  bool is_disk_at(std::uint64_t device, std::uint64_t inode) const noexcept;

  SqliteStore* disk() const noexcept { return disks_.user(); }
  const StoreDirectory* folder() const noexcept { return disk() ? &disk()->directory() : nullptr; }
  SqliteStore* system() const noexcept { return disks_.system(); }
  /// Returns the disk tier. Errors: io with the bypass reason if there is none.
  Result<SqliteStore*> need_disk() const { return disks_.need_user(); }

 private:
  explicit TieredStore(Options options);
  /// Runs a lookup on each tier until one has the entry.
  Lookup search_tiers(const std::function<Lookup(ObjectTier&)>& look_up, Purpose purpose);
  template <class Id>
  auto peek_tiers(const Id& id) -> decltype(std::declval<ObjectTier&>().peek(id));
  /// False if one of the signers of a blob was revoked, or is trusted for some modules only: a blob
  /// is of no module.
  bool may_use(std::string_view signers) const noexcept {
    return !revoked_keys_.signed_any_of(signers) && key_scopes_.cover(signers, {});
  }

  Options options_;
  RevokedKeys revoked_keys_;
  KeyScopes key_scopes_;
  Logger log_;
  EventQueue events_;
  MemoryStore memory_;
  StoreCounters counters_;
  DiskTiers disks_{options_, log_, counters_};
  BlobLeases leases_;
  std::unique_ptr<DaemonTier> daemon_;
  Opening opening_{};
};

}  // namespace cukiln
