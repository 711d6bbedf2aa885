// SPDX-License-Identifier: Apache-2.0
/* Preloaded: system calls on files whose path contains $FOLDER_MATCH fail as those on a shared folder do.
 *
 *   FOLDER_CALLS  names between commas, or `any`
 *   FOLDER_FROM   the first matching call that fails, from 1 (default 1)
 *   FOLDER_TIMES  how many fail (default: all that follow)
 *   FOLDER_DO     an errno value; `kill`: the process ends before the call; `hang`: the call never
 *                 returns; `short`: reads and writes move one byte */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define NEXT(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

static atomic_long seen;

static int is_listed(const char* call) {
  const char* list = getenv("FOLDER_CALLS");
  if (list == NULL || strcmp(list, "any") == 0) {
    return list != NULL;
  }
  const size_t size = strlen(call);
  for (const char* at = list; (at = strstr(at, call)) != NULL; at += size) {
    if ((at == list || at[-1] == ',') && (at[size] == 0 || at[size] == ',')) {
      return 1;
    }
  }
  return 0;
}

/* 0: goes on; 1: failed with errno set; 2: short. */
static int fails(const char* call, int fd, const char* name) {
  const char* part = getenv("FOLDER_MATCH");
  if (part == NULL || !is_listed(call)) {
    return 0;
  }
  char path[4096] = "";
  if (fd >= 0 && (name == NULL || name[0] != '/')) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t size = readlink(link, path, sizeof path - 1);
    path[size < 0 ? 0 : size] = 0;
  }
  if (strstr(path, part) == NULL && (name == NULL || strstr(name, part) == NULL)) {
    return 0;
  }
  const char* from = getenv("FOLDER_FROM");
  const char* times = getenv("FOLDER_TIMES");
  const char* what = getenv("FOLDER_DO");
  const long first = from != NULL ? atol(from) : 1;
  const long number = atomic_fetch_add(&seen, 1) + 1;
  if (number < first || (times != NULL && number >= first + atol(times)) || what == NULL) {
    return 0;
  }
  if (strcmp(what, "kill") == 0) {
    kill(getpid(), SIGKILL);
  }
  while (strcmp(what, "hang") == 0) {
    pause();
  }
  if (strcmp(what, "short") == 0) {
    return 2;
  }
  errno = atoi(what);
  return 1;
}

#define OPENAT(name)                                                           \
  EXPORTED int name(int folder, const char* path, int flags, ...) {            \
    va_list rest;                                                              \
    va_start(rest, flags);                                                     \
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;     \
    va_end(rest);                                                              \
    return fails((flags & O_CREAT) != 0 ? "create" : "open", folder, path)     \
               ? -1                                                            \
               : NEXT(int, name, int, const char*, int, mode_t)(folder, path, flags, mode); \
  }
OPENAT(openat)
OPENAT(openat64)
#define OPEN(name)                                                             \
  EXPORTED int name(const char* path, int flags, ...) {                        \
    va_list rest;                                                              \
    va_start(rest, flags);                                                     \
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;     \
    va_end(rest);                                                              \
    return fails("open", -1, path) ? -1 : NEXT(int, name, const char*, int, mode_t)(path, flags, mode); \
  }
OPEN(open)
OPEN(open64)

EXPORTED int mkdirat(int folder, const char* name, mode_t mode) {
  return fails("mkdir", folder, name) ? -1 : NEXT(int, mkdirat, int, const char*, mode_t)(folder, name, mode);
}
EXPORTED int linkat(int from, const char* name, int to, const char* new_name, int flags) {
  return fails("link", to, new_name)
             ? -1
             : NEXT(int, linkat, int, const char*, int, const char*, int)(from, name, to, new_name, flags);
}
EXPORTED int renameat(int from, const char* name, int to, const char* new_name) {
  return fails("rename", to, new_name)
             ? -1
             : NEXT(int, renameat, int, const char*, int, const char*)(from, name, to, new_name);
}
EXPORTED int unlinkat(int folder, const char* name, int flags) {
  return fails("unlink", folder, name) ? -1 : NEXT(int, unlinkat, int, const char*, int)(folder, name, flags);
}
EXPORTED int fsync(int fd) { return fails("fsync", fd, NULL) ? -1 : NEXT(int, fsync, int)(fd); }
EXPORTED int futimens(int fd, const struct timespec* times) {
  return fails("utimens", fd, NULL) ? -1 : NEXT(int, futimens, int, const struct timespec*)(fd, times);
}
EXPORTED int fchmod(int fd, mode_t mode) {
  return fails("chmod", fd, NULL) ? -1 : NEXT(int, fchmod, int, mode_t)(fd, mode);
}
EXPORTED int close(int fd) {
  const int failed = fails("close", fd, NULL);
  const int error = errno;
  const int result = NEXT(int, close, int)(fd);
  errno = failed ? error : errno;
  return failed ? -1 : result;
}
EXPORTED ssize_t read(int fd, void* to, size_t size) {
  const int failed = fails("read", fd, NULL);
  return failed == 1 ? -1 : NEXT(ssize_t, read, int, void*, size_t)(fd, to, failed == 2 && size > 1 ? 1 : size);
}
EXPORTED ssize_t write(int fd, const void* from, size_t size) {
  const int failed = fails("write", fd, NULL);
  return failed == 1 ? -1
                     : NEXT(ssize_t, write, int, const void*, size_t)(fd, from, failed == 2 && size > 1 ? 1 : size);
}
