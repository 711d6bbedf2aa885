// SPDX-License-Identifier: Apache-2.0
/* Preloaded: the wall clock is a minute ahead, so that the stamps of files that were just written look old
 * enough to be believed. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) {
    now->tv_sec += 60;
  }
  return result;
}
