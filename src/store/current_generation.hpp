// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include "base/file.hpp"
#include "base/mutex.hpp"
#include "store/generation.hpp"
#include "store/space_limits.hpp"
#include "store/sqlite_options.hpp"
#include "store/store_directory.hpp"
#include "store/writer_lock.hpp"

namespace cukiln {

/// Why a store began anew: it could not be read, its files were taken away under those who had them
/// open, or a repair found nothing to keep.
enum class Rebuild { damaged, replaced, repair };
inline constexpr const char* kRebuilds[] = {"damaged", "replaced", "repair"};

/// Which generation of a store is in use: opens the current one, follows other processes to the
/// next, and begins one where the old one is damaged or was taken away. Threads: safe. Call with a
/// ForkGate::Pass.
class CurrentGeneration {
 public:
  CurrentGeneration(const SqliteStoreOptions& options, const StoreDirectory& directory,
                    const SpaceLimits& limits, WriterLock& writer)
      : options_(options), directory_(directory), limits_(limits), writer_(writer) {}

  /// The open generation, after a look at whether it is still the one to use: at every write
  /// (`as_writer`: the caller has the writer's lock), and once a second for reads.
  Result<std::shared_ptr<Generation>> get(bool as_writer);
  /// Of the one that `get` gave last, if it is this process's, else empty; looks at nothing.
  std::string folder() const;

  /// Replaces a generation in which an operation failed with `why`: by another's, by the same one
  /// opened again, or by an empty one. Call as the only writer.
  Result<void> recover(const std::shared_ptr<Generation>& broken, const Error& why);
  /// Whether `recover` may help after an error.
  static bool is_recoverable(const SqliteHandle& db, const Error& error) noexcept {
    return error.code() == ErrorCode::corrupt || db.trouble() == SqliteTrouble::moved;
  }
  /// Leaves the generation as it is and begins an empty one, for a repair. Call as the only writer.
  Result<void> start_new(const Error& why);

  std::uint64_t rebuilds(Rebuild why) const noexcept {
    return rebuilds_[static_cast<std::size_t>(why)].load(std::memory_order_relaxed);
  }

 private:
  /// What the files say now.
  struct Candidate {
    FileStamp stamp;           ///< of CURRENT, before it was read
    Result<std::string> name;  ///< of the generation
    /// The files of the generation in use are others: it must not be opened again.
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
  /// `rebuild`: nothing, where there was no store before.
  Result<void> begin(const Error& why, std::optional<Rebuild> rebuild);
  Generation::Options generation_options() const;
  bool looks_healthy(const Generation& generation) const;
  bool is_stale(const Generation& generation) const;
  FileStamp stamp_of_current() const noexcept;

  const SqliteStoreOptions& options_;
  const StoreDirectory& directory_;
  const SpaceLimits& limits_;
  WriterLock& writer_;

  mutable Mutex mutex_;  // of the two below
  std::shared_ptr<Generation> generation_;
  FileStamp current_stamp_;
  std::atomic<std::int64_t> next_look_ns_{0};
  std::array<std::atomic<std::uint64_t>, std::size(kRebuilds)> rebuilds_{};
  std::atomic<int> forgiven_{0};
};

}  // namespace cukiln
