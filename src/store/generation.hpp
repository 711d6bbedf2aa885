// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file_lock.hpp"
#include "base/fork_gate.hpp"
#include "base/mutex.hpp"
#include "store/process_lock.hpp"
#include "store/sqlite_handle.hpp"
#include "store/store_directory.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// The version of the tables. A store says which version wrote it, and the oldest that may still
/// read and write it: additions leave those two where they are.
struct StoreSchema {
  /// `CKL2`: format 1 had another, and its tables would not do.
  static constexpr std::int64_t kApplicationId = 0x434B4C32;

  int version = 1;
  int min_reader = 1;
  int min_writer = 1;
  /// `steps[n]` turns version n + 1 into n + 2; schema.sql is version 1.
  std::vector<std::string> steps;
};

/// One folder `gen-NNNN`, held open: its database's connections, and the locks that say so.
/// Threads: safe.
class Generation final : private ForkGate::Guarded {
 public:
  struct Options {
    bool read_only = false;
    int page_bytes = 4096;
    StoreSchema schema;
  };

  /// Fills an empty folder with an empty store. Call under the writer's lock. Errors: io.
  static Result<void> initialise(const std::string& folder, const Options& options);

  /// Errors: corrupt (not a store, or damaged: make another generation), incompatible (a newer
  /// version's, or open in another copy of this library), invalid_argument (not to be trusted), io,
  /// timeout. `trouble`: what SQLite failed with.
  static Result<std::shared_ptr<Generation>> open(const StoreDirectory& directory,
                                                  const std::string& name, const Options& options,
                                                  SqliteTrouble* trouble = nullptr);
  ~Generation() override;

  /// A connection, back in the pool when it goes.
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
  /// In one transaction. Call under the writer's lock. Errors: io, corrupt.
  Result<void> migrate();
  int version() const noexcept { return version_; }

  /// Whether the files on disk are no longer those that were opened.
  bool moved() const;
  /// False in a forked child: it opens its own.
  bool belongs_to_this_process() const noexcept;
  /// Open now, in the pool or out. In a forked child: the fork ran no handlers, and they are the
  /// parent's.
  bool has_connections() const;

 private:
  Generation(std::string folder, std::string name, const Options& options, FileLock in_use,
             ProcessLock process);
  void before_fork() noexcept override;
  /// The first use of a connection, by `open`.
  Result<void> look(SqliteTrouble* trouble);
  Result<void> check_identity(SqliteHandle& db);
  void give_back(SqliteHandle handle);
  void note_files();

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
  std::vector<SqliteHandle> idle_;
  int out_ = 0;
  FileIdentity files_[3];  // store.db, -wal, -shm
};

}  // namespace cukiln
