// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/store/cubin_store.hpp"
#include "core/store/maintenance.hpp"
#include "core/store/signers.hpp"
#include "core/store/store_blob.hpp"

#include <cukiln/blob_store.hpp>
#include <cukiln/store.hpp>

namespace cukiln {

class TieredStore;

/// The location and the state of a store, for `doctor` and the daemon's status.
struct StoreFacts {
  std::string directory;    ///< as resolved, or as asked for when there is no disk tier
  std::string file_system;  ///< `ext4`-like magic in hex, or a network file system's name
  std::string generation;
  int schema = 0;
  std::uint64_t bytes = 0, entries = 0, rebuilds = 0;
  std::uint64_t blobs = 0, blob_bytes = 0;
  std::string sqlite_version;
  bool sqlite_has_wal_reset_fix = false;
  std::string system_directory;  ///< empty: no system store is open
  std::uint64_t system_entries = 0;
  std::string system_problem;  ///< why there is one that cannot be used
};

/// The disk space of the user's store; all zero if there is no disk tier.
struct DiskUse {
  std::uint64_t max_bytes = 0;  ///< the cap of the live data
  std::uint64_t wal_bytes = 0;
  std::uint64_t free_disk_bytes = 0;
  std::uint64_t reserve_bytes = 0;  ///< kept for evicting when the disk is full
  std::uint64_t lock_timeouts = 0;  ///< of the writes of this process
};

/// Administers an open store: lists, shows, removes, imports, verifies and collects entries, for
/// commands and the daemon. Compiles use TieredStore instead. A view that the store outlives.
/// Threads: safe.
class StoreAdmin {
 public:
  explicit StoreAdmin(Store& store);
  explicit StoreAdmin(TieredStore& tiers) : tiers_(tiers) {}

  /// Lists the entries of the user's store (of memory if there is no disk tier), then those that
  /// only the system store has.
  Result<std::vector<EntrySummary>> list();
  /// Lists the blobs of the user's store, then those that only the system store has.
  Result<std::vector<BlobSummary>> list_blobs();
  /// Like ObjectTier::peek, whether the object can be used or not (see `is_revoked`).
  Lookup peek(const CacheKey& key);
  BlobLookup peek(const BlobId& id);
  Result<std::string> source_text(const CacheKey& key);
  Result<PutOutcome> put(const StoreEntry& entry);
  /// Stores a blob with its signers, unless there is one of its name that can be used.
  Result<PutOutcome> put(const StoreBlob& blob);
  Result<bool> remove(const ObjectName& name);

  /// These three are for the user's store only. Errors: io with the bypass reason if there is no
  /// disk tier.
  Result<std::uint64_t> remove_all();
  Result<VerifyReport> verify(bool repair);
  Result<GcReport> collect(const GcOptions& options);

  /// True if a revoked key is among the signers of an entry or a blob.
  bool is_revoked(const std::string& signer) const;
  /// Removes the entries and blobs that a revoked key signed, and returns their number. Reads
  /// nothing if no key is revoked. Errors: those of the store.
  Result<std::uint64_t> remove_revoked();

  /// Returns entries and bytes of the user's store, and counts since it was opened.
  StoreStats stats();
  /// Returns the cumulative counters by name; those of this process if there is no disk tier.
  Result<std::map<std::string, std::int64_t>> counters();
  void count(std::string_view counter, std::int64_t delta = 1);
  StoreFacts facts();
  DiskUse disk_use();
  bool read_only() const noexcept;
  /// True if this process started a new generation of the user's store.
  bool was_rebuilt() const noexcept;

 private:
  TieredStore& tiers_;
};

}  // namespace cukiln
