// SPDX-License-Identifier: Apache-2.0
#include "core/base/file_size_limit.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <ctime>

namespace cukiln {

namespace {

sigset_t size_signal() noexcept {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGXFSZ);
  return set;
}

}  // namespace

FileSizeLimitGuard::FileSizeLimitGuard() noexcept {
  rlimit limit{};
  is_limited_ = ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (!is_limited_) {
    return;
  }
  sigset_t pending;
  ::sigemptyset(&pending);
  ::sigpending(&pending);
  was_pending_ = ::sigismember(&pending, SIGXFSZ) == 1;
  const sigset_t signal = size_signal();
  ::pthread_sigmask(SIG_BLOCK, &signal, &before_);
}

FileSizeLimitGuard::~FileSizeLimitGuard() {
  if (!is_limited_) {
    return;
  }
  const int error = errno;
  const sigset_t signal = size_signal();
  const timespec now{};
  // One that was pending before is the host's, which blocks it.
  while (!was_pending_ && (::sigtimedwait(&signal, nullptr, &now) > 0 || errno == EINTR)) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

}  // namespace cukiln
