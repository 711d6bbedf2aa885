// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/cache_format.hpp"
#include "core/store/host_facts.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// The folder of a store of this format in its directory, beside those of others.
#define CUKILN_STORE_FOLDER "v" CUKILN_CACHE_FORMAT

/// The folder of a store (cache/FORMAT.md, "Layout"): its paths, the checks of owners and modes,
/// and the name of the current generation. Opens no database. Threads: immutable.
class StoreDirectory {
 public:
  struct Rules {
    bool system = false;  ///< another owner's store, which is only read, and which root may own
    bool allow_network_file_system = false;
  };

  /// Creates missing folders (not with `system`), and checks owner and mode of the store's folders.
  /// Errors: not_found (`system`, and there is no store), invalid_argument (open to other users, or
  /// on a file system that SQLite cannot use; the message says what to do), io.
  static Result<StoreDirectory> prepare(const std::string& directory, const Rules& rules,
                                        const HostFacts& facts);

  /// True if the store cannot or must not be written.
  bool read_only() const noexcept { return read_only_; }
  /// True for a system store that belongs to root, so that no other user wrote what is in it.
  bool is_of_root() const noexcept { return is_of_root_; }
  /// Returns why a read-only store cannot be written, or what to do about it.
  std::string why_read_only() const;
  const std::string& root() const noexcept { return root_; }
  std::string path(std::string_view name) const;

  /// Reads the name of the current generation, `gen-0001`. Errors: not_found, io, corrupt.
  Result<std::string> current() const;
  Result<void> set_current(const std::string& generation) const;
  /// Creates an empty folder with the next number. Call with the writer lock held.
  Result<std::string> make_generation() const;
  std::vector<std::string> generations() const;
  /// Removes the files that a store created in a generation, and the folder unless another file is
  /// in it.
  void remove_generation(const std::string& generation) const;
  /// Removes the leftovers of killed processes: temporary files of CURRENT, and lock files of
  /// compiles that are older than a minute and not locked. Call with the writer lock held.
  void remove_stray_files() const;

  /// Creates a folder beside the generations, 0700, or checks the existing one.
  Result<std::string> folder(std::string_view name) const;
  /// Checks that a file, if it exists, is regular, belongs to this user and is not open to others.
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
  bool is_of_root_ = false;
};

}  // namespace cukiln
