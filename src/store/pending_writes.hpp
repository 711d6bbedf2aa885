// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.hpp"
#include "key/stat_cache.hpp"
#include "store/sqlite_handle.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// What a store has to write but not at once: uses, counters, stat records, rows found damaged.
/// Written with the next write, or when the store goes; a process that is killed loses them, which
/// costs nothing that matters. Threads: safe; a fork never finds its mutex held.
class PendingWrites {
 public:
  struct Uses {
    std::int64_t count = 0;
    std::int64_t last_s = 0;
  };
  struct Batch {
    std::unordered_map<CacheKey, Uses> used;
    std::map<std::string, std::int64_t, std::less<>> counters;
    std::unordered_map<std::string, StatRecord> stat_records;
    std::vector<CacheKey> damaged;
    std::unordered_map<RequestDigest, std::string> repairs;  // their canonical bytes
    bool empty() const noexcept {
      return used.empty() && counters.empty() && stat_records.empty() && damaged.empty() &&
             repairs.empty();
    }
  };

  void used(const CacheKey& key, std::int64_t now_s);
  void count(std::string_view counter, std::int64_t delta);
  void save(std::vector<StatRecord> records);
  void damaged(const CacheKey& key);
  /// The tree of a request's sets is to be made anew.
  void repair(const RequestDigest& request, std::string canonical);

  bool is_damaged(const CacheKey& key) const;
  std::optional<StatRecord> find_stat_record(const std::string& path) const;
  std::map<std::string, std::int64_t, std::less<>> counters() const;
  bool empty() const;

  Batch take();
  /// What could not be written, for the next time.
  void give_back(Batch batch);

 private:
  /// What a forked child inherits is the parent's to write.
  void drop_inherited() noexcept;

  mutable Mutex mutex_;
  Batch batch_;
  int process_ = 0;
};

/// Writes a batch inside the caller's transaction.
Result<void> apply(SqliteHandle& db, const PendingWrites::Batch& batch);

/// The check of a row of `stat_cache`.
std::int64_t check_of(const StatRecord& record) noexcept;

/// The columns of a stat record, and the record; nothing: it is damaged.
#define CUKILN_STAT_COLUMNS \
  "path, device, inode, size, mtime_ns, ctime_ns, digest, note, recorded_ns, check64"
std::optional<StatRecord> stat_record_of(const Query& query);

/// Removes an entry with all that belongs to it (a trigger's work). False: was not there.
Result<bool> remove_entry(SqliteHandle& db, const CacheKey& key);

inline constexpr std::size_t kMaxStatRecords = 50'000;

}  // namespace cukiln
