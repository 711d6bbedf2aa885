// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/file.hpp"

namespace cukiln {

/// statfs(2)'s f_type of the file system that holds `path`; 0 if statfs fails.
long file_system_type(const std::string& path) noexcept;

/// The name of a network file system, whose locks and shared memory do not work between machines;
/// nullptr for any other type.
const char* network_file_system_name(long type) noexcept;

/// What stat(2) says of a file, and its mount.
struct FileStatus {
  FileStamp stamp;
  mode_t mode = 0;
  /// No other mount gets this number while the machine runs; 0 on kernels before 6.8.
  std::uint64_t mount = 0;
};

/// Nothing with errno set if the file is absent or cannot be looked at.
std::optional<FileStatus> status_of(const std::string& path) noexcept;

/// Whether, on the file system of `path`, an unchanged stamp (device, inode, size, mtime, ctime)
/// means unchanged bytes. True for ext4, XFS and the like, and for an overlay whose layers are
/// visible and reliable. False for read-only images (inodes and times repeat from image to image),
/// tmpfs (a write through a mapping leaves the times unchanged), network file systems (clocks and
/// caches of another machine) and types that are not known. Kernels before 6.8: false for every
/// overlay and read-only mount.
bool stamps_are_reliable(const std::string& path);

}  // namespace cukiln
