// SPDX-License-Identifier: Apache-2.0
#pragma once

struct sqlite3_vfs;

namespace cukiln {

/// Has SQLite check our descriptors before it uses or closes them (base/kept_fd.hpp): one that the
/// host closed is EBADF, whatever has its number now. Replaces system calls of SQLite's `unix`,
/// which the host may use too: nothing changes for descriptors that were not opened within a
/// KeepsFiles. Call it once. False if this SQLite lets no calls be replaced.
bool guard_descriptors(sqlite3_vfs* unix_vfs) noexcept;

/// True if a call of this thread met a lost descriptor since the last call of this function.
bool met_lost_descriptor() noexcept;

/// While it exists, the files that SQLite opens in this thread are ours.
class KeepsFiles {
 public:
  KeepsFiles() noexcept;
  ~KeepsFiles();
  KeepsFiles(const KeepsFiles&) = delete;
  KeepsFiles& operator=(const KeepsFiles&) = delete;
};

}  // namespace cukiln
