// SPDX-License-Identifier: Apache-2.0
#include "core/compile/spawn.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>

#include "core/base/result.hpp"
#include "core/wire/messages.hpp"

// A host may have a SIGCHLD handler, a wait(-1) loop, or both, which must not get children that the
// host did not start. Linux notifies the parent with the child's exit signal, which clone sets:
// with signal 0 there is no SIGCHLD, and waitpid finds the child only with __WCLONE. But execve
// resets the exit signal to SIGCHLD. Hence two steps: an intermediate process without an exit
// signal starts the program and exits immediately; the program is then an orphan, which init reaps.
// (A host that is init or a subreaper itself reaps unknown processes anyway.)
//
// Both steps share this process's memory and suspend this thread until they are done
// (CLONE_VM|CLONE_VFORK), as posix_spawn does: no page tables are copied, however large the host
// is. The code in the child uses system calls only, because libc's per-thread state is this
// thread's. The clone system call is made here and not by libc's clone, which sanitizers take for a
// fork.
//
// An emulator of user programs may have neither: QEMU refuses a child without an exit signal, and
// forks where memory was to be shared. What the children report therefore lies in a shared mapping,
// and without the first the host's SIGCHLD handler notices the intermediate process.
#define CUKILN_IN_CHILD __attribute__((no_sanitize("address", "thread", "undefined"), noinline))

