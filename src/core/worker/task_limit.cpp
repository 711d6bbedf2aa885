// SPDX-License-Identifier: Apache-2.0
#include "core/worker/task_limit.hpp"

#include <dlfcn.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/worker/interpose.hpp"
#include "core/worker/process.hpp"
#include "core/worker/sanitizer.hpp"

namespace cukiln::worker {

namespace {

// Of the worker: the thread that compiles and the one that waits for the owner's end.
constexpr rlim_t kOwnTasks = 2;
// Of NVRTC, which makes as many as --split-compile says, and with 0 one for each core.
constexpr long kMinNvrtcTasks = 64;

// No user has such a number: systemd leaves 2^31 and more unused, as 32-bit programs take them for
// negative.
constexpr uid_t kFirstUnusedUser = 0x80000000U;
constexpr uid_t kUnusedUsers = 0x7ff00000U;

rlimit g_limit_at_start{};
rlim_t g_limit = 0;  // what the process may have while it compiles; 0: as at its start

/// Gives up all capabilities but those of `kept`. False if that is refused.
bool keep_capabilities(std::uint32_t kept) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct own[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capget, &header, own) != 0) {
    return false;
  }
  own[0] = {own[0].effective & kept, own[0].permitted & kept, 0};
  own[1] = {};
  return ::syscall(SYS_capset, &header, own) == 0;
}

bool take_real_user_of_its_own() {
  uid_t user = 0;
  if (::getrandom(&user, sizeof user, 0) != sizeof user) {
    return false;
  }
  user = kFirstUnusedUser + user % kUnusedUsers;
  return ::setresuid(user, static_cast<uid_t>(-1), static_cast<uid_t>(-1)) == 0;
}

void limit_tasks(rlim_t count) {
  const rlimit limit{std::min(count, g_limit_at_start.rlim_max), g_limit_at_start.rlim_max};
  ::setrlimit(RLIMIT_NPROC, &limit);
}

using CreateThread = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
CreateThread libc_create_thread() {
  static const auto real = reinterpret_cast<CreateThread>(::dlsym(RTLD_NEXT, "pthread_create"));
  return real;
}

}  // namespace

void count_tasks_apart() {
  if (kAddressSanitizer) {  // its leak checker is a task of its own, with capabilities
    return;
  }
  if (::geteuid() == 0) {
    if (take_real_user_of_its_own()) {
      keep_capabilities(1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH);
    }
  } else if (::unshare(CLONE_NEWUSER) == 0) {
    keep_capabilities(0);
  }
}

int create_first_thread(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                        void* argument) {
  const CreateThread create = libc_create_thread();
  ::getrlimit(RLIMIT_NPROC, &g_limit_at_start);
  if (kAddressSanitizer) {
    return create(thread, attributes, start, argument);
  }
  // Probes which limit applies. With a limit of one task, pthread_create fails unless this user is
  // exempt. With a limit of two it succeeds only if the tasks are counted apart: otherwise the
  // owner, a process of the same user, is counted too.
  limit_tasks(1);
  int error = create(thread, attributes, start, argument);
  if (error != EAGAIN) {
    return error;
  }
  g_limit = kOwnTasks +
            static_cast<rlim_t>(std::max(kMinNvrtcTasks, 2 * ::sysconf(_SC_NPROCESSORS_ONLN)));
  g_limit = std::min(g_limit, g_limit_at_start.rlim_max);
  limit_tasks(kOwnTasks);
  error = create(thread, attributes, start, argument);
  if (error == EAGAIN) {
    g_limit = 0;
    ::setrlimit(RLIMIT_NPROC, &g_limit_at_start);
    error = create(thread, attributes, start, argument);
  }
  return error;
}

void apply_task_limit() {
  const rlimit own{g_limit, g_limit};
  ::setrlimit(RLIMIT_NPROC, g_limit != 0 ? &own : &g_limit_at_start);
}

std::uint32_t max_tasks() { return static_cast<std::uint32_t>(g_limit); }

#if !defined(__SANITIZE_ADDRESS__)
// If pthread_create fails, NVRTC 12.9 to 13.5 call std::terminate, or wait forever for the threads
// that exist. Both would look like a fault of NVRTC.
CUKILN_DEFINE(int, "pthread_create", create_thread,
              (pthread_t * thread, const pthread_attr_t* attributes, void* (*start)(void*),
               void* argument)) {
  const int error = libc_create_thread()(thread, attributes, start, argument);
  if (error == EAGAIN) {
    end_for_lack_of_threads();
  }
  return error;
}
#endif

}  // namespace cukiln::worker
