// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cukiln {

/// The name of the SQLite VFS that our connections use: SQLite's own `unix`, except that a part of
/// the WAL index (`-shm`) for which the disk has no room is SQLITE_FULL. SQLite maps that file, and
/// where a page of it has no block on disk, and none can be had, the first write to the page would
/// end the process with SIGBUS.
///
/// Registered by the first call, under a name of this copy of the library, never as the default: a
/// host that uses the same libsqlite3 is not touched. nullptr: it cannot be registered; SQLite's
/// default VFS does the same without that protection. Threads: safe.
const char* wal_index_vfs() noexcept;

}  // namespace cukiln
