// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/ops/process_metrics.hpp"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>

#include "core/base/clock.hpp"
#include "core/base/result.hpp"

namespace cukiln::ops {

namespace {

std::size_t open_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  std::size_t count = 0;
  while (folder && ::readdir(folder.get()) != nullptr) {  // NOLINT: a stream of our own
    ++count;
  }
  constexpr std::size_t kOwnEntries = 3;  // `.`, `..`, and the descriptor of the listing
  return count > kOwnEntries ? count - kOwnEntries : 0;
}

}  // namespace

void add_process(Exposition& out, const wire::DaemonSnapshot& state) {
  constexpr double kMsPerSecond = 1e3;
  constexpr double kNsPerSecond = 1e9;
  const double now = static_cast<double>(Clock::system().now_ns()) / kNsPerSecond;
  out.gauge("process_start_time_seconds", "Start time of the process, in seconds since 1970.",
            fmt::format("{:.3f}", now - static_cast<double>(state.uptime_ms) / kMsPerSecond));
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  out.counter(
      "process_cpu_seconds_total", "User and system CPU time.",
      static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
          static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / kUsPerSecond);
  std::ifstream statm("/proc/self/statm");
  std::uint64_t all_pages = 0;
  std::uint64_t resident_pages = 0;
  if (statm >> all_pages >> resident_pages) {
    out.gauge("process_resident_memory_bytes", "Resident memory.",
              resident_pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
  }
  out.gauge("process_open_fds", "Open file descriptors.", open_descriptors());
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    out.gauge("process_max_fds", "Limit of open file descriptors.", limit.rlim_cur);
  }
}

}  // namespace cukiln::ops
