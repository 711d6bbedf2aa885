// SPDX-License-Identifier: Apache-2.0
// A compiler that a text has taken over, played by system calls of the fake NVRTC: what it reaches
// from inside the worker.

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <utility>

#include "core/base/file.hpp"
#include "core/compile/worker_process.hpp"
#include "support/compile_fixture.hpp"
#include "support/forked.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

struct Programs {
  std::string worker = kPlainWorker;  // a sanitised one is not restricted
  std::string library = kFakeNvrtc;
};

wire::Hello hello_of_worker(const Programs& programs = {}) {
  WorkerOptions options;
  options.path = programs.worker;
  options.library = programs.library;
  const auto worker = WorkerProcess::start(
      options, wire::WaitOptions{std::chrono::steady_clock::now() + std::chrono::seconds(20), {}});
  REQUIRE_MESSAGE(worker, worker.error().message());
  return (*worker)->hello();
}

/// What the fake reports of each attempt: `allowed`, or the error.
std::string result_of(const std::string& attempt, CompileGuard guard = {},
                      const Programs& programs = {}) {
  NvrtcCompilerOptions options = fake_options(programs.library.c_str());
  options.worker = programs.worker;
  NvrtcCompiler compiler(std::move(options));
  TestModule module("// fake: try " + attempt + "\nextern \"C\" __global__ void k(int*) {}\n");
  const CompileResult result = must(module.run(compiler, std::move(guard)));
  const std::string begin = "try " + attempt + ": ";
  const std::size_t at = result.cubin.log.find(begin);
  REQUIRE(at != std::string::npos);
  const std::string rest = result.cubin.log.substr(at + begin.size());
  return rest.substr(0, rest.find('\n'));
}

const std::string kNotPermitted = "Operation not permitted";
const std::string kBomb = "threads 2000";

/// Checks that the bomb got threads, and not more than the worker's limit.
void check_bomb(const std::string& result, std::uint32_t limit) {
  CAPTURE(result);
  CHECK(result.find("Resource temporarily unavailable") != std::string::npos);
  const std::uint32_t threads = static_cast<std::uint32_t>(std::stoul("0" + result));
  CHECK(threads > 0);
  CHECK(threads < limit);
}

constexpr uid_t kOther = 64'001;

/// What `body` returns in a child process of another user; empty if this process may have none.
template <class Body>
std::string as_user(uid_t user, const Body& body) {
  return text_of_child([&] {
    const bool is_other = ::setresgid(user, user, user) == 0 && ::setresuid(user, user, user) == 0;
    return is_other ? body() : std::string();
  });
}

/// Whether a worker of this user can limit its tasks: see worker/task_limit.hpp.
bool permits_task_limit() {
  if (::geteuid() == 0) {
    return as_user(0x80000001U, [] { return std::string("yes"); }) == "yes";
  }
  utsname system{};
  int major = 0;
  int minor = 0;
  ::uname(&system);
  return std::sscanf(system.release, "%d.%d", &major, &minor) == 2 &&
         std::pair(major, minor) >= std::pair(5, 14) &&
         as_user(::geteuid(),
                 [] { return std::string(::unshare(CLONE_NEWUSER) == 0 ? "yes" : ""); }) == "yes";
}

struct Victim {
  pid_t pid = -1;
  Victim() {
    char program[] = "/bin/sleep";
    char seconds[] = "60";
    char* const arguments[] = {program, seconds, nullptr};
    REQUIRE(::posix_spawn(&pid, program, nullptr, nullptr, arguments, environ) == 0);
  }
  ~Victim() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  std::string number() const { return std::to_string(pid); }
};

}  // namespace

TEST_CASE("a worker filters its system calls, hides its memory, and says so") {
  CHECK(hello_of_worker().filters_calls);
  CHECK(hello_of_worker().hides_memory);
}

TEST_CASE("a compiler that was taken over can do what NVRTC does: start threads") {
  CHECK(result_of("thread") == "allowed");
}

TEST_CASE("a compiler that was taken over opens no socket, on any network or of any daemon") {
  for (const int family : {AF_INET, AF_INET6, AF_UNIX, AF_NETLINK}) {
    CAPTURE(family);
    CHECK(result_of("socket " + std::to_string(family)) == kNotPermitted);
  }
}

