// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "core/base/file.hpp"

namespace cukiln {

// Descriptors that outlive a call, in a process that is another's: a host may close all that are
// open, as daemons do, and get the same numbers for files of its own. So such a descriptor has a
// high number, which the host's next files do not get, and before each use and its close it is
// compared, by device and inode, with what it was. Numbers of lost ones are not used again while
// their owners may still use them. Threads: safe.

/// Moves an open descriptor to a high number, if the limits of the process allow, and remembers
/// which file it is. Returns the number.
int keep_descriptor(int fd) noexcept;

/// As above, but an open file of this process may have record locks, which go if one of its
/// descriptors is closed: a second descriptor of a file stays where it is.
int keep_locked_descriptor(int fd) noexcept;

/// True for a kept descriptor that is no longer what it was. False for any other descriptor.
bool is_lost(int fd) noexcept;

/// Closes a kept descriptor, unless it is lost. False for one that is not kept, which stays open.
bool close_kept(int fd) noexcept;

/// Owns a kept descriptor.
class KeptFd {
 public:
  KeptFd() = default;
  explicit KeptFd(UniqueFd fd) noexcept : fd_(fd ? keep_descriptor(fd.release()) : -1) {}
  KeptFd(KeptFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  KeptFd& operator=(KeptFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~KeptFd() { reset(); }
  KeptFd(const KeptFd&) = delete;
  KeptFd& operator=(const KeptFd&) = delete;

  /// The number; -1 if the descriptor is lost, so that calls with it fail with EBADF.
  int get() const noexcept { return is_lost(fd_) ? -1 : fd_; }
  /// The number, lost or not.
  int number() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset() noexcept;

 private:
  int fd_ = -1;
};

}  // namespace cukiln