namespace cukiln {

namespace {

// Descriptors are first duplicated to numbers from here on, so that none is overwritten while 0 to
// 4 are assigned.
constexpr int kParkedFrom = 16;
constexpr std::size_t kPassed = 5;
constexpr int kProgram = kPassed;  // closed by the exec

/// Returns twice, like vfork: 0 in the child, which shares this process's memory and stack. The
/// child may call functions, but must not return from the function that this is inlined into.
__attribute__((always_inline)) inline long clone_here(unsigned long flags) {
#if defined(__x86_64__)
  long result = SYS_clone;
  register long child_tid __asm__("r10") = 0;
  register long tls __asm__("r8") = 0;
  __asm__ volatile("syscall"
                   : "+a"(result)
                   : "D"(flags), "S"(0L), "d"(0L), "r"(child_tid), "r"(tls)
                   : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long number __asm__("x8") = SYS_clone;
  register long result __asm__("x0") = static_cast<long>(flags);
  register long stack __asm__("x1") = 0;
  register long parent_tid __asm__("x2") = 0;
  register long tls __asm__("x3") = 0;
  register long child_tid __asm__("x4") = 0;
  __asm__ volatile("svc #0"
                   : "+r"(result)
                   : "r"(number), "r"(stack), "r"(parent_tid), "r"(tls), "r"(child_tid)
                   : "memory");
  return result;
#else
#error "CUDA has drivers for x86-64 and aarch64"
#endif
}

/// What the children report.
struct Outcome {
  volatile pid_t program = -1;
  volatile int error = 0;
};

/// A mapping that children share, even those that are forked.
class SharedOutcome {
 public:
  SharedOutcome()
      : memory_(::mmap(nullptr, sizeof(Outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                       -1, 0)) {
    if (*this) {
      new (memory_) Outcome;
    }
  }
  ~SharedOutcome() {
    if (*this) {
      ::munmap(memory_, sizeof(Outcome));
    }
  }
  SharedOutcome(const SharedOutcome&) = delete;
  SharedOutcome& operator=(const SharedOutcome&) = delete;

  explicit operator bool() const { return memory_ != MAP_FAILED; }
  Outcome* get() const { return static_cast<Outcome*>(memory_); }

 private:
  void* memory_;
};

struct Plan {
  const char* path = nullptr;
  char* const* arguments = nullptr;
  int descriptors[kPassed] = {};  // they become 0, 1, …; -1 for none
  int executable = -1;            // -1: the file at `path`
  Outcome* outcome = nullptr;
};

[[noreturn]] CUKILN_IN_CHILD void run_program(Plan* plan) {
  int parked[kPassed];
  const int program =
      plan->executable < 0
          ? -1
          : static_cast<int>(::syscall(SYS_fcntl, plan->executable, F_DUPFD_CLOEXEC, kParkedFrom));
  for (std::size_t i = 0; i < kPassed; ++i) {
    parked[i] = plan->descriptors[i] < 0
                    ? -1
                    : static_cast<int>(
                          ::syscall(SYS_fcntl, plan->descriptors[i], F_DUPFD_CLOEXEC, kParkedFrom));
  }
  for (std::size_t i = 0; i < kPassed; ++i) {
    if (parked[i] >= 0) {
      ::syscall(SYS_dup3, parked[i], static_cast<int>(i), 0);
    } else {
      ::syscall(SYS_close, static_cast<int>(i));
    }
  }
  if (program >= 0) {
    ::syscall(SYS_dup3, program, kProgram, O_CLOEXEC);
  } else {
    ::syscall(SYS_close, kProgram);
  }
#ifdef SYS_close_range
  ::syscall(SYS_close_range, static_cast<unsigned>(kProgram) + 1, ~0U,
            0);  // the worker does it again
#endif
  char* const environment[] = {nullptr};
  // Only the last error is reported: an emulator's parent does not wait for the exec, and may read
  // the outcome between the two.
  int error = ENOENT;
  if (program >= 0) {
    ::syscall(SYS_execveat, kProgram, "", plan->arguments, environment, AT_EMPTY_PATH);
    error = errno;  // the suspended thread's own errno
  }
  // ENOENT for an open file means a script: its interpreter would find the descriptor closed.
  if (error == ENOENT || error == ENOSYS) {
    ::syscall(SYS_execve, plan->path, plan->arguments, environment);
    error = errno;
  }
  plan->outcome->error = error;
  for (;;) {
    ::syscall(SYS_exit_group, 127);
  }
}

/// Returns the intermediate process's pid, or a negative errno value.
CUKILN_IN_CHILD long run_both_steps(Plan* plan) {
  long intermediate = clone_here(CLONE_VM | CLONE_VFORK);
  if (intermediate == -EINVAL) {
    intermediate = clone_here(CLONE_VM | CLONE_VFORK | SIGCHLD);
  }
  if (intermediate != 0) {
    return intermediate;
  }
  const long program = clone_here(CLONE_VM | CLONE_VFORK | SIGCHLD);
  if (program == 0) {
    run_program(plan);
  }
  if (program < 0) {
    plan->outcome->error = static_cast<int>(-program);
  }
  plan->outcome->program = static_cast<pid_t>(program);
  for (;;) {
    ::syscall(SYS_exit_group, 0);
  }
}

Error system_error(const char* what) {
  return make_error(ErrorCode::io, "cannot start a compile worker: {}: {}", what,
                    errno_text(errno));
}

/// For a process that a seccomp filter, a limit or a file system keeps from starting others.
Error refused(const std::string& what, int error) {
  return make_error(ErrorCode::io,
                    "cannot start a compile worker: {}: {}; expected a process that may start "
                    "others. For one that may not, start cukilnd (cukiln daemon start) with a "
                    "store into which another process has compiled; it links nothing",
                    what, errno_text(error));
}

#ifdef P_PIDFD
constexpr idtype_t kPidfd = P_PIDFD;
#else
constexpr idtype_t kPidfd = static_cast<idtype_t>(3);
#endif

bool is_our_child(int process) {
  siginfo_t info{};
  return process >= 0 &&
         ::waitid(kPidfd, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

int open_pidfd(pid_t pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
#else
  static_cast<void>(pid);
  return -1;
#endif
}

/// Creates the memory file for a worker's stderr. It takes 64 KiB and refuses more, so that a
/// worker that a text has taken over does not fill memory with it. Errors: io.
Result<UniqueFd> make_error_log() {
  UniqueFd file(::memfd_create("cukiln-worker-stderr", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  rlimit limit{};  // a larger size would raise SIGXFSZ in the host
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const auto size = static_cast<off_t>(std::min<rlim_t>(wire::kWorkerLogBytes, limit.rlim_cur));
  if (!file || ::ftruncate(file.get(), size) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    return system_error("memfd_create");
  }
  return file;
}

}  // namespace

Result<SpawnedProcess> spawn_detached(const std::string& path,
                                      const std::vector<std::string>& arguments, int program) {
  SpawnedProcess spawned;
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return system_error("socketpair");
  }
  spawned.socket = UniqueFd(pair[0]);
  const UniqueFd far_end(pair[1]);
  CUKILN_TRY(spawned.error_log, make_error_log());
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) {
    return system_error("/dev/null");
  }
  // A pidfd of this process. If the worker opened it, by pid, it might get another process's.
  const UniqueFd owner(open_pidfd(::getpid()));

  std::vector<char*> values{const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) {
    values.push_back(const_cast<char*>(argument.c_str()));
  }
  values.push_back(nullptr);

  const SharedOutcome outcome;
  if (!outcome) {
    return system_error("mmap");
  }
  Plan plan;
  plan.outcome = outcome.get();
  plan.path = path.c_str();
  plan.executable = program;
  plan.arguments = values.data();
  const int passed[kPassed] = {null.get(), null.get(), spawned.error_log.get(), far_end.get(),
                               owner.get()};
  std::copy(std::begin(passed), std::end(passed), std::begin(plan.descriptors));

  // The host's signal handlers must not run in the children, which share its memory. The worker
  // unblocks signals itself.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  int cancel_state = 0;
  ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
  const long intermediate = run_both_steps(&plan);
  if (intermediate > 0) {
    while (::waitpid(static_cast<pid_t>(intermediate), nullptr, __WALL) < 0 && errno == EINTR) {
    }
  }
  ::pthread_setcancelstate(cancel_state, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);

  if (intermediate < 0) {
    return refused("clone", static_cast<int>(-intermediate));
  }
  if (const int error = outcome.get()->error; error != 0) {
    if (outcome.get()->program < 0) {
      return refused("clone", error);
    }
    if (error == EPERM || error == EACCES) {
      return refused("execve of " + path, error);
    }
    const bool absent = error == ENOENT || error == ENOTDIR;
    return make_error(absent ? ErrorCode::not_found : ErrorCode::io,
                      "cannot start the compile worker {}: {}", path, errno_text(error));
  }
  spawned.pid = outcome.get()->program;
  spawned.process = UniqueFd(open_pidfd(spawned.pid));
  spawned.ours_to_reap = is_our_child(spawned.process.get());
  return spawned;
}

bool reap_if_ours(int process) noexcept {
  siginfo_t info{};
  return process >= 0 &&
         ::waitid(kPidfd, static_cast<id_t>(process), &info, WEXITED | WNOHANG) == 0;
}

}  // namespace cukiln
