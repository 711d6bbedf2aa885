// SPDX-License-Identifier: Apache-2.0
/* Preloaded: makes system calls fail on files whose path contains $FAULT_MATCH.
 *
 *   FAULT_CALL   write, read, two_reads, sync, lock or flock; holes: a write of one byte leaves a hole where
 *                it was to allocate a block, as on a file system whose blocks are smaller than
 *                pages; old_holes: the same, under a kernel without MADV_POPULATE_WRITE
 *   FAULT_ERRNO  the errno value
 *   FAULT_BYTES  for write: how many bytes succeed before; for read: the offset from which reads
 *                fail (default 0); for two_reads: 1000 n + m; the reads
 *                that fail are the nth, from 1, and the mth after it */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/types.h>
#include <unistd.h>

static int matches(const char* call, int fd) {
  const char* wanted = getenv("FAULT_CALL");
  const char* part = getenv("FAULT_MATCH");
  if (wanted == NULL || part == NULL || strcmp(wanted, call) != 0) {
    return 0;
  }
  char link[64];
  char path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  if (size < 0) {
    return 0;
  }
  path[size] = 0;
  return strstr(path, part) != NULL;
}

static int fail(void) {
  const char* number = getenv("FAULT_ERRNO");
  errno = number != NULL ? atoi(number) : EIO;
  return -1;
}

static int write_fails(int fd, size_t count) {
  static long left = -1;
  if (!matches("write", fd)) {
    return 0;
  }
  if (left < 0) {
    const char* bytes = getenv("FAULT_BYTES");
    left = bytes != NULL ? atol(bytes) : 0;
  }
  if ((long)count > left) {
    return 1;
  }
  left -= (long)count;
  return 0;
}

static int read_fails(int fd, off_t at) {
  static long reads = 0;
  const char* from = getenv("FAULT_BYTES");
  if (matches("two_reads", fd) && from != NULL) {
    const long first = atol(from) / 1000;
    ++reads;
    return reads == first || reads == first + atol(from) % 1000;
  }
  return matches("read", fd) && at >= (from != NULL ? atol(from) : 0);
}

#define NEXT(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

static int leaves_hole(int fd, size_t count, off_t at) {
  return count == 1 && (matches("holes", fd) || matches("old_holes", fd)) &&
         ftruncate(fd, at + 1) == 0;
}

__attribute__((visibility("default"))) int madvise(void* at, size_t size, int advice) {
  const char* wanted = getenv("FAULT_CALL");
  if (advice == 23 && wanted != NULL && strcmp(wanted, "old_holes") == 0) {
    errno = EINVAL;
    return -1;
  }
  return NEXT(int, madvise, void*, size_t, int)(at, size, advice);
}

#define PWRITE(name)                                                                   \
  __attribute__((visibility("default"))) ssize_t name(int fd, const void* bytes,       \
                                                      size_t count, off_t at) {        \
    if (leaves_hole(fd, count, at)) {                                                  \
      return 1;                                                                        \
    }                                                                                  \
    return write_fails(fd, count)                                                      \
               ? fail()                                                                \
               : NEXT(ssize_t, name, int, const void*, size_t, off_t)(fd, bytes, count, at); \
  }
PWRITE(pwrite)
PWRITE(pwrite64)

#define PREAD(name)                                                                              \
  __attribute__((visibility("default"))) ssize_t name(int fd, void* bytes, size_t count,         \
                                                      off_t at) {                                \
    return read_fails(fd, at) ? fail()                                                           \
                              : NEXT(ssize_t, name, int, void*, size_t, off_t)(fd, bytes, count, at); \
  }
PREAD(pread)
PREAD(pread64)

#define SYNC(name)                                                              \
  __attribute__((visibility("default"))) int name(int fd) {                     \
    return matches("sync", fd) ? fail() : NEXT(int, name, int)(fd);             \
  }
SYNC(fsync)
SYNC(fdatasync)

#define FCNTL(name)                                                                        \
  __attribute__((visibility("default"))) int name(int fd, int command, ...) {              \
    va_list rest;                                                                          \
    va_start(rest, command);                                                               \
    void* argument = va_arg(rest, void*);                                                  \
    va_end(rest);                                                                          \
    const int locks = command == F_SETLK || command == F_SETLKW || command == F_GETLK ||   \
                      command == F_OFD_SETLK || command == F_OFD_GETLK;                    \
    return locks && matches("lock", fd) ? fail()                                           \
                                        : NEXT(int, name, int, int, void*)(fd, command, argument); \
  }
FCNTL(fcntl)
FCNTL(fcntl64)

__attribute__((visibility("default"))) int flock(int fd, int operation) {
  return matches("flock", fd) ? fail() : NEXT(int, flock, int, int)(fd, operation);
}
