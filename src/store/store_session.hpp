// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/file_lock.hpp"
#include "base/histogram.hpp"
#include "base/logger.hpp"
#include "base/result.hpp"
#include "store/disk_reserve.hpp"
#include "store/generation.hpp"
#include "store/host_facts.hpp"
#include "store/maintenance.hpp"
#include "store/store_directory.hpp"

namespace cukiln {

struct SqliteStoreOptions {
  std::string directory;                 ///< absolute
  std::uint64_t max_bytes = 2ull << 30;  ///< of live data; least recently used goes first
  bool system = false;                   ///< somebody else's, below ours: only read
  bool allow_network_file_system = false;
  bool keeper =
      false;  ///< evicts and checkpoints for all processes, as long as it has the store open
  std::chrono::milliseconds write_wait{2000};  ///< for other writers, then give up
  std::uint64_t reserve_bytes = 8ull << 20;    ///< kept free for evicting on a full disk
  std::uint64_t checkpoint_bytes = 4ull << 20;
  int page_bytes = 4096;
  StoreSchema schema;
  const Clock* clock = &Clock::system();
  const HostFacts* facts = &HostFacts::system();
  Logger log;
};

/// Why a store began anew: it could not be read, its files were taken away under those who had them
/// open, or a repair found nothing to keep.
enum class Rebuild { damaged, replaced, repair };
inline constexpr const char* kRebuilds[] = {"damaged", "replaced", "repair"};

/// Keeps a healthy generation open, whatever happens to the files: runs bodies on a connection,
/// serialises writers across processes, and begins a new generation where the old one is damaged or
/// was taken away. Knows nothing of what is stored. Threads: safe.
class StoreSession {
 public:
  /// Errors are reasons to do without this tier: not_found (`system`, and there is none),
  /// invalid_argument (not to be trusted), incompatible (a newer version's; open in another copy of
  /// the library), io, timeout.
  static Result<std::unique_ptr<StoreSession>> open(const SqliteStoreOptions& options);

  /// `body(SqliteHandle&)` returns a Result. Damage begins a new generation, and body runs once
  /// more.
  template <class Body>
  auto read(Body&& body) -> decltype(body(std::declval<SqliteHandle&>())) {
    const ForkGate::Pass pass;
    for (int attempt = 0;; ++attempt) {
      CUKILN_TRY(const std::shared_ptr<Generation> generation, current(false));
      CUKILN_TRY(Generation::Lease db, generation->lease());
      auto result = body(*db);
      if (result || attempt > 0 || !worth_recovering(*db, result.error())) {
        return result;
      }
      const Error why = result.error();
      CUKILN_CHECK(recover(generation, why));
    }
  }

  /// The same, but damage is only reported.
  template <class Body>
  auto inspect(Body&& body) -> decltype(body(std::declval<SqliteHandle&>())) {
    const ForkGate::Pass pass;
    CUKILN_TRY(const std::shared_ptr<Generation> generation, current(false));
    CUKILN_TRY(Generation::Lease db, generation->lease());
    return body(*db);
  }

  /// Like `read`, alone among all writers of all processes. Errors besides body's: timeout (others
  /// wrote for longer than `wait`), io (nothing can be written here).
  template <class Body>
  auto write(std::chrono::milliseconds wait, Body&& body)
      -> decltype(body(std::declval<SqliteHandle&>())) {
    const ForkGate::Pass pass;
    CUKILN_TRY(const FileLock turn, take_turn(wait));
    for (int attempt = 0;; ++attempt) {
      CUKILN_TRY(const std::shared_ptr<Generation> generation, current(true));
      if (generation->read_only()) {
        return make_error(ErrorCode::io, "the store in {} is read-only", directory_->root());
      }
      CUKILN_TRY(Generation::Lease db, generation->lease());
      db->set_busy_timeout(static_cast<int>(wait.count()));
      auto result = body(*db);
      if (result) {
        checkpoint_if_long(*db);
        return result;
      }
      if (attempt > 0 || !worth_recovering(*db, result.error())) {
        return result;
      }
      const Error why = result.error();
      CUKILN_CHECK(recover_in_turn(generation, why));
    }
  }

