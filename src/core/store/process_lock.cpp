// SPDX-License-Identifier: Apache-2.0
#include "core/store/process_lock.hpp"

#include <fcntl.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "core/base/hasher.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

constexpr int kCopyBits = 20;
constexpr int kProcessBits = 22;  // Linux's largest process id is below 4 Mi
constexpr int kRandomBits = 20;
constexpr int kPageBits = 12;

constexpr std::int64_t low_bits(std::uint64_t value, int bits) noexcept {
  return static_cast<std::int64_t>(value & ((std::uint64_t{1} << bits) - 1));
}

/// Returns a number that is random for each start of a program, and the same for all copies of the
/// library in it. It is a hash of AT_RANDOM, because the bytes themselves are the stack guard.
std::uint64_t random_of_this_process() noexcept {
  const auto* const random = reinterpret_cast<const char*>(::getauxval(AT_RANDOM));
  return random != nullptr ? hash64({random, 16}) : 0;
}

/// Returns the first byte of this process's range. The process id alone is not enough: two
/// containers that share a store are both process 1 of their own pid namespace.
std::int64_t first_byte() noexcept {
  const auto process = static_cast<std::uint64_t>(::getpid());
  return (low_bits(random_of_this_process(), kRandomBits) << kProcessBits |
          low_bits(process, kProcessBits))
         << kCopyBits;
}

/// Returns the index of this copy's byte. Copies of a library are mapped at different pages,
/// usually within 4 GiB.
std::int64_t byte_of_this_copy() noexcept {
  static const char here = 0;
  return low_bits(reinterpret_cast<std::uintptr_t>(&here) >> kPageBits, kCopyBits);
}

/// Sets or tests locks of an open file description. Unlike those of a process, they conflict within
/// one, and stay when another descriptor of the file is closed.
int lock_bytes(const KeptFd& fd, int command, struct flock& range, std::int64_t from,
               std::int64_t count) noexcept {
  range.l_whence = SEEK_SET;
  range.l_start = from;
  range.l_len = count;
  range.l_pid = 0;
  return ::fcntl(fd.get(), command, &range);
}

/// Returns 1 if another description has locked one of the bytes, 0 if none has, -1 with errno set
/// if that cannot be tested.
int locked_by_others(const KeptFd& fd, std::int64_t from, std::int64_t count) noexcept {
  struct flock range {};
  range.l_type = F_WRLCK;
  if (count == 0) {
    return 0;
  }
  const int failed = lock_bytes(fd, F_OFD_GETLK, range, from, count);
  return failed != 0 ? -1 : range.l_type != F_UNLCK ? 1 : 0;
}

}  // namespace

Result<ProcessLock> ProcessLock::acquire(const std::string& lock_file) {
  KeptFd fd(UniqueFd(::open(lock_file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW)));
  if (!fd) {
    return make_error(ErrorCode::io, "cannot open the lock file {}: {}", lock_file,
                      errno_text(errno));
  }
  constexpr std::int64_t kCount = std::int64_t{1} << kCopyBits;
  const std::int64_t first = first_byte();
  const std::int64_t mine = byte_of_this_copy();
  struct flock range {};
  range.l_type = F_RDLCK;
  int others = lock_bytes(fd, F_OFD_SETLK, range, first + mine, 1);
  // Locks first and tests then: of two copies that open concurrently at least one sees the other.
  others = others != 0 ? others : locked_by_others(fd, first, mine);
  others = others != 0 ? others : locked_by_others(fd, first + mine + 1, kCount - mine - 1);
  if (others < 0) {
    // Reported here, because SQLite reports "busy" indefinitely on a file system without locks.
    return make_error(
        ErrorCode::io,
        "the file system of {} has no record locks: {}; choose a directory on a local "
        "file system",
        lock_file, errno_text(errno));
  }
  if (others > 0) {
    return make_error(ErrorCode::incompatible,
                      "another copy of the cukiln library in this process has the store open; "
                      "load one copy only, or give each its own directory");
  }
  return ProcessLock(std::move(fd));
}

ProcessLock::ProcessLock(KeptFd fd) : fd_(std::move(fd)), process_(::getpid()) {}

ProcessLock::~ProcessLock() {
  // In a forked child the lock is the parent's. Unlocks explicitly, because a forked child may have
  // a copy of the descriptor.
  if (fd_ && process_ == ::getpid()) {
    struct flock range {};
    range.l_type = F_UNLCK;
    lock_bytes(fd_, F_OFD_SETLK, range, 0, 0);
  }
}

}  // namespace cukiln
