// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "store/cubin_store.hpp"
#include "store/maintenance.hpp"
#include "store/signers.hpp"

#include <cukiln/store.hpp>

namespace cukiln {

class TieredStore;

/// Where a store lies and what state it is in, for `doctor` and the daemon's status.
struct StoreFacts {
  std::string directory;    ///< as resolved, or as asked for when there is no disk tier
  std::string file_system;  ///< `ext4`-like magic in hex, or a network file system's name
  std::string generation;
  int schema = 0;
  std::uint64_t bytes = 0, entries = 0, rebuilds = 0;
  std::string sqlite_version;
  bool sqlite_has_wal_reset_fix = false;
  std::string system_directory;  ///< empty: no system store is open
};

/// What the user's store takes on its disk; all zero where there is none.
struct DiskUse {
  std::uint64_t max_bytes = 0;  ///< the cap of the live data
  std::uint64_t wal_bytes = 0;
  std::uint64_t free_disk_bytes = 0;
  std::uint64_t reserve_bytes = 0;  ///< kept to evict on a full disk
  std::uint64_t lock_timeouts = 0;  ///< of this process's writes
};

/// Does to an open store what a person asks for: lists, shows, removes, imports, verifies and
/// collects entries. What compiles need is TieredStore's. A view: the store outlives it. Threads:
/// safe.
class StoreAdmin {
 public:
  explicit StoreAdmin(Store& store);
  explicit StoreAdmin(TieredStore& tiers) : tiers_(tiers) {}

  /// The user's (in memory where there is no disk tier), then what only the system store has.
  Result<std::vector<EntrySummary>> list();
  /// One entry without using it. Damage is an error (corrupt).
  Lookup peek(const CacheKey& key);
  Result<std::string> source_text(const CacheKey& key);
  Result<PutOutcome> put(const StoreEntry& entry);
  Result<bool> remove(const CacheKey& key);

  /// The user's store only. Without one: io, with the bypass reason.
  Result<std::uint64_t> remove_all();
  Result<VerifyReport> verify(bool repair);
  Result<GcReport> collect(const GcOptions& options);

  /// Whether a key that was revoked is among an entry's signers.
  bool is_revoked(const std::string& signer) const;
  /// Removes the entries that a revoked key signed. Costs nothing where no key was revoked. The
  /// number of entries removed. Errors: the store's.
  Result<std::uint64_t> remove_revoked();

  /// Entries and bytes of the user's store; the rest since it was opened.
  StoreStats stats();
  /// Cumulative counters by name; of this process alone where there is no disk tier.
  Result<std::map<std::string, std::int64_t>> counters();
  void count(std::string_view counter, std::int64_t delta = 1);
  StoreFacts facts();
  DiskUse disk_use();
  bool read_only() const noexcept;
  /// Whether the user's store could not be read when it was opened, or since, and is a new one.
  bool was_rebuilt() const noexcept;

 private:
  TieredStore& tiers_;
};

}  // namespace cukiln
