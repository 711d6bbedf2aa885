// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/fork_gate.hpp"
#include "core/base/histogram.hpp"
#include "core/base/result.hpp"
#include "core/store/current_generation.hpp"
#include "core/store/disk_reserve.hpp"
#include "core/store/maintenance_owner.hpp"
#include "core/store/space_limits.hpp"
#include "core/store/sqlite_options.hpp"
#include "core/store/store_directory.hpp"
#include "core/store/wal_checkpoints.hpp"
#include "core/store/writer_lock.hpp"

namespace cukiln {

/// Runs functions on a connection of the store's current generation, as a reader or as the only
/// writer, and once more after it recovered from damage. Does not know the tables. Threads: safe.
class StoreSession {
 public:
  /// Opens the store, and creates it unless it is a system store. After an error the caller
  /// continues without this tier. Errors: not_found (`system`, and there is no store),
  /// invalid_argument (open to other users), incompatible (written by a newer version, or open in
  /// another copy of the library), io, timeout.
  static Result<std::unique_ptr<StoreSession>> open(const SqliteStoreOptions& options);

  /// Runs `body(SqliteHandle&)`, which returns a Result. After damage, starts a new generation and
  /// runs it once more. The owner of a store that is only read may replace the generation at any
  /// time: follows to the next.
  template <class Body>
  auto read(Body&& body) -> decltype(body(std::declval<SqliteHandle&>())) {
    const ForkGate::Pass pass;
    for (int attempt = 0;; ++attempt) {
      const bool was_replaced = attempt > 0 && directory_.read_only();
      CUKILN_TRY(const std::shared_ptr<Generation> generation, current_.get(was_replaced));
      auto db = generation->lease();
      if (!db && attempt == 0 && directory_.read_only()) {
        continue;
      }
      if (!db) {
        return std::move(db).error();
      }
      auto result = body(**db);
      if (result || attempt > 0 || !CurrentGeneration::is_recoverable(**db, result.error())) {
        return result;
      }
      const Error why = result.error();
      CUKILN_CHECK(recover(generation, why));
    }
  }

  /// The same, but only reports damage.
  template <class Body>
  auto inspect(Body&& body) -> decltype(body(std::declval<SqliteHandle&>())) {
    const ForkGate::Pass pass;
    CUKILN_TRY(const std::shared_ptr<Generation> generation, current_.get(false));
    CUKILN_TRY(Generation::Lease db, generation->lease());
    return body(*db);
  }

  /// Like `read`, with the writer lock held. Errors besides those of `body`: timeout (others wrote
  /// for longer than `wait`), io (the store is read-only).
  template <class Body>
  auto write(std::chrono::milliseconds wait, Body&& body)
      -> decltype(body(std::declval<SqliteHandle&>())) {
    const ForkGate::Pass pass;
    CUKILN_TRY(const FileLock lock, writer_.acquire(wait));
    for (int attempt = 0;; ++attempt) {
      CUKILN_TRY(const std::shared_ptr<Generation> generation, current_.get(true));
      if (generation->read_only()) {
        return make_error(ErrorCode::io, "the store in {} is read-only", directory_.root());
      }
      CUKILN_TRY(Generation::Lease db, generation->lease());
      db->set_busy_timeout(static_cast<int>(wait.count()));
      auto result = body(*db);
      if (result) {
        checkpoints_.run_if_long(*db);
        return result;
      }
      if (attempt > 0 || !CurrentGeneration::is_recoverable(*db, result.error())) {
        return result;
      }
      const Error why = result.error();
      CUKILN_CHECK(current_.recover(generation, why));
    }
  }

  const SqliteStoreOptions& options() const noexcept { return options_; }
  const StoreDirectory& directory() const noexcept { return directory_; }
  bool read_only() const noexcept { return writer_.read_only(); }
  SpaceLimits& limits() noexcept { return limits_; }
  WriterLock& writer() noexcept { return writer_; }
  Result<std::string> generation_name();
  Result<int> schema_version();
  /// The size of the current generation on disk: the database and its write-ahead log.
  std::uint64_t file_bytes();
  std::uint64_t rebuilds(Rebuild why) const noexcept { return current_.rebuilds(why); }
  /// The sum over all reasons.
  std::uint64_t rebuilds() const noexcept;

  /// Leaves the current generation as it is and starts an empty one.
  Result<void> start_new_generation(const Error& why);

  /// Release the reserve, and make it again. Call with the writer lock held.
  void free_reserve() const { reserve().release(); }
  void make_reserve() const { reserve().make(limits_.reserve_bytes()); }
  /// Removes generations that no process has open, and lock files of processes that have ended.
  /// Call with the writer lock held.
  void remove_leftovers();

  /// True if this process has to evict and to checkpoint.
  bool is_maintenance_due_here() const { return owner_.is_due_here(); }
  /// Becomes the maintenance owner if the options ask for it and no other process is it.
  void try_acquire_maintenance();
  /// Merges the WAL into the database and truncates it. False if a reader is in the way. Call with
  /// the writer lock held.
  Result<bool> checkpoint(SqliteHandle& db) { return checkpoints_.run(db); }
  MaintenanceRuns checkpoints() const { return checkpoints_.runs(); }
  /// Merges a long WAL before the store is closed: the next process that opens the store alone
  /// would read all of it. Does nothing while another process is writing.
  void checkpoint_before_close();

 private:
  StoreSession(const SqliteStoreOptions& options, StoreDirectory directory);

  Result<void> recover(const std::shared_ptr<Generation>& broken, const Error& why);
  DiskReserve reserve() const { return DiskReserve(directory_.path("reserve.bin")); }

  const SqliteStoreOptions options_;
  const StoreDirectory directory_;
  SpaceLimits limits_;
  WriterLock writer_;
  MaintenanceOwner owner_;
  WalCheckpoints checkpoints_;
  CurrentGeneration current_;
};

}  // namespace cukiln
