// SPDX-License-Identifier: Apache-2.0
/* Preloaded: the wall clock is $CLOCK_AHEAD_S ahead, by default a minute, so that the stamps of files that
 * were just written look old enough to be believed. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) {
    const char* ahead = getenv("CLOCK_AHEAD_S");
    now->tv_sec += ahead != NULL ? atol(ahead) : 60;
  }
  return result;
}