TEST_CASE("a compiler that was taken over starts no process and no program") {
  CHECK(result_of("fork") == kNotPermitted);
  CHECK(result_of("exec /bin/true") == kNotPermitted);
  CHECK(result_of("namespace") == kNotPermitted);
  CHECK(result_of("ring") == kNotPermitted);
}

TEST_CASE("a compiler that was taken over maps no code once NVRTC's two libraries are open") {
  ScratchFolder scratch;
  const std::string library = scratch / "libnvrtc.so.13";
  std::filesystem::copy_file(kFakeNvrtc, library);
  std::filesystem::copy_file(kFakeNvrtc, scratch / "libnvrtc-builtins.so.13.0");
  CHECK(result_of("code", {}, {kPlainWorker, library}) == kNotPermitted);
  CHECK(result_of("read " + library, {}, {kPlainWorker, library}) == "Permission denied");
  // The builtins library of this one is opened when NVRTC wants it.
  CHECK(result_of("code") == "allowed");
}

TEST_CASE("a compiler that was taken over touches no other process of its user, nor its owner") {
  const Victim victim;
  for (const std::string& process : {victim.number(), std::to_string(::getpid())}) {
    for (const char* const call :
         {"kill ", "tgkill ", "ptrace ", "memory ", "descriptor ", "limit "}) {
      CAPTURE(call);
      CHECK(result_of(call + process) == kNotPermitted);
    }
  }
  const std::string owner = std::to_string(wire::kWorkerOwner);
  CHECK(result_of("signal_by " + owner) == kNotPermitted);
  CHECK(result_of("descriptor_by " + owner) == kNotPermitted);
  CHECK(result_of("keys") == kNotPermitted);
}

// Landlock of Linux 6.12, and the kernel itself, refuse with the same error what is about another
// process. Of process 0, which is the worker's group or none, the filter alone refuses it.
TEST_CASE(
    "without Landlock too, a compiler that was taken over sends no signal and has none sent") {
  for (const char* const call : {"kill", "tgkill", "ptrace", "memory", "descriptor"}) {
    CAPTURE(call);
    CHECK(result_of(call + std::string(" 0")) == kNotPermitted);
  }
  const auto fcntl = [](int command, int value) {
    return result_of("fcntl " + std::to_string(command) + " " + std::to_string(value));
  };
  CHECK(fcntl(F_GETFL, 0) == "allowed");
  CHECK(fcntl(F_GETFD, 0) == "allowed");
  for (const int command : {F_SETOWN, F_GETOWN, F_SETSIG, F_SETLEASE, F_NOTIFY, F_SETLK}) {
    CAPTURE(command);
    CHECK(fcntl(command, 0) == kNotPermitted);
  }
  CHECK(fcntl(F_SETFL, O_ASYNC) == kNotPermitted);
  CHECK(fcntl(F_SETFL, O_ASYNC | O_NONBLOCK) == kNotPermitted);
}

TEST_CASE("fault 133: a compiler that was taken over has a limited number of threads") {
  if (!permits_task_limit()) {
    MESSAGE("skipped: this kernel, or a filter of system calls, permits no limit");
    return;
  }
  const std::uint32_t limit = hello_of_worker().max_tasks;
  CHECK(limit >= 64);
  check_bomb(result_of(kBomb), limit);
  CHECK(result_of("raise " + std::to_string(RLIMIT_NPROC)) == kNotPermitted);
}

// Root's worker is limited in another way: see worker/task_limit.hpp.
TEST_CASE("fault 133: the same for a user other than root") {
  if (::geteuid() != 0 || as_user(kOther, [] { return std::string("yes"); }) != "yes") {
    MESSAGE("skipped: not root, so no other user can be played");
    return;
  }
  ScratchFolder scratch;
  const Programs programs{scratch / "worker", scratch / "libnvrtc_fake.so"};
  std::filesystem::copy_file(kPlainWorker, programs.worker);
  std::filesystem::copy_file(kFakeNvrtc, programs.library);
  std::filesystem::permissions(scratch.path(), std::filesystem::perms(0755));
  const std::string result = as_user(kOther, [&]() -> std::string {
    return !permits_task_limit() ? ""
                                 : std::to_string(hello_of_worker(programs).max_tasks) + " " +
                                       result_of(kBomb, {}, programs);
  });
  if (result.empty()) {
    MESSAGE("skipped: this kernel, or a filter of system calls, permits no limit");
    return;
  }
  const std::size_t blank = result.find(' ');
  const auto limit = static_cast<std::uint32_t>(std::stoul(result));
  CHECK(limit >= 64);
  check_bomb(result.substr(blank + 1), limit);
}

