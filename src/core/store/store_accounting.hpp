// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/base/telemetry.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/pending_writes.hpp"
#include "core/store/store_session.hpp"

namespace cukiln {

/// What this process counts for a store; see StoreStats.
enum class StoreEvent { hit, miss, stored, evicted, corrupt, error };
using StoreCounters = Counters<StoreEvent, static_cast<std::size_t>(StoreEvent::error) + 1>;

/// Accounts for uses, counters and damage of one SQLite store, and stamps them with a clock that
/// does not go back. They are written with the next write. Threads: safe.
class StoreAccounting {
 public:
  explicit StoreAccounting(StoreSession& session) : session_(session) {}

  const char* tier_name() const noexcept;
  PendingWrites& pending() noexcept { return pending_; }
  StoreCounters& counters() noexcept { return counters_; }

  /// Records a use of an object, for the eviction order.
  void touch(const ObjectName& name);

  /// What was damaged: a request, an entry, what verify found, a blob; for the counters.
  enum class Damage { set, entry, verify, blob };
  /// Counts damage, and adds an event. `key` is zero if it is not of one entry.
  void count_damage(Damage damage, const CacheKey& key, std::string_view why);
  /// Counts and logs a damaged object (`what` is entry or blob) or request, and removes it, a
  /// request with its entries: immediately or, if another process is writing, with the next write.
  /// In a store that cannot be written it stays, and each lookup passes over it.
  void drop_damaged(const ObjectName& name, Damage what, const Error& why);
  void drop_damaged(const RequestDigest& request, const Error& why);

  /// Writes what is pending. Errors: io, timeout.
  Result<void> flush(std::chrono::milliseconds wait);

  /// Returns the time for a last use. If the clock jumped back by over an hour, a logical counter
  /// keeps the eviction order: the time is then above each one that this process used or, with
  /// `db`, that is stored. An error of `db` may have ended its transaction.
  std::int64_t now_s();
  Result<std::int64_t> now_s(SqliteHandle& db);

 private:
  std::int64_t now_after(std::int64_t stored_s);
  template <class Digest>
  void drop(const Digest& digest, Damage damage, const CacheKey& key, const Error& why);

  StoreSession& session_;
  PendingWrites pending_;
  StoreCounters counters_;
  std::atomic<std::int64_t> last_stamp_s_{0};
};

}  // namespace cukiln
