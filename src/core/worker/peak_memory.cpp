// SPDX-License-Identifier: Apache-2.0
#include "core/worker/peak_memory.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace cukiln::worker {

namespace {

// Not open(): the worker defines it, for the files of a compile.
int open_own(const char* path, int flags) {
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0));
}

/// The high-water mark in /proc/self/status. Not ru_maxrss: it counts what was resident before
/// exec, in a process with a copy of the host's memory.
std::uint64_t high_water(int status) {
  char text[4096];
  const ssize_t got = ::pread(status, text, sizeof text - 1, 0);
  if (got <= 0) {
    return 0;
  }
  text[got] = '\0';
  const char* const line = std::strstr(text, "VmHWM:");
  return line == nullptr ? 0 : std::strtoull(line + std::strlen("VmHWM:"), nullptr, 10) * 1024;
}

}  // namespace

PeakMemory::PeakMemory()
    : status_(open_own("/proc/self/status", O_RDONLY)),
      reset_(open_own("/proc/self/clear_refs", O_WRONLY)) {}

PeakMemory::~PeakMemory() {
  ::close(status_);
  ::close(reset_);
}

void PeakMemory::begin() {
  is_reset_ = ::pwrite(reset_, "5", 1, 0) == 1;
  before_ = high_water(status_);
}

std::uint64_t PeakMemory::bytes() const {
  const std::uint64_t now = high_water(status_);
  return is_reset_ || now > before_ ? now : 0;
}

}  // namespace cukiln::worker
