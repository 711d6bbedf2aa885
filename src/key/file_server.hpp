// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/hasher.hpp"
#include "key/compile_request.hpp"
#include "key/dependency_set.hpp"
#include "key/set_tree.hpp"
#include "key/stat_cache.hpp"

namespace cukiln {

/// Virtual folder → real folders, searched in order (a union: the first that has the path wins).
/// Two hosts with CUDA's headers in one toolkit folder or in three wheels see the same virtual
/// paths.
struct VirtualRoot {
  std::string prefix;                ///< `/cukiln/inc/0`, no slash at the end
  std::vector<std::string> folders;  ///< real, absolute; empty: nothing is there
};

/// Which file on disk a path leads to: equal for two paths to one file.
struct FileIdentity {
  /// A device number that no file system has: what exists in memory only.
  static constexpr std::uint64_t kMemoryDevice = ~std::uint64_t{0};

  std::uint64_t device = kMemoryDevice;
  std::uint64_t inode = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

struct FileAnswer {
  enum class Kind { file, folder, absent, error };
  Kind kind = Kind::absent;
  SharedBytes bytes;      ///< file
  ContentHash digest;     ///< file
  FileIdentity identity;  ///< file or folder
  std::string real_path;  ///< of a file or folder, for messages
  std::string message;    ///< error: why it cannot be served (a FIFO, too large, unreadable)
};

/// Answers what is at a virtual path, and keeps what it said: within one compile a path has one
/// answer, whatever happens on disk meanwhile. One per compile or check; not for several threads.
/// A path is mapped by replacing its prefix and nothing else. A path outside every root is literal.
/// What cannot be looked at (a loop of links, a folder without permission) is absent, as it is for
/// NVRTC.
class FileServer {
 public:
  FileServer(std::vector<VirtualRoot> roots, StatCache* stats,
             const Clock& clock = Clock::system());

  /// A file that exists in memory only (a source), before any folder. `digest`: of the text, where
  /// it is known.
  void add_memory_file(std::string virtual_path, SharedBytes text,
                       std::optional<ContentHash> digest = std::nullopt);

  /// The bytes, for a compile. Never blocks on a FIFO or device.
  const FileAnswer& serve(const std::string& virtual_path);

  /// The first thing in `set` that does not hold for the files here and now; none: all holds.
  /// Unchanged files are believed by their stamps, not read again.
  struct Mismatch {
    enum class What {
      none,
      changed,
      vanished,
      appeared,
      relinked  ///< was one file with another path and is not, or the other way round
    } what = What::none;
    std::string path;
    ContentHash was, now;
  };
  Mismatch check(const DependencySet& set);
  /// Every mismatch, for explain.
  std::vector<Mismatch> check_all(const DependencySet& set);
  /// What is at a path now, for a walk through a SetTree.
  SetTree::Label label(const std::string& virtual_path);
  /// What `label` saw spares the next `check` a second look, within one lookup: a later one begins
  /// with this.
  void forget_labels() noexcept { labelled_.clear(); }

  const std::vector<VirtualRoot>& roots() const noexcept { return roots_; }
  /// How many `add_memory_file` brought.
  std::size_t memory_files() const noexcept { return memory_files_.size(); }
  /// The real paths that are looked at for a virtual one, in order.
  std::vector<std::string> candidates(const std::string& virtual_path) const;

  /// A virtual path as the user knows it: `/cukiln/inc/0/a.cuh` → `include/a.cuh`; and a whole log.
  std::string real_path(const std::string& virtual_path) const;
  std::string with_real_paths(ByteView log) const;

 private:
  struct MemoryFile {
    SharedBytes text;
    std::optional<ContentHash> digest;
    std::uint64_t number = 0;
  };
  struct Found {
    FileAnswer::Kind kind = FileAnswer::Kind::absent;
    ContentHash digest;
    FileIdentity identity;
  };
  class Identities;

  static const ContentHash& digest_of(MemoryFile& file);
  const FileAnswer* known(const std::string& virtual_path);
  /// `hashed`: the digest is wanted too.
  Found look(const std::string& virtual_path, bool hashed);
  using Labelled = std::unordered_map<std::string, Found>;
  Mismatch compare(const Observation& seen, const Labelled& labelled, Identities& identities);

  std::vector<VirtualRoot> roots_;
  StatCache* stats_;
  const Clock& clock_;
  std::unordered_map<std::string, MemoryFile> memory_files_;
  std::unordered_map<std::string, FileAnswer> answers_;
  Labelled labelled_;  // since the last check: what led to a set is not looked at again for it
};

}  // namespace cukiln
