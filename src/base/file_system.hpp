// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cukiln {

/// statfs(2)'s f_type of the file system that holds `path`; 0 if statfs fails.
long file_system_type(const std::string& path) noexcept;

/// The name of a network file system, whose locks and shared memory do not work between machines;
/// nullptr for any other type.
const char* network_file_system_name(long type) noexcept;

/// Whether, on this type of file system, an unchanged stamp (device, inode, size, mtime, ctime)
/// means unchanged bytes. False for tmpfs and ramfs (a write through a mapping leaves the times
/// unchanged), network file systems (clocks and caches of another machine) and read-only images
/// (inodes and times repeat from image to image).
bool stamps_are_reliable(long type) noexcept;

}  // namespace cukiln
