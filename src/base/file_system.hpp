// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cukiln {

/// statfs(2)'s f_type of what holds `path`; 0 when it cannot be told.
long file_system_type(const std::string& path) noexcept;

/// The name of a file system whose locks and shared memory are not those of one machine; nullptr
/// for any other.
const char* network_file_system_name(long type) noexcept;

/// Whether a file whose stamp (device, inode, size, mtime, ctime) is unchanged has unchanged bytes.
/// False for tmpfs and ramfs (a write through a mapping leaves the times as they are), network file
/// systems (their clocks and caches are another machine's) and read-only images (inodes and times
/// repeat from image to image).
bool stamps_are_believed(long type) noexcept;

}  // namespace cukiln
