// SPDX-License-Identifier: Apache-2.0
#include "core/store/wal_index_vfs.hpp"

#include <linux/futex.h>
#include <sqlite3.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>

#include "core/base/file_size_limit.hpp"
#include "core/base/portable.hpp"
#include "core/store/sqlite_descriptors.hpp"

namespace cukiln {

namespace {

constexpr int kFirstReadMark = 4;  // SQLite's WAL_READ_LOCK(1); mark 0 has another meaning
constexpr int kMaxBusyReads = 20;  // SQLite's pauses between them take 20 ms together

/// `unix`, and the copy of it that is registered. SQLite passes `vfs` to every method.
struct Shim {
  sqlite3_vfs vfs;
  sqlite3_vfs* unix_vfs;
  char name[32];
};

/// The methods of one open file, stored after the data of `unix`.
struct Methods {
  sqlite3_io_methods table;
  const sqlite3_io_methods* unix_table;
  int busy_reads;  ///< since the last lock of a read mark
};

Methods& methods_of(sqlite3_file* file) noexcept {
  return *reinterpret_cast<Methods*>(const_cast<sqlite3_io_methods*>(file->pMethods));
}

const sqlite3_io_methods& unix_methods(sqlite3_file* file) noexcept {
  return *methods_of(file).unix_table;
}

int read_plain(sqlite3_file* file, void* bytes, int count, sqlite3_int64 offset) {
  const int code = unix_methods(file).xRead(file, bytes, count, offset);
  return code == SQLITE_IOERR_CORRUPTFS ? SQLITE_IOERR_READ : code;
}

int write_guarded(sqlite3_file* file, const void* bytes, int count, sqlite3_int64 offset) {
  const FileSizeLimitGuard guard;
  return unix_methods(file).xWrite(file, bytes, count, offset);
}

int truncate_guarded(sqlite3_file* file, sqlite3_int64 size) {
  const FileSizeLimitGuard guard;
  return unix_methods(file).xTruncate(file, size);
}

int control_guarded(sqlite3_file* file, int operation, void* argument) {
  const FileSizeLimitGuard guard;  // a hint of the size lets the file grow
  return unix_methods(file).xFileControl(file, operation, argument);
}

/// Writes to a page without changing it: the kernel ORs zero to its first word, atomically, and
/// reports EFAULT where a write by the process itself would raise SIGBUS.
bool touch(void* page) noexcept {
  std::uint32_t unused = 0;
  const long done = ::syscall(SYS_futex, &unused, FUTEX_WAKE_OP_PRIVATE, 0, nullptr, page,
                              FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0));
  return done >= 0 || errno != EFAULT;
}

/// Allocates the blocks of mapped pages. False if the disk has no room for them.
bool allocate(volatile void* region, std::size_t bytes) noexcept {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<std::uintptr_t>(region);
  const std::uintptr_t begin = at / page * page;
  const std::uintptr_t end = (at + bytes + page - 1) / page * page;
  int failed = 0;
  do {
    failed =
        ::madvise(reinterpret_cast<void*>(begin), end - begin, kMadvPopulateWrite) == 0  // NOLINT
            ? 0
            : errno;
  } while (failed == EINTR);
  if (failed == 0) {
    return true;
  }
  if (failed == EFAULT || failed == ENOMEM || failed == EHWPOISON) {
    return false;
  }
  for (std::uintptr_t one = begin; one < end; one += page) {  // Linux before 5.14, or a sandbox
    if (!touch(reinterpret_cast<void*>(one))) {               // NOLINT
      return false;
    }
  }
  return true;
}

int map_wal_index(sqlite3_file* file, int region, int bytes, int extend, void volatile** out) {
  const FileSizeLimitGuard guard;
  int code = SQLITE_OK;
  {
    const KeepsFiles keeps;  // the first call opens the WAL index
    code = unix_methods(file).xShmMap(file, region, bytes, extend, out);
  }
  if (code == SQLITE_IOERR_SHMSIZE) {  // the file could not grow
    return SQLITE_FULL;
  }
  // A file that may only be read is SQLITE_READONLY: nothing will be written to it.
  if (code == SQLITE_OK && *out != nullptr && !allocate(*out, static_cast<std::size_t>(bytes))) {
    *out = nullptr;  // it stays mapped, and the next operation tries again
    return SQLITE_FULL;
  }
  return code;
}

int lock_wal_index(sqlite3_file* file, int offset, int count, int flags) {
  static_cast<void>(met_lost_descriptor());
  const int code = unix_methods(file).xShmLock(file, offset, count, flags);
  const bool is_read = flags == (SQLITE_SHM_LOCK | SQLITE_SHM_SHARED) && offset >= kFirstReadMark;
  int& busy_reads = methods_of(file).busy_reads;
  busy_reads = !is_read || code == SQLITE_BUSY ? busy_reads : 0;
  if (code != SQLITE_BUSY) {
    return code;
  }
  // SQLite takes every failure for the lock of another process, and waits ten seconds for it.
  if (met_lost_descriptor()) {
    return SQLITE_IOERR_SHMLOCK;
  }
  // It waits as long for a process that was stopped while it moved a read mark, which takes
  // microseconds. From this code on it asks the connection's busy handler.
  if (is_read && ++busy_reads > kMaxBusyReads) {
    busy_reads = 0;
    return SQLITE_BUSY_TIMEOUT;
  }
  return code;
}

std::size_t offset_of_methods(const sqlite3_vfs& unix_vfs) noexcept {
  constexpr std::size_t kAlign = alignof(Methods);
  return (static_cast<std::size_t>(unix_vfs.szOsFile) + kAlign - 1) / kAlign * kAlign;
}

int open_file(sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags, int* out_flags) {
  sqlite3_vfs* const unix_vfs = reinterpret_cast<Shim*>(vfs)->unix_vfs;
  const KeepsFiles keeps;
  const int code = unix_vfs->xOpen(unix_vfs, path, file, flags, out_flags);
  if (code == SQLITE_OK) {
    auto* const methods = new (reinterpret_cast<char*>(file) + offset_of_methods(*unix_vfs))
        Methods{*file->pMethods, file->pMethods, 0};
    methods->table.xRead = read_plain;
    methods->table.xWrite = write_guarded;
    methods->table.xTruncate = truncate_guarded;
    methods->table.xFileControl = control_guarded;
    if (file->pMethods->iVersion >= 2 && file->pMethods->xShmMap != nullptr) {
      methods->table.xShmMap = map_wal_index;
      methods->table.xShmLock = lock_wal_index;
    }
    file->pMethods = &methods->table;
  }
  return code;
}

/// Registers the VFS. It is never unregistered: SQLite keeps the address, and connections may
/// outlive any object of this library.
const Shim* register_shim() noexcept {
  alignas(Shim) static unsigned char storage[sizeof(Shim)];
  sqlite3_vfs* const unix_vfs = sqlite3_vfs_find("unix");
  if (unix_vfs == nullptr) {
    return nullptr;
  }
  auto* const shim = new (storage) Shim{*unix_vfs, unix_vfs, {}};
  // Another copy of this library in the process has a name of its own.
  std::snprintf(shim->name, sizeof shim->name, "cukiln-%p", static_cast<void*>(shim));
  shim->vfs.pNext = nullptr;
  shim->vfs.zName = shim->name;
  shim->vfs.szOsFile = static_cast<int>(offset_of_methods(*unix_vfs) + sizeof(Methods));
  shim->vfs.xOpen = open_file;
  static_cast<void>(guard_descriptors(unix_vfs));
  return sqlite3_vfs_register(&shim->vfs, 0) == SQLITE_OK ? shim : nullptr;
}

}  // namespace

const char* wal_index_vfs() noexcept {
  static const Shim* const shim = register_shim();
  return shim == nullptr ? nullptr : shim->name;
}

}  // namespace cukiln
