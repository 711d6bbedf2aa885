// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/file.hpp"
#include "base/file_system.hpp"
#include "base/hasher.hpp"

#include <cukiln/digest.hpp>

namespace cukiln {

/// What a file's stamp was when its bytes had this digest.
struct StatRecord {
  std::string path;  ///< real, absolute
  FileStamp stamp;
  ContentHash digest;
  std::string note;              ///< for libraries: the version it reported
  std::int64_t recorded_ns = 0;  ///< wall clock before the file was opened
};

/// Digests of real files by their stamps: local, disposable, never part of a key. A file whose
/// max(mtime, ctime) is as young as the record (within 2 s, the coarsest timestamp in use) is not
/// believed: it may have been rewritten in the same tick (git's racy entry). Nor is any file where
/// stamps repeat or stay (`stamps_are_believed`).
/// Threads: safe.
class StatCache {
 public:
  using FileSystemType = long (*)(const std::string& path);
  explicit StatCache(FileSystemType file_system_type = &cukiln::file_system_type) noexcept
      : file_system_type_(file_system_type) {}

  std::optional<StatRecord> find(const std::string& path, const FileStamp& stamp);
  /// The same wherever the file is: whoever asks has something else to go by.
  std::optional<StatRecord> find_anywhere(const std::string& path, const FileStamp& stamp);
  /// Whether stamps tell files apart on the file system that holds `path`, whose device this is.
  bool believes_stamps(const std::string& path, std::uint64_t device);
  void put(StatRecord record);

  /// Where records of earlier processes are looked up, one path at a time: a start that needs eight
  /// headers must not pay for the thousands a store remembers.
  using Source = std::function<std::optional<StatRecord>(const std::string& path)>;
  void set_source(Source source);

  /// Records that are new since the last call, for the store.
  std::vector<StatRecord> take_new();

 private:
  std::mutex mutex_;
  Source source_;
  std::unordered_map<std::string, StatRecord> records_;
  std::vector<StatRecord> new_;
  const FileSystemType file_system_type_;
  std::unordered_map<std::uint64_t, bool> believed_;  // by device
};

}  // namespace cukiln
