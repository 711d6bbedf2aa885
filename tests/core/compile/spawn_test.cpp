// SPDX-License-Identifier: Apache-2.0
#include "core/compile/spawn.hpp"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <thread>

#include "support/compile_fixture.hpp"
#include "support/forked.hpp"
#include "support/refuse_processes.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

volatile sig_atomic_t g_sigchld = 0;

void on_sigchld(int) { g_sigchld = g_sigchld + 1; }

/// Counts SIGCHLD while it exists, as a host that watches its children would.
class SigchldWatch {
 public:
  SigchldWatch() {
    g_sigchld = 0;
    struct sigaction action {};
    action.sa_handler = on_sigchld;
    ::sigaction(SIGCHLD, &action, &before_);
  }
  ~SigchldWatch() { ::sigaction(SIGCHLD, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

/// What a spawned shell prints about its own process.
std::string shell_says(const std::string& script, const std::string& shell = "/bin/sh",
                       int program = -1) {
  auto spawned = spawn_detached(shell, {"-c", script}, program);
  REQUIRE(spawned);
  char byte = 0;
  REQUIRE(::recv(spawned->socket.get(), &byte, 1, 0) == 0);  // its end, as it holds the other one
  std::string text(static_cast<std::size_t>(::lseek(spawned->error_log.get(), 0, SEEK_CUR)), '\0');
  CHECK(::pread(spawned->error_log.get(), text.data(), text.size(), 0) ==
        static_cast<ssize_t>(text.size()));
  return text;
}

std::unique_ptr<WorkerProcess> fake_worker(const char* program = kTestWorker) {
  auto worker =
      WorkerProcess::start({program, kFakeNvrtc, "", 1ull << 32, std::chrono::seconds(30)}, {});
  REQUIRE_MESSAGE(worker, worker.error().message());
  return std::move(*worker);
}

}  // namespace

TEST_CASE("a host's SIGCHLD handler and wait(-1) do not see workers") {
  const SigchldWatch watch;
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(shell_says("echo started >&2").empty());
  }
  fake_worker().reset();
  ::usleep(100'000);  // time in which a signal would arrive
  CHECK(g_sigchld == 0);
  errno = 0;
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
}

TEST_CASE("a host that is a subreaper gets no zombies") {
  REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
  fake_worker().reset();
  ::prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
  errno = 0;
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
}

TEST_CASE("a host's own child keeps its status while workers come and go") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::usleep(50'000);
    ::_exit(42);
  }
  for (int i = 0; i < 5; ++i) {
    shell_says("true");
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 42);
}

TEST_CASE("fault 189: a worker starts where no child can be made without an exit signal") {
  CHECK(status_of_child([] {
          sock_filter rules[] = {
              BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
              BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
              BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
              BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CSIGNAL, 1, 0),
              BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
              BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
          };
          if (!install_filter(rules)) {
            return 2;
          }
          const auto spawned = spawn_detached("/bin/sh", {"-c", "echo started >&2"});
          char byte = 0;
          const bool ended = spawned && ::recv(spawned->socket.get(), &byte, 1, 0) == 0;
          return ended && ::lseek(spawned->error_log.get(), 0, SEEK_CUR) == 8 ? 0 : 1;
        }) == 0);
}

TEST_CASE("fault 353: where no process may be started, the error names the call that was refused") {
  CHECK(status_of_child([] {
          if (!refuse_processes()) {
            return 2;
          }
          const auto spawned = spawn_detached("/bin/true", {});
          const bool names_it = !spawned && spawned.error().code() == ErrorCode::io &&
                                spawned.error().message().find(
                                    "clone: Operation not permitted (1); expected a process that "
                                    "may start others") != std::string::npos;
          return names_it ? 0 : 1;
        }) == 0);
}

// fault 372
TEST_CASE("a spawned program has descriptors 0 to 4 and no other") {
  const UniqueFd leak(::open("/dev/null", O_RDONLY));  // without O_CLOEXEC
  const UniqueFd high(::fcntl(leak.get(), F_DUPFD, 300));
  const std::string open = shell_says(
      "for fd in 0 1 2 3 4 5 6 7 8 9 10 16 17 18 300; do [ -e /proc/self/fd/$fd ] && "
      "echo -n \"$fd \" >&2; done");
  CHECK(open == "0 1 2 3 4 ");
}

// fault 372
TEST_CASE("a spawned program has no environment") {
  ::setenv("CUKILN_TEST_LEAK", "leaked", 1);
  CHECK(shell_says("echo \"[$CUKILN_TEST_LEAK]\" >&2") == "[]\n");
  ::unsetenv("CUKILN_TEST_LEAK");
}

