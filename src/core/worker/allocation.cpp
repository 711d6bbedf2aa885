// SPDX-License-Identifier: Apache-2.0
#include "core/worker/allocation.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include "core/worker/interpose.hpp"
#include "core/worker/sanitizer.hpp"

#if !defined(__SANITIZE_ADDRESS__)

// libc's own allocator, so that memory from the functions below can be freed by libc's free.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace cukiln::worker {

namespace {

volatile bool g_refused = false;  // read by a signal handler

void* record_failure(void* memory, std::size_t size) noexcept {
  if (memory == nullptr && size != 0) {
    g_refused = true;
    errno = ENOMEM;
  }
  return memory;
}

}  // namespace

bool ran_out_of_memory() noexcept { return g_refused; }

CUKILN_DEFINE(void*, "malloc", malloc, (std::size_t size)) {
  return record_failure(__libc_malloc(size), size);
}
CUKILN_DEFINE(void*, "calloc", calloc, (std::size_t count, std::size_t size)) {
  return record_failure(__libc_calloc(count, size), count != 0 ? size : 0);
}
CUKILN_DEFINE(void*, "realloc", realloc, (void* old, std::size_t size)) {
  return record_failure(__libc_realloc(old, size), size);
}
CUKILN_DEFINE(int, "posix_memalign", posix_memalign,
              (void** out, std::size_t alignment, std::size_t size)) {
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) {
    return EINVAL;
  }
  void* memory = record_failure(__libc_memalign(alignment, size), size);
  if (memory == nullptr) {
    return ENOMEM;
  }
  *out = memory;
  return 0;
}
CUKILN_DEFINE(void*, "mmap", mmap,
              (void* at, std::size_t size, int protection, int flags, int fd, long offset)) {
  void* memory =
      reinterpret_cast<void*>(::syscall(SYS_mmap, at, size, protection, flags, fd, offset));
  if (memory == MAP_FAILED && errno == ENOMEM) {
    g_refused = true;
  }
  return memory;
}

}  // namespace cukiln::worker

#else

// AddressSanitizer has an allocator of its own: its `free` cannot free what libc allocated.
namespace cukiln::worker {
bool ran_out_of_memory() noexcept { return false; }
}  // namespace cukiln::worker

#endif
