// SPDX-License-Identifier: Apache-2.0
#include "core/store/sqlite_descriptors.hpp"

#include <sqlite3.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <utility>

#include "core/base/kept_fd.hpp"

namespace cukiln {

namespace {

// initial-exec: allocated with the thread, since SQLite's calls may not fail for it.
#define CUKILN_TLS __attribute__((tls_model("initial-exec")))
thread_local constinit bool keeps_files CUKILN_TLS = false;
thread_local constinit bool met_lost CUKILN_TLS = false;

using AnyCall = sqlite3_syscall_ptr;

enum Call : std::size_t {
  call_open,
  call_close,
  call_fstat,
  call_truncate,
  call_fcntl,
  call_read,
  call_pread,
  call_pread64,
  call_write,
  call_pwrite,
  call_pwrite64,
  call_chmod,
  call_allocate,
  call_chown,
  num_calls
};
AnyCall replaced[num_calls];

template <class Function>
Function* real(Call call) noexcept {
  return reinterpret_cast<Function*>(replaced[call]);
}

int open_file(const char* path, int flags, int mode) {
  const int fd = real<int(const char*, int, int)>(call_open)(path, flags, mode);
  return fd >= 0 && keeps_files ? keep_locked_descriptor(fd) : fd;
}

int close_file(int fd) { return close_kept(fd) ? 0 : real<int(int)>(call_close)(fd); }

/// A call whose first argument is a descriptor.
template <Call call, class Returned, class... Rest>
Returned checked(int fd, Rest... rest) {
  if (is_lost(fd)) {
    met_lost = true;
    errno = EBADF;
    return -1;
  }
  return real<Returned(int, Rest...)>(call)(fd, rest...);
}

template <class Function>
AnyCall any(Function* function) noexcept {
  return reinterpret_cast<AnyCall>(function);
}

}  // namespace

bool guard_descriptors(sqlite3_vfs* unix_vfs) noexcept {
  if (unix_vfs->iVersion < 3 || unix_vfs->xSetSystemCall == nullptr) {
    return false;
  }
  const struct {
    Call call;
    const char* name;
    AnyCall checked;
  } calls[] = {
      {call_close, "close", any(close_file)},
      {call_fstat, "fstat", any(checked<call_fstat, int, struct stat*>)},
      {call_truncate, "ftruncate", any(checked<call_truncate, int, off_t>)},
      {call_fcntl, "fcntl",
       any(checked<call_fcntl, int, int, void*>)},  // each of its calls has three
      {call_read, "read", any(checked<call_read, ssize_t, void*, std::size_t>)},
      {call_pread, "pread", any(checked<call_pread, ssize_t, void*, std::size_t, off_t>)},
      {call_pread64, "pread64", any(checked<call_pread64, ssize_t, void*, std::size_t, off_t>)},
      {call_write, "write", any(checked<call_write, ssize_t, const void*, std::size_t>)},
      {call_pwrite, "pwrite", any(checked<call_pwrite, ssize_t, const void*, std::size_t, off_t>)},
      {call_pwrite64, "pwrite64",
       any(checked<call_pwrite64, ssize_t, const void*, std::size_t, off_t>)},
      {call_chmod, "fchmod", any(checked<call_chmod, int, mode_t>)},
      {call_allocate, "fallocate", any(checked<call_allocate, int, off_t, off_t>)},
      {call_chown, "fchown", any(checked<call_chown, int, uid_t, gid_t>)},
      {call_open, "open", any(open_file)},  // last: what it keeps is then closed by the above
  };
  static_assert(std::size(calls) == num_calls);
  for (const auto& one : calls) {
    replaced[one.call] = unix_vfs->xGetSystemCall(unix_vfs, one.name);
    if (replaced[one.call] != nullptr &&
        unix_vfs->xSetSystemCall(unix_vfs, one.name, one.checked) != SQLITE_OK) {
      return false;
    }
  }
  return true;
}

bool met_lost_descriptor() noexcept { return std::exchange(met_lost, false); }

KeepsFiles::KeepsFiles() noexcept { keeps_files = true; }
KeepsFiles::~KeepsFiles() { keeps_files = false; }

}  // namespace cukiln