// fault 373
TEST_CASE("a program that writes without end to stderr fills no memory") {
  const std::string text = shell_says("head -c 1000000 /dev/zero >&2; truncate -s 1M /dev/fd/2");
  CHECK(text.size() <= 64 << 10);
  CHECK(text.size() > 32 << 10);
}

// fault 8
TEST_CASE("a limit on file sizes raises no signal in the process that starts a worker") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{4096, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string text = shell_says("echo text >&2");
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(text == "text\n");
}

TEST_CASE("a missing program is named in the error") {
  const auto spawned = spawn_detached("/nowhere/worker", {});
  REQUIRE_FALSE(spawned);
  CHECK(spawned.error().code() == ErrorCode::not_found);
  CHECK(spawned.error().message().find("/nowhere/worker") != std::string::npos);
}

TEST_CASE("a program that cannot be executed is an error, and no child is left") {
  const auto spawned = spawn_detached("/etc/passwd", {});
  REQUIRE_FALSE(spawned);
  CHECK(spawned.error().code() == ErrorCode::io);
  CHECK(spawned.error().message().find("execve of /etc/passwd: Permission denied (13)") !=
        std::string::npos);
  CHECK(::waitpid(-1, nullptr, WNOHANG | __WALL) == -1);
}

TEST_CASE("several threads spawn concurrently") {
  std::atomic<int> started = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 5; ++k) {
        const auto spawned = spawn_detached("/bin/true", {});
        started += spawned ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(started == 40);
}

TEST_CASE("the caller's signal mask is unchanged") {
  sigset_t wanted;
  sigset_t before;
  sigset_t after;
  ::sigemptyset(&wanted);
  ::sigaddset(&wanted, SIGUSR2);
  ::pthread_sigmask(SIG_SETMASK, &wanted, &before);
  shell_says("true");
  ::pthread_sigmask(SIG_SETMASK, &before, &after);
  CHECK(::sigismember(&after, SIGUSR2) == 1);
  CHECK(::sigismember(&after, SIGTERM) == 0);
}

TEST_CASE(
    "a worker is isolated from the host's signals, working directory, session and core files") {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  ::signal(SIGTERM, SIG_IGN);
  const auto worker = fake_worker();
  ::signal(SIGTERM, SIG_DFL);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);

  // The hello comes from a thread, and pthread_create blocks all signals in its caller meanwhile.
  const std::string none = "0000000000000000";
  CHECK(becomes_true([&] { return status_of(worker->pid(), "SigBlk") == none; }));
  CHECK(status_of(worker->pid(), "SigIgn") == "0000000001001000");  // SIGPIPE, SIGXFSZ
  CHECK(::getsid(worker->pid()) == worker->pid());
  char folder[16] = {};
  const std::string link = "/proc/" + std::to_string(worker->pid()) + "/cwd";
  CHECK(::readlink(link.c_str(), folder, sizeof folder) == 1);
  CHECK(folder[0] == '/');
  CHECK(read_all("/proc/" + std::to_string(worker->pid()) + "/environ").empty());
  const std::string limits = read_all("/proc/" + std::to_string(worker->pid()) + "/limits");
  CHECK(limits.find("Max core file size        0 ") != std::string::npos);
}

TEST_CASE("a worker's address space has the given limit") {
  const auto worker = fake_worker(kPlainWorker);
  const std::string limits = read_all("/proc/" + std::to_string(worker->pid()) + "/limits");
  CHECK(limits.find("Max address space         4294967296 ") != std::string::npos);
}

TEST_CASE("a forked child that drops its copy of a worker does not end the parent's") {
  auto worker = fake_worker();
  status_of_child([&] {
    worker.reset();
    return 0;
  });
  CHECK(worker->alive());
  CHECK(worker->request(wire::WorkerOp::probe, {}, {}).is(wire::WorkerOp::probed));
}

TEST_CASE("a worker ends after an unknown request") {
  auto worker = fake_worker();
  CHECK(worker->request(static_cast<wire::WorkerOp>(999), {}, {}).failure == WorkerFailure::closed);
}

// fault 113
TEST_CASE("the opened program is run, even if its path has been replaced") {
  const ScratchFolder folder;
  const std::string path = folder / "program";
  std::filesystem::copy_file("/bin/sh", path);
  const UniqueFd opened(::open(path.c_str(), O_PATH | O_CLOEXEC));
  REQUIRE(opened);
  std::filesystem::copy_file("/bin/false", folder / "other");
  std::filesystem::rename(folder / "other", path);
  CHECK(shell_says("echo believed >&2", path, opened.get()) == "believed\n");
  // No other descriptor of it is open there.
  CHECK(shell_says("for fd in 0 1 2 3 4 5 6 16 17; do [ -e /proc/self/fd/$fd ] && "
                   "echo -n \"$fd \" >&2; done",
                   path, opened.get()) == "0 1 2 3 4 ");
}
