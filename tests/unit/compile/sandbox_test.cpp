// SPDX-License-Identifier: Apache-2.0
// A compiler that a text has taken over, played by system calls of the fake NVRTC: what it reaches
// from inside the worker.

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.hpp"
#include "compile/worker_process.hpp"
#include "support/compile_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

wire::Hello hello_of_worker() {
  WorkerOptions options;
  options.path = kPlainWorker;
  options.library = kFakeNvrtc;
  const auto worker = WorkerProcess::start(
      options, wire::WaitOptions{std::chrono::steady_clock::now() + std::chrono::seconds(20), {}});
  REQUIRE_MESSAGE(worker, worker.error().message());
  return (*worker)->hello();
}

/// What the fake reports of each attempt: `allowed`, or the error.
std::string result_of(const std::string& attempt, CompileGuard guard = {},
                      const char* library = kFakeNvrtc) {
  NvrtcCompilerOptions options = fake_options(library);
  options.worker = kPlainWorker;  // a sanitised one is not restricted
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

TEST_CASE("a worker filters its system calls, and says so") {
  CHECK(hello_of_worker().filters_calls);
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
  CHECK(result_of("code", {}, library.c_str()) == kNotPermitted);
  CHECK(result_of("read " + library, {}, library.c_str()) == "Permission denied");
  // The builtins library of this one is opened when NVRTC wants it.
  CHECK(result_of("code") == "allowed");
}

TEST_CASE("a compiler that was taken over touches no other process of its user") {
  const Victim victim;
  for (const char* const call :
       {"kill ", "tgkill ", "ptrace ", "memory ", "descriptor ", "limit "}) {
    CAPTURE(call);
    CHECK(result_of(call + victim.number()) == kNotPermitted);
  }
}

TEST_CASE("fault 132: a compiler that was taken over reads, writes and removes no file but locks") {
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
  CHECK(result_of("remove " + key) == "Permission denied");
  CHECK(result_of("rename " + key) == kNotPermitted);
  CHECK(result_of("read /proc/self/mem") == "Permission denied");
  CHECK(result_of("read /etc/passwd") == "Permission denied");
  CHECK(read_all(key) == "secret");

  const std::string locks = scratch / "flights";
  std::filesystem::create_directory(locks);
  CompileGuard guard;
  guard.lock_path = join_path(locks, "k.lock");
  CHECK(result_of("create " + join_path(locks, "other.lock"), guard) == "allowed");
  CHECK(result_of("list " + locks, guard) == "Permission denied");
  CHECK(result_of("read " + key, guard) == "Permission denied");
}

TEST_CASE("a worker that may open one store's locks is not used for another store's") {
  ScratchFolder scratch;
  const std::string started = scratch / "started";
  NvrtcCompilerOptions options = fake_options();
  options.worker = counted_worker(scratch, started);
  NvrtcCompiler compiler(std::move(options));
  const auto compile_in = [&](const std::string& folder) {
    std::filesystem::create_directories(scratch / folder);
    CompileGuard guard;
    guard.lock_path = join_path(scratch / folder, "k.lock");
    TestModule module("extern \"C\" __global__ void k(int*) {}\n");
    must(module.run(compiler, std::move(guard)));
    return lines_in(started);
  };
  const std::size_t first = compile_in("a");
  CHECK(compile_in("b") == first + 1);
  CHECK(compile_in("a") == first + 1);
  CHECK(compile_in("b") == first + 1);
}
