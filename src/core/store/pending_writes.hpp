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

#include "core/base/mutex.hpp"
#include "core/key/stat_cache.hpp"
#include "core/store/object_name.hpp"
#include "core/store/sqlite_handle.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// Writes that a store defers: uses, counters, stat records, damaged rows to remove. They are
/// written with the next write, or when the store is closed. A process that is killed loses them;
/// no entry depends on them. Threads: safe; a fork never finds its mutex held.
class PendingWrites {
 public:
  struct Uses {
    std::int64_t count = 0;
    std::int64_t last_s = 0;
  };
  struct Batch {
    std::unordered_map<ObjectName, Uses> uses;
    std::map<std::string, std::int64_t, std::less<>> counters;
    std::unordered_map<std::string, StatRecord> stat_records;
    std::vector<ObjectName> damaged;
    std::vector<RequestDigest> damaged_requests;
    bool empty() const noexcept {
      return uses.empty() && counters.empty() && stat_records.empty() && damaged.empty() &&
             damaged_requests.empty();
    }
  };

  void add_use(const ObjectName& name, std::int64_t now_s);
  void add_count(std::string_view counter, std::int64_t delta);
  void add_stat_records(std::vector<StatRecord> records);
  /// The object, or the request with its entries, is removed.
  void add_damaged(const ObjectName& name);
  void add_damaged(const RequestDigest& request);

  std::optional<StatRecord> find_stat_record(const std::string& path) const;
  std::map<std::string, std::int64_t, std::less<>> counters() const;
  bool empty() const;

  /// Takes all that is pending.
  Batch take();
  /// Adds a batch again that could not be written.
  void restore(Batch batch);

 private:
  /// Drops what a forked child inherited: the parent writes it.
  void drop_inherited() noexcept CUKILN_REQUIRES(mutex_);

  mutable Mutex mutex_;
  Batch batch_ CUKILN_GUARDED_BY(mutex_);
  int process_ CUKILN_GUARDED_BY(mutex_) = 0;
};

/// Writes a batch in the caller's transaction.
Result<void> apply(SqliteHandle& db, const PendingWrites::Batch& batch);

/// Returns the checksum of a row of `stat_cache`.
std::int64_t check_of(const StatRecord& record) noexcept;

/// The columns of a stat record, and the record of a row that has them; nothing if it is damaged.
#define CUKILN_STAT_COLUMNS \
  "path, device, inode, size, mtime_ns, ctime_ns, digest, note, recorded_ns, check64"
std::optional<StatRecord> stat_record_of(const Query& query);

inline constexpr std::size_t kMaxStatRecords = 50'000;

}  // namespace cukiln
