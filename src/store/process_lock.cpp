#include "store/process_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <thread>

#include "base/result.hpp"

namespace cukiln {

namespace {

const char kThisCopy = 0;  // its address names this copy of the library

std::string this_copy() {
  return fmt::format("{:016x}\n", reinterpret_cast<std::uintptr_t>(&kThisCopy));
}

std::string lock_name() {
  struct stat status {};
  // Two containers that share a store are both process 1 of their own pid namespace.
  const ino_t space = ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
  return fmt::format("proc-{}-{}.lock", space, ::getpid());
}

bool belongs_to_this_copy(int fd) {
  const std::string expected = this_copy();
  char found[32] = {};
  const ssize_t size = ::pread(fd, found, sizeof found, 0);
  return size == static_cast<ssize_t>(expected.size()) && expected == found;
}

}  // namespace

Result<ProcessLock> ProcessLock::acquire(const std::string& generation_folder) {
  std::string path = join_path(generation_folder, lock_name());
  for (int attempt = 0; attempt < 50; ++attempt) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) {
      return make_error(ErrorCode::io, "cannot open the lock file {}: {}", path, errno_text(errno));
    }
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
      const std::string mine = this_copy();
      if (::pwrite(fd.get(), mine.data(), mine.size(), 0) != static_cast<ssize_t>(mine.size())) {
        // A full disk must not keep out the process that comes to collect. Without a name in the
        // file it is shared with nobody: the lock stays exclusive.
        return ProcessLock(std::move(fd), std::move(path));
      }
    } else if (errno != EWOULDBLOCK) {
      return make_error(ErrorCode::io, "cannot lock {}: {}", path, errno_text(errno));
    }
    // Turning an exclusive lock into a shared one may let another copy in between: hence the look
    // at the file once it is ours to share.
    if (::flock(fd.get(), LOCK_SH | LOCK_NB) == 0) {
      struct stat opened {
      }, named{};
      const bool same = ::fstat(fd.get(), &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
                        opened.st_ino == named.st_ino;
      if (!same) {
        continue;  // its last holder unlinked it between our open and our lock
      }
      if (!belongs_to_this_copy(fd.get())) {
        return make_error(ErrorCode::incompatible,
                          "another copy of the cukiln library in this process has the store open; "
                          "load one copy only, or give each its own directory");
      }
      return ProcessLock(std::move(fd), std::move(path));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return make_error(ErrorCode::timeout, "{} stayed locked; expected a moment only", path);
}

ProcessLock::ProcessLock(UniqueFd fd, std::string path)
    : fd_(std::move(fd)), process_(::getpid()), path_(std::move(path)) {}

ProcessLock::~ProcessLock() {
  // Only the last holder takes the file away: another store of this copy may still share it. In a
  // forked child the descriptor is the parent's, and so is the lock.
  if (fd_ && process_ == ::getpid() && ::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) {
    ::unlink(path_.c_str());
  }
}

}  // namespace cukiln
