#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "key/compile_request.hpp"
#include "key/dependency_set.hpp"
#include "key/stat_cache.hpp"

namespace cukiln {

/// Virtual folder → real folders, searched in order (a union: the first that has the path wins).
/// Two hosts with CUDA's headers in one toolkit folder or in three wheels see the same virtual
/// paths.
struct VirtualRoot {
  std::string prefix;                ///< `/cukiln/inc/0`, no slash at the end
  std::vector<std::string> folders;  ///< real, absolute; empty: nothing is there
};

struct FileAnswer {
  enum class Kind { file, folder, absent, error };
  Kind kind = Kind::absent;
  SharedBytes bytes;      ///< file
  Digest128 digest;       ///< file
  std::string real_path;  ///< of a file or folder, for messages
  std::string message;    ///< error: why it cannot be served (a FIFO, too large, no permission)
};

/// Answers what is at a virtual path, and keeps what it said: within one compile a path has one
/// answer, whatever happens on disk meanwhile. One per compile or check; not for several threads.
/// A path is mapped by replacing its prefix and nothing else. A path outside every root is literal.
class FileServer {
 public:
  FileServer(std::vector<VirtualRoot> roots, StatCache* stats,
             const Clock& clock = Clock::system());

  /// A file that exists in memory only (a source), before any folder.
  void add_memory_file(std::string virtual_path, SharedBytes text);

  /// The bytes, for a compile. Never blocks on a FIFO or device.
  const FileAnswer& serve(const std::string& virtual_path);

  /// The first thing in `set` that does not hold for the files here and now; empty: all holds.
  /// Unchanged files are believed by their stamps, not read again.
  struct Mismatch {
    enum class What { none, changed, vanished, appeared } what = What::none;
    std::string path;
    Digest128 was, now;
  };
  Mismatch check(const DependencySet& set);
  /// Every mismatch, for explain.
  std::vector<Mismatch> check_all(const DependencySet& set);

  const std::vector<VirtualRoot>& roots() const noexcept { return roots_; }
  /// How many `add_memory_file` brought.
  std::size_t memory_files() const noexcept { return memory_files_.size(); }
  /// The real paths that are looked at for a virtual one, in order.
  std::vector<std::string> candidates(const std::string& virtual_path) const;

  /// A virtual path as the user knows it: `/cukiln/inc/0/a.cuh` → `include/a.cuh`; and a whole log.
  std::string real_path(const std::string& virtual_path) const;
  std::string with_real_paths(ByteView log) const;

 private:
  Mismatch check_present(const DependencySet::Present& present);
  bool exists(const std::string& virtual_path, bool* is_folder);

  std::vector<VirtualRoot> roots_;
  StatCache* stats_;
  const Clock& clock_;
  std::unordered_map<std::string, SharedBytes> memory_files_;
  std::unordered_map<std::string, FileAnswer> answers_;
};

}  // namespace cukiln
