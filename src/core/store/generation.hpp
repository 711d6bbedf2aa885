// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/cache_format.hpp"
#include "core/base/file_lock.hpp"
#include "core/base/fork_gate.hpp"
#include "core/base/mutex.hpp"
#include "core/store/process_lock.hpp"
#include "core/store/sqlite_handle.hpp"
#include "core/store/store_directory.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// The version of the tables. A store records which version wrote it, and the oldest versions that
/// may still read and write it, which an addition does not change.
struct StoreSchema {
  /// `CKL6`: tables of another format are never taken for these.
  static constexpr std::int64_t kApplicationId = 0x434B4C30 + kCacheFormat;

  int version = 1;
  int min_reader = 1;
  int min_writer = 1;
  /// `steps[n]` turns version n + 1 into n + 2; schema.sql is version 1.
  std::vector<std::string> steps;
};

/// One open folder `gen-NNNN`: the connections of its database, and the locks that keep other
/// processes from removing it. Threads: safe.
class Generation final : private ForkGate::Guarded {
 public:
  struct Options {
    bool read_only = false;
    int page_bytes = 4096;
    StoreSchema schema;
  };

  /// Creates an empty store in an empty folder. Call with the writer lock held. Errors: io.
  static Result<void> initialise(const std::string& folder, const Options& options);

  /// Errors: corrupt (not a store, or damaged: start a new generation), incompatible (written by a
  /// newer version, or open in another copy of this library), invalid_argument (open to other
  /// users), io, timeout. `trouble` receives SQLite's failure.
  static Result<std::shared_ptr<Generation>> open(const StoreDirectory& directory,
                                                  const std::string& name, const Options& options,
                                                  SqliteTrouble* trouble = nullptr);
  ~Generation() override;

  /// A connection that returns to the pool in its destructor.
  class Lease {
   public:
    Lease(Generation& owner, SqliteHandle handle) : owner_(&owner), handle_(std::move(handle)) {}
    Lease(Lease&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), handle_(std::move(other.handle_)) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease();
    SqliteHandle& operator*() noexcept { return handle_; }
    SqliteHandle* operator->() noexcept { return &handle_; }

   private:
    Generation* owner_;
    SqliteHandle handle_;
  };
  Result<Lease> lease(SqliteTrouble* trouble = nullptr);

  const std::string& name() const noexcept { return name_; }
  const std::string& folder() const noexcept { return folder_; }
  bool read_only() const noexcept { return options_.read_only; }
  bool needs_migration() const noexcept { return version_ < options_.schema.version; }
  /// Migrates the tables to this version in one transaction. Call with the writer lock held.
  /// Errors: io, corrupt.
  Result<void> migrate();
  int version() const noexcept { return version_; }

  /// True if the files on disk are no longer those that were opened.
  bool files_replaced() const;
  /// False in a forked child, which opens its own.
  bool belongs_to_this_process() const noexcept;
  /// True if a connection is open, in the pool or leased. In a forked child that means that the
  /// fork ran no handlers, and that the connections are the parent's.
  bool has_connections() const;

 private:
  Generation(std::string folder, std::string name, const Options& options, FileLock in_use,
             ProcessLock process);
  void before_fork() noexcept override;
  /// Opens the first connection and checks that the database is a store of this format.
  Result<void> check(SqliteTrouble* trouble);
  Result<void> check_identity(SqliteHandle& db);
  void return_to_pool(SqliteHandle handle);
  void record_files();

  struct FileIdentity {
    std::uint64_t device = 0, inode = 0;
    friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
  };
  FileIdentity identity_of(const char* suffix) const;

  const std::string folder_;
  const std::string name_;
  const std::string database_;
  Options options_;
  int version_ = 0;
  FileLock in_use_;
  ProcessLock process_lock_;
  const int process_;

  mutable Mutex mutex_;
  std::vector<SqliteHandle> idle_ CUKILN_GUARDED_BY(mutex_);
  int leased_ CUKILN_GUARDED_BY(mutex_) = 0;
  FileIdentity files_[3];  // store.db, -wal, -shm
};

}  // namespace cukiln