TEST_CASE("fault 133: a compile with more threads than the limit fails, and the error says so") {
  NvrtcCompilerOptions options = fake_options();
  options.worker = kPlainWorker;
  NvrtcCompiler compiler(std::move(options));
  const auto run = [&](const std::string& count) {
    TestModule module("// fake: threads " + count + "\nextern \"C\" __global__ void k(int*) {}\n");
    return module.run(compiler);
  };
  must(run("32"));
  if (!permits_task_limit()) {
    MESSAGE("skipped: this kernel, or a filter of system calls, permits no limit");
    return;
  }
  const auto failed = run("4000");
  REQUIRE_FALSE(failed);
  CAPTURE(failed.error().message());
  const std::string limit =
      "more threads than the " + std::to_string(hello_of_worker().max_tasks) + " that";
  CHECK(failed.error().message().find(limit) != std::string::npos);
  CHECK(failed.error().message().find("--split-compile") != std::string::npos);
  must(run("32"));
}

TEST_CASE("fault 132: a compiler that was taken over reads, writes and removes no file") {
  if (hello_of_worker().landlock == 0) {
    MESSAGE("skipped: this kernel has no Landlock, and the worker is not restricted to its files");
    return;
  }
  ScratchFolder scratch;
  const std::string key = scratch.write("secret.key", "secret");
  CHECK(result_of("read " + key) == "Permission denied");
  CHECK(result_of("list " + scratch.path()) == "Permission denied");
  CHECK(result_of("create " + key) == "Permission denied");
  CHECK(result_of("create " + (scratch / "new")) == "Permission denied");
  CHECK(result_of("remove " + key) == kNotPermitted);
  CHECK(result_of("rename " + key) == kNotPermitted);
  CHECK(result_of("read /proc/self/mem") == "Permission denied");
  const std::string owner = "/proc/" + std::to_string(::getpid());
  for (const char* const file : {"/mem", "/environ", "/maps", "/fd/0"}) {
    CHECK(result_of("read " + owner + file) == "Permission denied");
  }
  CHECK(result_of("write " + owner + "/mem") == "Permission denied");
  const std::string store = scratch.write("store.db", "entries");
  CHECK(result_of("write " + store) == "Permission denied");
  CHECK(result_of("read /etc/passwd") == "Permission denied");
  CHECK(read_all(key) == "secret");

  const std::string locks = scratch / "flights";
  std::filesystem::create_directory(locks);
  CompileGuard guard;
  guard.lock_path = join_path(locks, "k.lock");
  CHECK(result_of("create " + join_path(locks, "other.lock"), guard) == "Permission denied");
  CHECK(result_of("remove " + guard.lock_path, guard) == kNotPermitted);
  CHECK(result_of("write " + guard.lock_path, guard) == "Permission denied");
}

// The limit on address space does not count files in memory.
TEST_CASE("fault 312: a compiler that was taken over fills neither memory nor disk with files") {
  ScratchFolder scratch;
  CompileGuard guard;
  guard.lock_path = scratch / "k.lock";
  CHECK(result_of("memory_file") == kNotPermitted);
  // The lock file is the only one that it has open.
  CHECK(result_of("fill " + std::to_string(wire::kWorkerLogBytes - 1), guard) == "allowed");
  CHECK(result_of("fill " + std::to_string(wire::kWorkerLogBytes), guard) == "File too large");
  CHECK(result_of("raise " + std::to_string(RLIMIT_FSIZE)) == kNotPermitted);
  CHECK(result_of("lock") == kNotPermitted);
}
