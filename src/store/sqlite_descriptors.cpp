// SPDX-License-Identifier: Apache-2.0
#include "store/sqlite_descriptors.hpp"

#include <sqlite3.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <utility>

#include "base/kept_fd.hpp"

namespace cukiln {

namespace {

// initial-exec: allocated with the thread, since SQLite's calls may not fail for it.
#define CUKILN_TLS __attribute__((tls_model("initial-exec")))
thread_local constinit bool keeps_files CUKILN_TLS = false;
thread_local constinit bool met_lost CUKILN_TLS = false;

using AnyCall = sqlite3_syscall_ptr;

enum Call : std::size_t {
  kOpen,
  kClose,
  kFstat,
  kTruncate,
  kFcntl,
  kRead,
  kPread,
  kPread64,
  kWrite,
  kPwrite,
  kPwrite64,
  kChmod,
  kAllocate,
  kChown,
  kCalls
};
AnyCall replaced[kCalls];

template <class Function>
Function* real(Call call) noexcept {
  return reinterpret_cast<Function*>(replaced[call]);
}

int open_file(const char* path, int flags, int mode) {
  const int fd = real<int(const char*, int, int)>(kOpen)(path, flags, mode);
  return fd >= 0 && keeps_files ? keep_locked_descriptor(fd) : fd;
}

int close_file(int fd) { return close_kept(fd) ? 0 : real<int(int)>(kClose)(fd); }

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
      {kClose, "close", any(close_file)},
      {kFstat, "fstat", any(checked<kFstat, int, struct stat*>)},
      {kTruncate, "ftruncate", any(checked<kTruncate, int, off_t>)},
      {kFcntl, "fcntl", any(checked<kFcntl, int, int, void*>)},  // each of its calls has three
      {kRead, "read", any(checked<kRead, ssize_t, void*, std::size_t>)},
      {kPread, "pread", any(checked<kPread, ssize_t, void*, std::size_t, off_t>)},
      {kPread64, "pread64", any(checked<kPread64, ssize_t, void*, std::size_t, off_t>)},
      {kWrite, "write", any(checked<kWrite, ssize_t, const void*, std::size_t>)},
      {kPwrite, "pwrite", any(checked<kPwrite, ssize_t, const void*, std::size_t, off_t>)},
      {kPwrite64, "pwrite64", any(checked<kPwrite64, ssize_t, const void*, std::size_t, off_t>)},
      {kChmod, "fchmod", any(checked<kChmod, int, mode_t>)},
      {kAllocate, "fallocate", any(checked<kAllocate, int, off_t, off_t>)},
      {kChown, "fchown", any(checked<kChown, int, uid_t, gid_t>)},
      {kOpen, "open", any(open_file)},  // last: what it keeps is then closed by the above
  };
  static_assert(std::size(calls) == kCalls);
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
