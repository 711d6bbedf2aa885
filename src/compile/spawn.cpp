#include "compile/spawn.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>

#include "base/result.hpp"

// A host may have a SIGCHLD handler, a wait(-1) loop, or both, and must not meet children it does
// not know. Linux tells the parent of a child's end by the child's exit signal, which clone sets;
// with signal 0 there is no SIGCHLD, and waitpid finds the child only when asked for it with
// __WCLONE. But execve sets the exit signal back to SIGCHLD. Hence two steps: an intermediate
// without an exit signal starts the program and ends at once; the program is an orphan then, and
// init reaps it. (A host that is init itself, or a subreaper, reaps strangers anyway.)
//
// Both steps share our memory and stop this thread until they are over (CLONE_VM|CLONE_VFORK), as
// posix_spawn does: no page tables are copied, however large the host. What runs there uses system
// calls only: no libc function whose state, or whose sanitizer's state, is this thread's.
#define CUKILN_IN_CHILD __attribute__((no_sanitize("address", "thread", "undefined"), noinline))

namespace cukiln {

namespace {

constexpr std::size_t kStackBytes = 64 << 10;
// Where the descriptors wait while 0 to 4 are taken, so that none is overwritten before it is
// moved.
constexpr int kParkingPlace = 16;
constexpr std::size_t kPassed = 5;

struct Plan {
  const char* path = nullptr;
  char* const* arguments = nullptr;
  std::array<int, kPassed> descriptors{};  // which become 0, 1, …; -1: none
  char* inner_stack = nullptr;
  int inner_flags = 0;
  // Written by the steps, in our memory.
  volatile pid_t program = -1;
  volatile int error = 0;
};

CUKILN_IN_CHILD int run_program(void* argument) {
  Plan* plan = static_cast<Plan*>(argument);
  int parked[kPassed];
  for (std::size_t i = 0; i < kPassed; ++i) {
    parked[i] = plan->descriptors[i] < 0
                    ? -1
                    : static_cast<int>(::syscall(SYS_fcntl, plan->descriptors[i], F_DUPFD_CLOEXEC,
                                                 kParkingPlace));
  }
  for (std::size_t i = 0; i < kPassed; ++i) {
    if (parked[i] >= 0) {
      ::syscall(SYS_dup3, parked[i], static_cast<int>(i), 0);
    } else {
      ::syscall(SYS_close, static_cast<int>(i));
    }
  }
#ifdef SYS_close_range
  ::syscall(SYS_close_range, static_cast<unsigned>(kPassed), ~0U, 0);  // the worker does it again
#endif
  char* const environment[] = {nullptr};
  if (::syscall(SYS_execve, plan->path, plan->arguments, environment) != 0) {
    plan->error = errno;  // this thread's own, which waits meanwhile
  }
  ::syscall(SYS_exit_group, 127);
  return 0;
}

CUKILN_IN_CHILD int run_intermediate(void* argument) {
  Plan* plan = static_cast<Plan*>(argument);
  plan->program = ::clone(run_program, plan->inner_stack, plan->inner_flags, plan);
  if (plan->program < 0) {
    plan->error = errno;
  }
  ::syscall(SYS_exit_group, 0);
  return 0;
}

Error system_error(const char* what) {
  return make_error(ErrorCode::io, "cannot start a compile worker: {}: {}", what,
                    errno_text(errno));
}

int open_pidfd(pid_t pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
#else
  static_cast<void>(pid);
  return -1;
#endif
}

class Stacks {
 public:
  Stacks()
      : memory_(::mmap(nullptr, 2 * kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0)) {}
  ~Stacks() {
    if (memory_ != MAP_FAILED) {
      ::munmap(memory_, 2 * kStackBytes);
    }
  }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  explicit operator bool() const { return memory_ != MAP_FAILED; }
  char* top(std::size_t which) const {  // stacks grow downwards
    return static_cast<char*>(memory_) + (which + 1) * kStackBytes;
  }

 private:
  void* memory_;
};

}  // namespace

Result<SpawnedProcess> spawn_unnoticed(const std::string& path,
                                       const std::vector<std::string>& arguments) {
  SpawnedProcess spawned;
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return system_error("socketpair");
  }
  spawned.socket = UniqueFd(pair[0]);
  const UniqueFd far_end(pair[1]);
  spawned.error_log = UniqueFd(::memfd_create("cukiln-worker-stderr", MFD_CLOEXEC));
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!spawned.error_log || !null) {
    return system_error("memfd_create or /dev/null");
  }
  // Of ourselves, opened by ourselves: by number, from the worker, it could be somebody else by
  // then.
  const UniqueFd owner(open_pidfd(::getpid()));

  std::vector<char*> values{const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) {
    values.push_back(const_cast<char*>(argument.c_str()));
  }
  values.push_back(nullptr);

  const Stacks stacks;
  if (!stacks) {
    return system_error("mmap");
  }
  Plan plan;
  plan.path = path.c_str();
  plan.arguments = values.data();
  plan.descriptors = {null.get(), null.get(), spawned.error_log.get(), far_end.get(), owner.get()};
  plan.inner_stack = stacks.top(1);
  plan.inner_flags = CLONE_VM | CLONE_VFORK | SIGCHLD;

  // The host's handlers must not run in the children, on our memory. The worker unblocks again.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  int cancel_state = 0;
  ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
  const pid_t intermediate =
      ::clone(run_intermediate, stacks.top(0), CLONE_VM | CLONE_VFORK | 0, &plan);
  const int clone_error = errno;
  if (intermediate > 0) {
    while (::waitpid(intermediate, nullptr, __WCLONE) < 0 && errno == EINTR) {
    }
  }
  ::pthread_setcancelstate(cancel_state, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);

  if (intermediate < 0) {
    errno = clone_error;
    return system_error("clone");
  }
  if (plan.error != 0) {
    const bool absent = plan.error == ENOENT || plan.error == ENOTDIR;
    return make_error(absent ? ErrorCode::not_found : ErrorCode::io,
                      "cannot start the compile worker {}: {}", path, errno_text(plan.error));
  }
  spawned.pid = plan.program;
  spawned.process = UniqueFd(open_pidfd(spawned.pid));
  return spawned;
}

}  // namespace cukiln
