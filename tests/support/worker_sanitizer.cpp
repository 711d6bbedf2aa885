// SPDX-License-Identifier: Apache-2.0
// How the sanitisers report in the compile worker of preset asan. Their options are compiled in
// because a worker has no environment. After a report the worker aborts, which its owner reports as
// a crash.

#include <fcntl.h>
#include <sanitizer/common_interface_defs.h>
#include <unistd.h>

#define CUKILN_DEFAULT_OPTIONS \
  extern "C" __attribute__((visibility("default"), used, no_sanitize("address", "undefined")))

CUKILN_DEFAULT_OPTIONS const char* __asan_default_options() {
  return "abort_on_error=1:detect_leaks=0:detect_stack_use_after_return=1:strict_string_checks=1";
}

/// UBSan has a runtime of its own, which reports to stderr: the owner's error has the end of that.
CUKILN_DEFAULT_OPTIONS const char* __ubsan_default_options() {
  return "halt_on_error=1:print_stacktrace=1";
}

namespace {

/// Appends ASan's reports to one file for all workers, because an owner shows only the end of what
/// a worker writes to stderr. The file takes the place of stdout, which no worker uses: a worker
/// closes all further descriptors.
__attribute__((constructor)) void open_reports() {
  const int fd = ::open(CUKILN_WORKER_REPORTS, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd >= 0 && ::dup2(fd, STDOUT_FILENO) == STDOUT_FILENO) {
    ::close(fd);
    ::__sanitizer_set_report_fd(reinterpret_cast<void*>(STDOUT_FILENO));
  }
}

}  // namespace
