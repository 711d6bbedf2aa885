// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "core/base/file_lock.hpp"
#include "core/base/histogram.hpp"
#include "core/store/sqlite_options.hpp"
#include "core/store/store_directory.hpp"

namespace cukiln {

/// `writer.lock` of a store, whose holder is the only writer among all threads and processes.
/// Threads: safe.
class WriterLock {
 public:
  WriterLock(const SqliteStoreOptions& options, const StoreDirectory& directory)
      : options_(options), directory_(directory), read_only_(directory.read_only()) {}

  /// Errors: io (the store is read-only), timeout (others wrote for longer than `wait`).
  Result<FileLock> acquire(std::chrono::milliseconds wait);

  bool read_only() const noexcept { return read_only_; }
  /// Call before threads share it.
  void set_read_only(bool read_only) noexcept { read_only_ = read_only; }

  /// How long the writes of this process waited for the lock.
  ShortTimes& waits() noexcept { return waits_; }
  /// How often the lock was not acquired within its wait.
  std::uint64_t timeouts() const noexcept { return timeouts_.load(std::memory_order_relaxed); }

 private:
  const SqliteStoreOptions& options_;
  const StoreDirectory& directory_;
  bool read_only_;
  std::atomic<std::uint64_t> timeouts_{0};
  ShortTimes waits_;
};

}  // namespace cukiln
