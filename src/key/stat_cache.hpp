#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/file.hpp"

#include <cukiln/digest.hpp>

namespace cukiln {

/// What a file's stamp was when its bytes had this digest.
struct StatRecord {
  std::string path;  ///< real, absolute
  FileStamp stamp;
  Digest128 digest;
  std::string note;               ///< for libraries: the version it reported
  std::int64_t recorded_ns = 0;   ///< wall clock when the bytes were read
};

/// Digests of real files by their stamps: local, disposable, never part of a key. A file whose
/// max(mtime, ctime) is as young as the record (within 2 s, the coarsest timestamp in use) is not
/// believed: it may have been rewritten in the same tick (git's racy entry).
/// Threads: safe.
class StatCache {
 public:
  std::optional<StatRecord> find(const std::string& path, const FileStamp& stamp) const;
  void put(StatRecord record);

  /// Rows from the store at start; rows that are new since the last call, for the store.
  void load(std::vector<StatRecord> records);
  std::vector<StatRecord> take_new();

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, StatRecord> records_;
  std::vector<StatRecord> new_;
};

}  // namespace cukiln
