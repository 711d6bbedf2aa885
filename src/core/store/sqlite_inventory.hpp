// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/mutex.hpp"
#include "core/key/stat_cache.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/store_accounting.hpp"
#include "core/store/store_session.hpp"

#include <cukiln/blob_store.hpp>

namespace cukiln {

/// Lists the entries, blobs, counters and stat records of an SQLite store, for inspection and
/// metrics. Threads: safe.
class SqliteInventory {
 public:
  SqliteInventory(StoreSession& session, StoreAccounting& accounting)
      : session_(session), accounting_(accounting) {}

  Result<std::vector<EntrySummary>> list();
  /// Lists the blobs of a kind; of every kind, if it is empty.
  Result<std::vector<BlobSummary>> list_blobs(ByteView kind);
  struct BlobTotals {
    std::uint64_t blobs = 0, bytes = 0;
  };
  Result<BlobTotals> blob_totals();
  StoreStats stats();
  std::uint64_t peak_bytes(const RequestDigest& request);
  /// Removes an entry whose text is damaged, and reports it (corrupt).
  Result<std::string> source_text(const CacheKey& key);
  Result<std::map<std::string, std::int64_t>> counters();
  Result<std::optional<std::int64_t>> oldest_use_s();
  std::optional<StatRecord> find_stat_record(const std::string& path);

 private:
  StoreSession& session_;
  StoreAccounting& accounting_;
  Mutex mutex_;
  /// How often a record in a folder was looked up.
  std::unordered_map<std::string, unsigned> folders_asked_ CUKILN_GUARDED_BY(mutex_);
  /// Stat records that were found beside another one.
  std::unordered_map<std::string, StatRecord> read_ahead_ CUKILN_GUARDED_BY(mutex_);
};

}  // namespace cukiln
