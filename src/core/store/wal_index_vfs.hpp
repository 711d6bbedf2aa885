// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cukiln {

/// Returns the name of the SQLite VFS of our connections: SQLite's own `unix`, except that no
/// signal reaches the host. It reports SQLITE_FULL if the disk has no room for a part of the WAL
/// index (`-shm`): SQLite maps that file, and the first write to a page for which no block can be
/// allocated would end the process with SIGBUS. A write beyond the limit on file sizes fails
/// without SIGXFSZ. And a read that fails with EIO is SQLITE_IOERR_READ: `unix` has codes for it
/// that SQLite turns into SQLITE_CORRUPT, for which the store would be given up. A reader whose
/// read mark a stopped process has locked waits as its busy handler says, not ten seconds. It
/// checks the descriptors of our files, too (sqlite_descriptors.hpp).
///
/// The first call registers it, under a name of this copy of the library and never as the default,
/// so that a host with the same libsqlite3 is not affected. Null if it cannot be registered; then
/// SQLite's default VFS is used, without that protection. Threads: safe.
const char* wal_index_vfs() noexcept;

}  // namespace cukiln
