// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

namespace cukiln {

/// While one exists, a write of this thread beyond the process's limit on file sizes (RLIMIT_FSIZE)
/// fails with EFBIG only. The kernel also sends SIGXFSZ to the thread that writes, which would end
/// a host or call its handler. Every write to a file whose size others choose needs one. It costs
/// one system call where there is no limit. Leaves errno unchanged.
class FileSizeLimitGuard {
 public:
  FileSizeLimitGuard() noexcept;
  ~FileSizeLimitGuard();
  FileSizeLimitGuard(const FileSizeLimitGuard&) = delete;
  FileSizeLimitGuard& operator=(const FileSizeLimitGuard&) = delete;

 private:
  bool is_limited_ = false;
  bool was_pending_ = false;
  sigset_t before_;  // set if limited
};

}  // namespace cukiln
