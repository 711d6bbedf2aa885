// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "store/host_facts.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// The folder of a store and what lies in it (cache/FORMAT.md, "Layout"): where things are, whether
/// they can be trusted, which generation is current. Opens no database. Threads: immutable.
class StoreDirectory {
 public:
  struct Rules {
    bool system = false;  ///< somebody else's, below ours: read-only, and root may own it
    bool allow_network_file_system = false;
  };

  /// Makes what is missing (not with `system`), and checks every component that is ours.
  /// Errors: not_found (`system`, and nothing is there), invalid_argument (not to be trusted, or on
  /// a file system that SQLite cannot use; the message says what to do), io.
  static Result<StoreDirectory> prepare(const std::string& directory, const Rules& rules,
                                        const HostFacts& facts);

  /// Whether nothing in it can or may be written.
  bool read_only() const noexcept { return read_only_; }
  /// Of a store that can only be read: the reason, or what would help.
  std::string why_read_only() const;
  const std::string& root() const noexcept { return root_; }
  std::string path(std::string_view name) const;

  /// The name of the current generation, `gen-0001`. Errors: not_found, io, corrupt.
  Result<std::string> current() const;
  Result<void> set_current(const std::string& generation) const;
  /// An empty folder whose number is higher than every other's. Call under the writer's lock.
  Result<std::string> make_generation() const;
  std::vector<std::string> generations() const;
  /// Removes the files that a store made in a generation, and the folder unless something else is
  /// in it.
  void remove_generation(const std::string& generation) const;
  /// Removes what killed processes left beside the generations: halves of a new CURRENT, and lock
  /// files of compiles that ended a minute ago. Call under the writer's lock.
  void remove_stray_files() const;

  /// Makes a folder beside the generations, 0700, or checks the one that is there.
  Result<std::string> folder(std::string_view name) const;
  /// Checks a file of ours if it is there: regular, ours, not open to others.
  Result<void> check_file(const std::string& path) const;
  Result<void> check_folder(const std::string& path) const;

 private:
  StoreDirectory(std::string root, const Rules& rules, const HostFacts& facts)
      : root_(std::move(root)), rules_(rules), facts_(&facts) {}

  Result<void> check(const std::string& path, const struct stat& status, bool folder) const;

  std::string root_;
  Rules rules_;
  const HostFacts* facts_;
  bool read_only_ = false;
};

}  // namespace cukiln
