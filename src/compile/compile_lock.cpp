// SPDX-License-Identifier: Apache-2.0
#include "compile/compile_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace cukiln {

namespace {

constexpr int kMaxTries = 100;

bool is_still_at(int fd, const char* path) {
  struct stat ours {};
  struct stat there {};
  return ::fstat(fd, &ours) == 0 && ::lstat(path, &there) == 0 && ours.st_dev == there.st_dev &&
         ours.st_ino == there.st_ino;
}

std::string first_line(int fd) {
  char text[512];
  const ssize_t size = ::pread(fd, text, sizeof text, 0);
  const std::string_view line(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  return std::string(line.substr(0, line.find('\n')));
}

}  // namespace

CompileLock::~CompileLock() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

CompileLock::State CompileLock::acquire(const std::string& path, const std::string& owner_line) {
  for (int i = 0; i < kMaxTries; ++i) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
      reason_ = "cannot open " + path + ": " + std::strerror(errno);
      return State::failed;
    }
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      reason_ = error == EWOULDBLOCK ? first_line(fd)
                                     : "cannot lock " + path + ": " + std::strerror(error);
      ::close(fd);
      return error == EWOULDBLOCK ? State::busy : State::failed;
    }
    // The former holder unlinks the file before it unlocks it. So the file that was just locked may
    // have no name any more, and another process may hold a new file of that name.
    if (!is_still_at(fd, path.c_str())) {
      ::close(fd);
      continue;
    }
    const std::string line = owner_line + "\n";
    if (::ftruncate(fd, 0) != 0 ||
        ::pwrite(fd, line.data(), line.size(), 0) != static_cast<ssize_t>(line.size())) {
      // The line is informative only: on a full disk the lock is held all the same.
    }
    fd_ = fd;
    path_ = path;
    reason_.clear();
    return State::held;
  }
  reason_ =
      path + " was replaced " + std::to_string(kMaxTries) + " times while it was being locked";
  return State::failed;
}

void CompileLock::release() {
  if (fd_ < 0) {
    return;
  }
  ::unlink(path_.c_str());
  ::flock(fd_, LOCK_UN);
  ::close(fd_);
  fd_ = -1;
}

}  // namespace cukiln
