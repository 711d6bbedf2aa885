// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "store/cubin_store.hpp"
#include "store/pending_writes.hpp"
#include "store/store_session.hpp"

namespace cukiln {

/// What this process did with one SQLite store. Relaxed: each number is right, all together are no
/// snapshot.
struct TierCounts {
  std::atomic<std::uint64_t> hits{0}, misses{0}, stored{0}, evicted{0}, corrupt{0}, errors{0};

  void add_to(StoreStats& stats) const noexcept;
};

/// The uses, counters and damage of one SQLite store, and the clock that stamps them. They are
/// written with the next write. Threads: safe.
class StoreAccounting {
 public:
  explicit StoreAccounting(StoreSession& session) : session_(session) {}

  const char* tier_name() const noexcept;
  PendingWrites& pending() noexcept { return pending_; }
  TierCounts& counts() noexcept { return counts_; }

  /// An entry was used: it is not the least recently used.
  void touch(const CacheKey& key);

  /// Which part of an entry was damaged, or who found it so, for the counters.
  enum class Damage { set, entry, verify };
  void count_damage(Damage damage);
  /// The same for an entry that is to be removed: at once, unless another process is writing.
  void found_damaged(const CacheKey& key, Damage damage, const Error& why);

  /// Writes what is pending now. Errors: io, timeout.
  Result<void> flush(std::chrono::milliseconds wait);

  /// The clock, but never behind a stamp that was given out or, with `db`, is stored.
  std::int64_t now_s(SqliteHandle* db);

 private:
  StoreSession& session_;
  PendingWrites pending_;
  TierCounts counts_;
  std::atomic<std::int64_t> last_stamp_s_{0};
};

}  // namespace cukiln
