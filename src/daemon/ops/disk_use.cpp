// SPDX-License-Identifier: Apache-2.0
#include "daemon/ops/disk_use.hpp"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <string>

#include "base/file.hpp"

namespace cukiln::ops {

DiskUse disk_use(TieredStore& store) {
  DiskUse use;
  SqliteStore* const disk = store.disk();
  if (disk == nullptr) {
    return use;
  }
  use.max_bytes = disk->session().limits().max_bytes();
  use.lock_timeouts = disk->session().writer().timeouts();
  use.reserve_bytes = disk->session().limits().reserve_bytes();
  if (const auto generation = disk->session().generation_name()) {
    // Looked at by name: to open and close a file of SQLite's would drop its locks.
    const std::string wal = join_path(disk->directory().path(*generation), "store.db-wal");
    struct stat status {};
    use.wal_bytes =
        ::stat(wal.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
  }
  struct statvfs system {};
  if (::statvfs(disk->directory().root().c_str(), &system) == 0) {
    use.free_disk_bytes = static_cast<std::uint64_t>(system.f_bavail) * system.f_frsize;
  }
  return use;
}

}  // namespace cukiln::ops
