// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include "core/base/file.hpp"
#include "core/base/mutex.hpp"
#include "core/store/generation.hpp"
#include "core/store/space_limits.hpp"
#include "core/store/sqlite_options.hpp"
#include "core/store/store_directory.hpp"
#include "core/store/writer_lock.hpp"

namespace cukiln {

/// Why a new generation was started: the database could not be read, its files were replaced while
/// they were open, or `verify --repair` could not repair it.
enum class Rebuild { damaged, replaced, repair };
inline constexpr const char* kRebuilds[] = {"damaged", "replaced", "repair"};

/// The generation of a store that this process uses. Opens the current one, follows other processes
/// to the next, and starts a new one if the old one is damaged or its files were replaced. Threads:
/// safe. Call with a ForkGate::Pass.
class CurrentGeneration {
 public:
  CurrentGeneration(const SqliteStoreOptions& options, const StoreDirectory& directory,
                    const SpaceLimits& limits, WriterLock& writer)
      : options_(options), directory_(directory), limits_(limits), writer_(writer) {}

  /// Returns the open generation. Checks first that it is still the current one: at every write
  /// (`as_writer`: the caller holds the writer lock), and once a second for reads.
  Result<std::shared_ptr<Generation>> get(bool as_writer);
  /// Returns the folder of the generation that `get` returned last; empty if there is none, or it
  /// belongs to the parent process. Makes no system call.
  std::string folder() const;

  /// Replaces a generation in which an operation failed with `why`: by the one that another process
  /// started, by the same one opened again, or by an empty one. Call with the writer lock held.
  Result<void> recover(const std::shared_ptr<Generation>& broken, const Error& why);
  /// True if `recover` may help after an error.
  static bool is_recoverable(const SqliteHandle& db, const Error& error) noexcept {
    return error.code() == ErrorCode::corrupt || db.trouble() == SqliteTrouble::moved;
  }
  /// Leaves the generation as it is and starts an empty one, for a repair. Call with the writer
  /// lock held.
  Result<void> start_new(const Error& why);

  std::uint64_t rebuilds(Rebuild why) const noexcept {
    return rebuilds_[static_cast<std::size_t>(why)].load(std::memory_order_relaxed);
  }

 private:
  /// The generation that CURRENT names, opened, or the reason why it cannot be.
  struct Candidate {
    FileStamp stamp;           ///< of CURRENT, before it was read
    Result<std::string> name;  ///< of the generation
    /// The files of the generation in use were replaced: it must not be opened again.
    bool files_replaced = false;
    SqliteTrouble trouble = SqliteTrouble::none;
    Result<std::shared_ptr<Generation>> generation;
  };
  Candidate open_candidate();
  Result<std::shared_ptr<Generation>> open_current(bool as_writer);
  Result<std::shared_ptr<Generation>> open_named(const std::string& name,
                                                 SqliteTrouble* trouble = nullptr) const;
  Error outdated_and_read_only(const Generation& generation) const;
  std::shared_ptr<Generation> use(std::shared_ptr<Generation> generation, const FileStamp& stamp);
  /// Creates an empty generation and makes it the current one. `rebuild` is empty if there was no
  /// store before. Call with the writer lock held.
  Result<void> create(const Error& why, std::optional<Rebuild> rebuild);
  Generation::Options generation_options() const;
  /// True if the current generation took the place of another less than a minute ago.
  bool was_just_rebuilt() const;
  bool passes_quick_check(const Generation& generation) const;
  bool is_stale(const Generation& generation) const CUKILN_REQUIRES(mutex_);
  FileStamp stamp_of_current() const;

  const SqliteStoreOptions& options_;
  const StoreDirectory& directory_;
  const SpaceLimits& limits_;
  WriterLock& writer_;

  mutable Mutex mutex_;
  std::shared_ptr<Generation> generation_ CUKILN_GUARDED_BY(mutex_);
  FileStamp current_stamp_ CUKILN_GUARDED_BY(mutex_);
  std::atomic<std::int64_t> recheck_at_ns_{0};
  std::array<std::atomic<std::uint64_t>, std::size(kRebuilds)> rebuilds_{};
  std::atomic<int> spurious_errors_{0};
};

}  // namespace cukiln
