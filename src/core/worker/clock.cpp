// SPDX-License-Identifier: Apache-2.0
// libc's clocks and getpid, interposed for libnvrtc (see interpose.cpp). NVRTC 12.9, 13.0 and 13.5
// call time, clock, gettimeofday, getpid and syscall(SYS_clock_gettime). Functions that convert a
// time (localtime, ctime, strftime) also depend on the time zone, which is set to UTC.

#include "core/worker/clock.hpp"

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timeb.h>
#include <sys/times.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "core/worker/interpose.hpp"

namespace cukiln::worker {
namespace {

constexpr pid_t kFixedProcess = 1;

std::atomic<bool> g_fixed = false;
thread_local int g_real_clocks = 0;  // RealClock objects of this thread

bool fixed() { return g_real_clocks == 0 && g_fixed.load(std::memory_order_relaxed); }

long real_syscall(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                  long f = 0) {
  static const auto real = reinterpret_cast<long (*)(long, ...)>(::dlsym(RTLD_NEXT, "syscall"));
  return real(number, a, b, c, d, e, f);
}

template <class T>
long as_argument(T* pointer) {
  return reinterpret_cast<long>(pointer);
}

timespec now(clockid_t clock) {
  timespec out{kFixedInstantS, 0};
  if (!fixed()) {
    real_syscall(SYS_clock_gettime, clock, as_argument(&out));
  }
  return out;
}

template <class T>
int cleared(T* out) {
  if (out != nullptr) {
    *out = {};
  }
  return 0;
}

}  // namespace

void fix_clock() {
  ::setenv("TZ", "UTC0", 1);
  ::tzset();
  g_fixed = true;
}

void release_clock() {
  g_fixed = false;
  ::unsetenv("TZ");  // the worker's environment is empty
  ::tzset();
}

RealClock::RealClock() noexcept { ++g_real_clocks; }
RealClock::~RealClock() { --g_real_clocks; }

CUKILN_DEFINE(std::time_t, "time", time, (std::time_t * out)) {
  const std::time_t seconds = now(CLOCK_REALTIME).tv_sec;
  if (out != nullptr) {
    *out = seconds;
  }
  return seconds;
}
CUKILN_DEFINE(int, "gettimeofday", gettimeofday, (timeval * out, struct timezone* zone)) {
  if (!fixed()) {
    return static_cast<int>(real_syscall(SYS_gettimeofday, as_argument(out), as_argument(zone)));
  }
  if (out != nullptr) {
    *out = {kFixedInstantS, 0};
  }
  return cleared(zone);
}
CUKILN_DEFINE(int, "clock_gettime", clock_gettime, (clockid_t clock, timespec* out)) {
  if (!fixed()) {
    return static_cast<int>(real_syscall(SYS_clock_gettime, clock, as_argument(out)));
  }
  *out = {kFixedInstantS, 0};
  return 0;
}
CUKILN_DEFINE(int, "timespec_get", timespec_get, (timespec * out, int base)) {
  if (base != TIME_UTC) {
    return 0;
  }
  *out = now(CLOCK_REALTIME);
  return base;
}
CUKILN_DEFINE(int, "ftime", ftime, (timeb * out)) {
  const timespec time = now(CLOCK_REALTIME);
  *out = {};
  out->time = time.tv_sec;
  out->millitm = static_cast<unsigned short>(time.tv_nsec / 1'000'000);
  return 0;
}
CUKILN_DEFINE(std::clock_t, "clock", clock, ()) {
  if (fixed()) {
    return 0;
  }
  const timespec used = now(CLOCK_PROCESS_CPUTIME_ID);
  return used.tv_sec * CLOCKS_PER_SEC + used.tv_nsec / (1'000'000'000 / CLOCKS_PER_SEC);
}
CUKILN_DEFINE(std::clock_t, "times", times, (tms * out)) {
  return fixed() ? cleared(out) : real_syscall(SYS_times, as_argument(out));
}
CUKILN_DEFINE(int, "getrusage", getrusage, (int who, rusage* out)) {
  return fixed() ? cleared(out)
                 : static_cast<int>(real_syscall(SYS_getrusage, who, as_argument(out)));
}
CUKILN_DEFINE(pid_t, "getpid", getpid, ()) {
  return fixed() ? kFixedProcess : static_cast<pid_t>(real_syscall(SYS_getpid));
}
CUKILN_DEFINE(pid_t, "getppid", getppid, ()) {
  return fixed() ? kFixedProcess : static_cast<pid_t>(real_syscall(SYS_getppid));
}

// An older libstdc++, which may be linked into NVRTC, reads clocks by syscall().
CUKILN_DEFINE(long, "syscall", syscall, (long number, ...)) {
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) {
    argument = va_arg(list, long);
  }
  va_end(list);
  if (fixed()) {
    switch (number) {
      case SYS_clock_gettime:
        return cukiln_clock_gettime(static_cast<clockid_t>(arguments[0]),
                                    reinterpret_cast<timespec*>(arguments[1]));
      case SYS_gettimeofday:
        return cukiln_gettimeofday(reinterpret_cast<timeval*>(arguments[0]),
                                   reinterpret_cast<struct timezone*>(arguments[1]));
      case SYS_times: return cukiln_times(reinterpret_cast<tms*>(arguments[0]));
      case SYS_getrusage:
        return cukiln_getrusage(static_cast<int>(arguments[0]),
                                reinterpret_cast<rusage*>(arguments[1]));
#ifdef SYS_time
      case SYS_time: return cukiln_time(reinterpret_cast<std::time_t*>(arguments[0]));
#endif
      case SYS_getpid: return cukiln_getpid();
      case SYS_getppid: return cukiln_getppid();
      default: break;
    }
  }
  return real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                      arguments[5]);
}

}  // namespace cukiln::worker
