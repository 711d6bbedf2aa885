// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "addons/fleet/endpoint.hpp"
#include "core/base/bytes.hpp"
#include "core/base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// The objects of a fleet as files below a folder that machines share. See cache/FORMAT.md, "In a
/// folder". Nothing is locked: a file gets its name once it is complete and on the disk, and
/// nothing that is read is believed. The calls block for as long as the file system does. No
/// symbolic link below the root is followed. Threads: safe.
class FolderFiles {
 public:
  /// `is_private`: files and folders that another user could have written are refused.
  FolderFiles(std::string root, bool is_read_only, bool is_private)
      : root_(std::move(root)), is_private_(is_private), refreshes_(!is_read_only) {}

  const std::string& root() const noexcept { return root_; }
  RemoteAnswer get(const ObjectName& name);
  RemoteAnswer put(const ObjectName& name, ByteView bytes);
  /// Reads the files of a request's sets, the youngest first, until most of the time is over.
  RemoteAnswer get_parts(const ObjectName& name, SteadyTime deadline);
  RemoteAnswer put_part(const ObjectName& name, const std::string& part, ByteView bytes);
  /// As RemoteEndpoint::collect. Sets go when their entry has gone.
  Result<RemoteCollection> collect(std::int64_t max_age_s, bool dry_run);

 private:
  struct Place {
    std::vector<std::string> folders;  ///< from the root on
    std::string name;
  };
  static Place place_of(const ObjectName& name);
  static Place place_of(const ObjectName& sets, std::string part);

  RemoteAnswer open_root(UniqueFd& folder, mode_t& mode) const;
  /// Opens the folder of a place; makes those that are missing if `makes`.
  RemoteAnswer open_folder(const Place& place, bool makes, UniqueFd& folder, mode_t& mode) const;
  RemoteAnswer read(const UniqueFd& folder, const std::string& name, std::uint64_t max_bytes);
  RemoteAnswer write(const Place& place, ByteView bytes) const;
  RemoteAnswer check_owner(const struct stat& status, const std::string& what) const;
  RemoteAnswer failure(const char* what, const std::string& name, int error) const;

  const std::string root_;
  const bool is_private_;
  std::atomic<bool> refreshes_;  ///< times of files: false once that is not permitted
};

}  // namespace cukiln
