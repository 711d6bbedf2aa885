// SPDX-License-Identifier: Apache-2.0
#include "core/worker/process.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "core/base/serial.hpp"
#include "core/wire/messages.hpp"
#include "core/worker/allocation.hpp"
#include "core/worker/sanitizer.hpp"
#include "core/worker/task_limit.hpp"

namespace cukiln::worker {

namespace {

constexpr int kFatalSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP};
constexpr std::size_t kGuardReach = 1 << 20;  // a large frame may step over the guard page

constexpr std::uintptr_t kLargePage = 2 << 20;
constexpr int kHeapBytes = 64 << 20;

const char* g_stack_low = nullptr;

/// What the waiting thread is to run: handed over through `requested`.
struct Handover {
  int requested = -1;  // an eventfd
  void (*body)() = nullptr;
  sem_t done;
};
Handover g_handover;

void close_other_descriptors() {
  const int first = wire::kWorkerOwner + 1;
#ifdef SYS_close_range
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) {
    return;
  }
#endif
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) {
    for (int fd = first; fd < 65536; ++fd) {
      ::close(fd);
    }
    return;
  }
  while (const dirent* entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (fd >= first && fd != ::dirfd(folder)) {
      ::close(fd);
    }
  }
  ::closedir(folder);
}

/// For good: a process raises no hard limit.
void limit(__rlimit_resource_t what, rlim_t value) {
  struct rlimit current {};
  ::getrlimit(what, &current);
  const rlim_t bound = std::min(value, current.rlim_max);
  const struct rlimit bounds {
    bound, bound
  };
  ::setrlimit(what, &bounds);
}

/// Sends a `crashed` frame and ends the process. Encodes it by hand, because a signal handler may
/// call async-signal-safe functions only.
[[noreturn]] void send_crashed(int signal, bool stack_overflow, bool out_of_threads) {
  const char body[7] = {static_cast<char>(signal),
                        0,
                        0,
                        0,
                        ran_out_of_memory() ? '\1' : '\0',
                        stack_overflow ? '\1' : '\0',
                        out_of_threads ? '\1' : '\0'};
  const char header[8] = {sizeof body, 0, 0, 0, static_cast<char>(wire::WorkerOp::crashed),
                          0,           0, 0};
  char frame[sizeof header + sizeof body];
  std::memcpy(frame, header, sizeof header);
  std::memcpy(frame + sizeof header, body, sizeof body);
  const ssize_t ignored = ::send(wire::kWorkerSocket, frame, sizeof frame, MSG_NOSIGNAL);
  static_cast<void>(ignored);
  ::_exit(128 + signal);
}

void on_crash(int signal, siginfo_t* info, void*) {
  const char* at = static_cast<const char*>(info->si_addr);
  send_crashed(signal,
               signal == SIGSEGV && at < g_stack_low + 4096 && at >= g_stack_low - kGuardReach,
               false);
}

/// Even a small kernel takes 16 MB of heap, which is 4,000 page faults with pages of 4 KiB.
void use_large_pages_for_heap() {
  std::free(std::malloc(kLargePage));  // grows the heap by that, and by M_TOP_PAD
  const auto end = reinterpret_cast<std::uintptr_t>(::sbrk(0));
  const std::uintptr_t begin = (end - kHeapBytes + kLargePage - 1) / kLargePage * kLargePage;
  if (begin < end) {
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  }
}

bool owner_is_gone(int owner_fd) {
  pollfd polled{owner_fd, POLLIN, 0};
  return ::poll(&polled, 1, 0) > 0 && polled.revents != 0;
}

}  // namespace

void isolate_process(std::uint64_t memory_bytes) {
  close_other_descriptors();
  ::clearenv();
  if (::chdir("/") != 0) {
    ::_exit(1);
  }
  ::setsid();  // Ctrl-C in the owner's terminal must reach the owner only
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  count_tasks_apart();
  // A process run by execveat is otherwise named after the descriptor's number.
  ::prctl(PR_SET_NAME, "cukiln-compile-worker", 0, 0, 0);
  for (int signal = 1; signal < NSIG; ++signal) {
    ::signal(signal, SIG_DFL);
  }
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit on file sizes is an error
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  if (!kAddressSanitizer) {
    // Keep freed memory for the next compile, which then takes no page faults for it.
    ::mallopt(M_ARENA_MAX, 1);
    ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
    ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
    ::mallopt(M_TOP_PAD, kHeapBytes);
    use_large_pages_for_heap();
  }
  limit(RLIMIT_CORE, 0);
  if (!kAddressSanitizer) {
    limit(RLIMIT_FSIZE, wire::kWorkerLogBytes);  // of files that it has a descriptor of
    if (memory_bytes != 0) {
      limit(RLIMIT_AS, memory_bytes);
    }
  }
}

void report_crashes(const void* stack, std::size_t stack_bytes) {
  static_cast<void>(stack_bytes);
  g_stack_low = static_cast<const char*>(stack);
  static char alternate[64 << 10];  // the thread's own stack may be what ran out
  stack_t where{};
  where.ss_sp = alternate;
  where.ss_size = sizeof alternate;
  ::sigaltstack(&where, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND;
  for (const int signal : kFatalSignals) {
    ::sigaction(signal, &action, nullptr);
  }
}

void end_for_lack_of_threads() { send_crashed(0, false, true); }

void run_on_waiting_thread(void (*body)()) {
  g_handover.body = body;
  const std::uint64_t one = 1;
  if (::write(g_handover.requested, &one, sizeof one) != sizeof one) {
    ::_exit(1);
  }
  while (::sem_wait(&g_handover.done) != 0) {
  }
}

void run_until_owner_ends(void (*body)(), std::size_t stack_bytes) {
  const bool owner_known =
      ::fcntl(wire::kWorkerOwner, F_GETFD) >= 0;  // before its number is reused
  g_handover.requested = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  ::sem_init(&g_handover.done, 0, 0);
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, stack_bytes);
  pthread_t thread;
  const auto start = [](void* argument) -> void* {
    apply_task_limit();
    pthread_attr_t own;
    void* low = nullptr;
    std::size_t size = 0;
    if (::pthread_getattr_np(::pthread_self(), &own) == 0) {
      ::pthread_attr_getstack(&own, &low, &size);
    }
    report_crashes(low, size);
    reinterpret_cast<void (*)()>(argument)();
    ::_exit(0);  // not exit: NVRTC's destructors are known to crash
  };
  if (create_first_thread(&thread, &attributes, start, reinterpret_cast<void*>(body)) != 0) {
    ::_exit(1);
  }
  for (;;) {
    pollfd polled[3] = {{wire::kWorkerSocket, POLLRDHUP, 0},
                        {g_handover.requested, POLLIN, 0},
                        {wire::kWorkerOwner, POLLIN, 0}};
    const int ready = ::poll(polled, owner_known ? 3 : 2, -1);
    if (ready > 0 && (polled[0].revents != 0 || (owner_known && owner_is_gone(polled[2].fd)))) {
      ::_exit(0);
    }
    std::uint64_t count = 0;
    if (ready > 0 && ::read(g_handover.requested, &count, sizeof count) == sizeof count) {
      g_handover.body();
      ::sem_post(&g_handover.done);
    }
  }
}

}  // namespace cukiln::worker