  const SqliteStoreOptions& options() const noexcept { return options_; }
  const StoreDirectory& directory() const noexcept { return *directory_; }
  bool read_only() const noexcept { return read_only_; }
  std::uint64_t rebuilds(Rebuild why) const noexcept {
    return rebuilds_[static_cast<std::size_t>(why)].load(std::memory_order_relaxed);
  }
  /// All of them.
  std::uint64_t rebuilds() const noexcept;
  /// How long this process's writes waited for others.
  ShortTimes& lock_waits() noexcept { return lock_waits_; }
  /// Writes that were given up, for others wrote all the while.
  std::uint64_t lock_timeouts() const noexcept {
    return lock_timeouts_.load(std::memory_order_relaxed);
  }
  UpkeepRuns checkpoints() const {
    const ForkSafeLock hold(checkpoints_mutex_);
    return checkpoints_;
  }
  /// The cap of the live data. It may be changed while the store is open.
  std::uint64_t max_bytes() const noexcept { return max_bytes_.load(std::memory_order_relaxed); }
  void set_max_bytes(std::uint64_t bytes) noexcept {
    max_bytes_.store(bytes, std::memory_order_relaxed);
  }
  Result<std::string> generation_name();
  Result<int> schema_version();

  /// Leaves the generation as it is and begins an empty one.
  Result<void> begin_anew(const Error& why);

  /// Takes the reserve away, or puts it back. Call while writing.
  std::uint64_t reserve_bytes() const noexcept;
  void free_reserve() const { reserve().release(); }
  void make_reserve() const { reserve().make(reserve_bytes()); }
  /// Removes generations that nobody has open, and locks of processes that are gone. Call while
  /// writing.
  void remove_leftovers();
  /// For a store that goes: a long WAL would be read again, whole, by the next process that opens
  /// it alone. Does nothing when somebody else is writing.
  void checkpoint_before_close();
  /// Whether evicting and checkpoints are this process's to do: the keeper's while there is one,
  /// anybody's while there is none.
  bool is_keeper() const;
  /// For one that is to be: takes over from a keeper that has gone.
  void become_keeper();
  /// Merges the WAL into the database and cuts it to nothing, unless a reader is in the way.
  Result<bool> checkpoint(SqliteHandle& db);

 private:
  explicit StoreSession(const SqliteStoreOptions& options)
      : options_(options), max_bytes_(options.max_bytes) {}

  /// The lock that makes this the only writer, among threads as well as processes.
  Result<FileLock> take_turn(std::chrono::milliseconds wait);
  /// The open generation, after a look at whether it is still the one to use: at every write, and
  /// once a second for reads.
  Result<std::shared_ptr<Generation>> current(bool in_turn);
  Result<std::shared_ptr<Generation>> open_current(bool in_turn);
  Result<std::shared_ptr<Generation>> open_named(const std::string& name,
                                                 SqliteTrouble* trouble = nullptr) const;
  /// `rebuild`: nothing, where there was no store before.
  Result<void> begin_generation(const Error& why, std::optional<Rebuild> rebuild);
  Result<void> recover(const std::shared_ptr<Generation>& broken, const Error& why);
  Result<void> recover_in_turn(const std::shared_ptr<Generation>& broken, const Error& why);
  Result<void> migrate(const std::shared_ptr<Generation>& generation);
  static bool worth_recovering(const SqliteHandle& db, const Error& error) noexcept;
  bool looks_healthy(const Generation& generation) const;
  bool is_stale(const Generation& generation);
  void checkpoint_if_long(SqliteHandle& db);
  DiskReserve reserve() const { return DiskReserve(directory_->path("reserve.bin")); }

  SqliteStoreOptions options_;
  std::atomic<std::uint64_t> max_bytes_;
  std::unique_ptr<StoreDirectory> directory_;
  bool read_only_ = false;

  std::mutex mutex_;  // of the two below
  std::shared_ptr<Generation> generation_;
  FileStamp current_stamp_;
  FileLock keeper_;
  std::atomic<std::int64_t> next_look_ns_{0};
  std::atomic<int> lost_checkpoint_pages_{0};
  std::array<std::atomic<std::uint64_t>, std::size(kRebuilds)> rebuilds_{};
  std::atomic<std::uint64_t> lock_timeouts_{0};
  ShortTimes lock_waits_;
  std::atomic<int> forgiven_{0};
  mutable std::mutex checkpoints_mutex_;
  UpkeepRuns checkpoints_;
};

}  // namespace cukiln
