// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/bytes.hpp"
#include "core/base/clock.hpp"
#include "core/base/hasher.hpp"
#include "core/key/compile_request.hpp"
#include "core/key/dependency_set.hpp"
#include "core/key/set_tree.hpp"
#include "core/key/stat_cache.hpp"

namespace cukiln {

/// Maps a virtual folder to real folders, which are searched in order: the first that has the path
/// wins. Thus a host with CUDA's headers in one toolkit folder and a host with them in three wheels
/// have the same virtual paths.
struct VirtualRoot {
  std::string prefix;  ///< `/cukiln/inc/0`, no slash at the end
  /// Real and absolute; if empty, every path below is absent. The last may be kStdFolder.
  std::vector<std::string> folders;
  /// What a dependency set recorded below it counts as true in checks: nothing on this machine
  /// could differ from it. For CUDA's headers where there is neither NVRTC nor any of them, and
  /// for entries that may be trusted to name genuine ones.
  bool as_recorded = false;
};

/// Device and inode of a file: equal for two paths to one file.
struct FileIdentity {
  /// The device number of memory files; no file system has it.
  static constexpr std::uint64_t kMemoryDevice = ~std::uint64_t{0};
  /// The device number of files that count as recorded; the inode is their recorded class.
  static constexpr std::uint64_t kRecordedDevice = kMemoryDevice - 1;
  /// That of the headers in kStdFolder.
  static constexpr std::uint64_t kStdDevice = kMemoryDevice - 2;

  std::uint64_t device = kMemoryDevice;
  std::uint64_t inode = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

/// What is at a virtual path.
struct FileAnswer {
  enum class Kind { file, folder, absent, error };
  Kind kind = Kind::absent;
  SharedBytes bytes;      ///< file
  ContentHash digest;     ///< file
  FileIdentity identity;  ///< file or folder
  std::string real_path;  ///< file or folder; for messages
  std::string message;    ///< error: why it cannot be read (a FIFO, too large, an I/O error)
};

/// Serves files by virtual path. Answers are cached, so that within one compile a path has one
/// answer, whatever happens on disk meanwhile. Make one for each compile or check.
/// A path is mapped by replacing its prefix, without normalising it; a path outside every root is
/// used as it is. A path that cannot be examined (a loop of links, a folder without permission) is
/// absent, as it is for NVRTC.
/// Threads: one at a time.
class FileServer {
 public:
  FileServer(std::vector<VirtualRoot> roots, StatCache* stats,
             const Clock& clock = Clock::system());

  /// Adds a file that exists in memory only, such as a source. It takes precedence over the disk.
  /// `digest` is that of `text`, if the caller knows it.
  void add_memory_file(std::string virtual_path, SharedBytes text,
                       std::optional<ContentHash> digest = std::nullopt);

  /// Reads the file at a path, for a compile. Never blocks on a FIFO or device.
  const FileAnswer& serve(const std::string& virtual_path);

  /// How the files differ from a recorded dependency set.
  struct Mismatch {
    enum class What {
      none,
      changed,
      vanished,
      appeared,
      relinked  ///< shared its file with another path and no longer does, or the reverse
    } what = What::none;
    std::string path;
    ContentHash was, now;
  };
  /// The first mismatch between `set` and the files as they are now; `none` if the set holds. Files
  /// with an unchanged stamp are not read. Without `trust_toolkit` no path counts as recorded.
  Mismatch check(const DependencySet& set, bool trust_toolkit = true);
  /// Every mismatch, for `explain`.
  std::vector<Mismatch> check_all(const DependencySet& set, bool trust_toolkit = true);
  /// The label of what is at a path now, for a walk through a SetTree. The next `check` reuses it.
  SetTree::Label label(const std::string& virtual_path);
  /// The identity of the file or folder at a path now.
  FileIdentity identity(const std::string& virtual_path) {
    return probe(virtual_path, false, nullptr).identity;
  }
  /// Whether a path counts as a dependency set recorded it: see VirtualRoot. A standard header's
  /// does not, served or not: this library knows what it compiles with.
  bool is_as_recorded(std::string_view virtual_path) const noexcept;
  /// Drops the labels that the next `check` would reuse. Call it when a lookup begins: labels of an
  /// earlier lookup may be out of date.
  void clear_labels() noexcept { labels_.clear(); }

  /// The real paths that a virtual path may stand for, in search order.
  std::vector<std::string> candidates(const std::string& virtual_path) const;

  /// A virtual path as the user knows it: `/cukiln/inc/0/a.cuh` → `include/a.cuh`.
  std::string real_path(const std::string& virtual_path) const;
  /// A log with each virtual path in it replaced by its real path.
  std::string with_real_paths(ByteView log) const;

 private:
  struct MemoryFile {
    SharedBytes text;
    std::optional<ContentHash> digest;
    std::uint64_t inode = 0;  // on kMemoryDevice
  };
  /// What is at a path, without its bytes.
  struct PathState {
    FileAnswer::Kind kind = FileAnswer::Kind::absent;
    ContentHash digest;
    FileIdentity identity;
  };
  class IdentityClasses;
  class AbsentFolders;

  static const ContentHash& digest_of(MemoryFile& file);
  const FileAnswer* answer_without_disk(const std::string& virtual_path);
  PathState probe(const std::string& virtual_path, bool wants_digest, AbsentFolders* absent);
  using PathStates = std::unordered_map<std::string, PathState>;
  Mismatch compare(const Observation& recorded, const PathStates& labels, bool trust_toolkit,
                   IdentityClasses& classes, AbsentFolders& absent);

  std::vector<VirtualRoot> roots_;
  StatCache* stats_;
  const Clock& clock_;
  std::unordered_map<std::string, MemoryFile> memory_files_;
  std::unordered_map<std::string, FileAnswer> answers_;
  PathStates labels_;  // what `label` found since the last check
};

}  // namespace cukiln
