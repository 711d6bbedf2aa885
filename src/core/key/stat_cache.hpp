// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/file.hpp"
#include "core/base/file_system.hpp"
#include "core/base/hasher.hpp"
#include "core/base/mutex.hpp"

#include <cukiln/digest.hpp>

namespace cukiln {

/// The digest of a file's bytes, and the stamp that the file had then.
struct StatRecord {
  std::string path;  ///< real, absolute
  FileStamp stamp;
  ContentHash digest;
  std::string note;              ///< for NVRTC's libraries: the version they reported
  std::int64_t recorded_ns = 0;  ///< wall clock before the file was opened
};

/// Digests of real files by their stamps, so that unchanged files are not read again. Local and
/// disposable; never part of a key.
///
/// A record is not used if the file changed within 2 s (the coarsest timestamp in use) before it
/// was recorded: it may have been written again in the same tick (git's "racy entry"). Nor is it
/// used on file systems whose stamps do not tell versions of a file apart (`stamps_are_reliable`).
/// Threads: safe.
class StatCache {
 public:
  using Reliable = bool (*)(const std::string& path);
  explicit StatCache(Reliable reliable = &stamps_are_reliable) noexcept : reliable_(reliable) {}

  /// The digest of a file with this stamp; nothing if there is no record that can be used. `mount`
  /// is the number of the file's mount (FileStatus); looked up if the caller has none.
  std::optional<ContentHash> find(const std::string& path, const FileStamp& stamp,
                                  std::optional<std::uint64_t> mount = std::nullopt);
  /// The record, on every file system, for callers with another way to tell versions apart.
  std::optional<StatRecord> find_on_any_file_system(const std::string& path,
                                                    const FileStamp& stamp);
  /// Whether stamps are reliable on the file system of `path`.
  bool trusts_stamps(const std::string& path, std::optional<std::uint64_t> mount = std::nullopt);
  void put(StatRecord record);

  /// Looks up a record of an earlier process. It is called for one path at a time: a start that
  /// needs eight headers must not pay for the thousands of records in a store.
  using Source = std::function<std::optional<StatRecord>(const std::string& path)>;
  void set_source(Source source);

  /// Takes the records added since the last call, for the store to save.
  std::vector<StatRecord> take_new();

 private:
  template <class Take>
  auto find_record(const std::string& path, const FileStamp& stamp, const Take& take)
      -> std::optional<decltype(take(std::declval<const StatRecord&>()))>;

  Mutex mutex_;
  Source source_ CUKILN_GUARDED_BY(mutex_);
  std::unordered_map<std::string, StatRecord> records_ CUKILN_GUARDED_BY(mutex_);
  std::vector<StatRecord> new_ CUKILN_GUARDED_BY(mutex_);
  const Reliable reliable_;
  std::unordered_map<std::uint64_t, bool> mounts_ CUKILN_GUARDED_BY(mutex_);  // is it reliable
};

}  // namespace cukiln
