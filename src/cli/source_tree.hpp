// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/hasher.hpp"
#include "core/key/compile_request.hpp"
#include "core/store/cubin_store.hpp"

#include <cukiln/result.hpp>

namespace cukiln::cli {

/// Finds those headers of an entry that are in `folders` with the bytes that were compiled.
std::vector<VirtualSource> find_headers(const StoreEntry& entry,
                                        const std::vector<std::string>& folders);

/// A folder in which debuggers and profilers find the sources and headers of entries, each at the
/// path that line tables have, below the folder: `DIR/cukiln/src/k.cu`. A file is laid only if its
/// bytes are those that were compiled; a file that is there with other bytes is left as it is.
class SourceTree {
 public:
  /// `search` has the folders of headers, in any order: the recorded digest tells which file is
  /// meant.
  SourceTree(std::string folder, std::vector<std::string> search)
      : folder_(std::move(folder)), search_(std::move(search)) {}

  /// Lays the files of an entry, which has its source text. `toolkit` has the folders of CUDA's
  /// headers. Errors: corrupt (the entry), io.
  Result<void> add(const StoreEntry& entry, const std::vector<std::string>& toolkit);

  /// The number of files that are there.
  std::size_t files() const noexcept { return laid_.size(); }

  /// A file of an entry that is not there.
  struct Missing {
    std::string module;
    std::string path;  ///< in line tables
    std::string reason;
  };
  const std::vector<Missing>& missing() const noexcept { return missing_; }

 private:
  struct RecordedFile {
    const StoreEntry& entry;
    const std::vector<std::string>& toolkit;
    std::string path;  ///< in line tables
    ContentHash digest;
  };
  /// Finds the file on disk.
  Result<void> find(const RecordedFile& recorded);
  Result<void> lay(const RecordedFile& recorded, ByteView bytes);
  void miss(const RecordedFile& recorded, std::string reason);
  std::vector<std::string> candidates(const RecordedFile& recorded) const;

  const std::string folder_;
  const std::vector<std::string> search_;
  std::map<std::string, ContentHash> laid_;  // by path below the folder
  std::vector<Missing> missing_;
};

}  // namespace cukiln::cli
