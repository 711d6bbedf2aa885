// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "core/compile/worker_pool.hpp"
#include "support/compile_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using namespace std::chrono_literals;

namespace {

const std::string kKernel = "extern \"C\" __global__ void k(int*) {}\n";

bool appears(const std::string& path) {
  return becomes_true([&] { return std::filesystem::exists(path); });
}

CompileState state_with(const std::string& lock, std::string* owner = nullptr) {
  NvrtcCompiler compiler(fake_options());
  TestModule module(kKernel);
  CompileGuard guard;
  guard.lock_path = lock;
  auto outcome = module.run(compiler, guard);
  REQUIRE_MESSAGE(outcome, outcome.error().message());
  if (owner != nullptr) {
    *owner = outcome->owner;
  }
  return outcome->state;
}

/// Forks a process that holds the lock and compiles for a minute.
pid_t fork_slow_owner(const ScratchFolder& folder, bool forks_a_child,
                      const std::string& worker = kTestWorker) {
  const pid_t owner = ::fork();
  if (owner != 0) {
    return owner;
  }
  NvrtcCompilerOptions options = fake_options();
  options.worker = worker;
  NvrtcCompiler compiler(std::move(options));
  TestModule module("// fake: count " + (folder / "count") + "\n// fake: sleep 60000\n" + kKernel);
  module.label = "slow_kernel";
  CompileGuard guard;
  guard.lock_path = folder / "flight.lock";
  guard.still_needed = [&] {  // with the lock held, and the worker's socket open
    if (const pid_t forgotten = forks_a_child ? ::fork() : -1; forgotten == 0) {
      ::usleep(60'000'000);
      ::_exit(0);
    } else {
      std::ofstream(folder / "forgotten") << forgotten;
    }
    return true;
  };
  const auto outcome = module.run(compiler, guard);
  ::_exit(outcome ? 0 : 1);
}

/// Kills those that `counted_worker` started.
void kill_workers(const std::string& started) {
  std::ifstream workers(started);
  for (pid_t worker = 0; workers >> worker;) {
    ::kill(worker, SIGKILL);
  }
}

bool gets_free(const std::string& lock) {
  return becomes_true([&] { return state_with(lock) == CompileState::done; });
}

}  // namespace

TEST_CASE("a request that another process compiles is busy, and the lock's owner is named") {
  const ScratchFolder folder;
  const pid_t owner = fork_slow_owner(folder, false);
  REQUIRE(appears(folder / "count"));
  std::string line;
  CHECK(state_with(folder / "flight.lock", &line) == CompileState::busy);
  CHECK(line.find("pid " + std::to_string(owner) + " since 2") == 0);
  CHECK(line.find("compiling slow_kernel") != std::string::npos);
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
}

// fault 1
TEST_CASE("kill -9 of an owner releases its compile lock") {
  const ScratchFolder folder;
  const pid_t owner = fork_slow_owner(folder, false);
  REQUIRE(appears(folder / "count"));
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  CHECK(gets_free(folder / "flight.lock"));
}

// fault 1b
TEST_CASE("kill -9 of an owner that had forked releases its compile lock while the child lives") {
  const ScratchFolder folder;
  const pid_t owner = fork_slow_owner(folder, true);
  REQUIRE(appears(folder / "count"));
  const pid_t forgotten = static_cast<pid_t>(std::stol(read_all(folder / "forgotten")));
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  CHECK(gets_free(folder / "flight.lock"));
  CHECK(::kill(forgotten, 0) == 0);
  ::kill(forgotten, SIGKILL);
}

// fault 313
TEST_CASE(
    "a worker alone has the lock of its compile: kill -9 frees it though its owner is stopped") {
  const ScratchFolder folder;
  const std::string started = folder / "started";
  const pid_t owner = fork_slow_owner(folder, false, counted_worker(folder, started));
  REQUIRE(appears(folder / "count"));
  ::kill(owner, SIGSTOP);
  kill_workers(started);
  CHECK(gets_free(folder / "flight.lock"));
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
}

TEST_CASE("fault 99: a worker that is killed is an error, and the next compile starts another") {
  const ScratchFolder folder;
  const std::string started = folder / "started";
  NvrtcCompilerOptions options = fake_options();
  options.worker = counted_worker(folder, started);
  NvrtcCompiler compiler(std::move(options));
  TestModule module("// fake: count " + (folder / "count") + "\n// fake: wait " + (folder / "go") +
                    "\n" + kKernel);
  CompileGuard guard;
  guard.lock_path = folder / "flight.lock";
  bool is_published = false;
  guard.publish = [&](const CompileResult&) { is_published = true; };
  std::thread killer([&] {
    CHECK(appears(folder / "count"));
    kill_workers(started);
  });
  const auto killed = module.run(compiler, guard);
  killer.join();
  REQUIRE_FALSE(killed);
  CHECK(killed.error().message().find("it was killed") != std::string::npos);
  CHECK_FALSE(is_published);
  folder.write("go", "");
  must(module.run(compiler, guard));
  CHECK(is_published);
}

TEST_CASE("the lock is held until the result is published, and its file is removed afterwards") {
  const ScratchFolder folder;
  const std::string lock = folder / "flight.lock";
  NvrtcCompiler compiler(fake_options());
  TestModule module(kKernel);
  CompileGuard guard;
  guard.lock_path = lock;
  CompileState while_publishing = CompileState::done;
  guard.publish = [&](const CompileResult&) { while_publishing = state_with(lock); };
  must(module.run(compiler, guard));
  CHECK(while_publishing == CompileState::busy);
  CHECK_FALSE(std::filesystem::exists(lock));
  CHECK(state_with(lock) == CompileState::done);
}

TEST_CASE("a result that another process stored in the meantime is not compiled again") {
  const ScratchFolder folder;
  const std::string lock = folder / "flight.lock";
  NvrtcCompiler compiler(fake_options());
  TestModule module("// fake: count " + (folder / "count") + "\n" + kKernel);
  CompileGuard guard;
  guard.lock_path = lock;
  guard.still_needed = [] { return false; };
  const auto outcome = module.run(compiler, guard);
  REQUIRE(outcome);
  CHECK(outcome->state == CompileState::superseded);
  CHECK_FALSE(std::filesystem::exists(folder / "count"));
  CHECK(state_with(lock) == CompileState::done);
}

TEST_CASE("a failed compile releases its lock") {
  const ScratchFolder folder;
  NvrtcCompiler compiler(fake_options());
  for (const char* order : {"error no", "segv", "garbage"}) {
    TestModule module(std::string("// fake: ") + order + "\n" + kKernel);
    CompileGuard guard;
    guard.lock_path = folder / "flight.lock";
    CHECK_FALSE(module.run(compiler, guard));
    CHECK(gets_free(folder / "flight.lock"));
  }
}

TEST_CASE("a compile goes on without a lock where locks do not work") {
  CHECK(state_with("/nowhere/flight.lock") == CompileState::done);
}

TEST_CASE("a lock file that a killed holder left behind is taken over") {
  const ScratchFolder folder;
  const std::string lock = folder.write("flight.lock", "pid 1 since ever compiling nothing\n");
  CHECK(state_with(lock) == CompileState::done);
}

TEST_CASE("an idle worker is used again, and one that has ended is not") {
  WorkerPool pool;
  auto worker = WorkerProcess::start({kTestWorker, kFakeNvrtc, "", 0, 2s}, {});
  REQUIRE(worker);
  const pid_t pid = (*worker)->pid();
  pool.put_back(std::move(*worker), 2);
  std::unique_ptr<WorkerProcess> again = pool.take();
  REQUIRE(again != nullptr);
  CHECK(again->pid() == pid);
  CHECK(pool.take() == nullptr);
  pool.put_back(std::move(again), 2);
  REQUIRE(becomes_true([&] { return has_ended(pid); }));
  CHECK(becomes_true([&] {  // its second thread may take a moment longer than its first
    std::unique_ptr<WorkerProcess> taken = pool.take();
    const bool is_none = taken == nullptr;
    pool.put_back(std::move(taken), 2);
    return is_none;
  }));
}

TEST_CASE("a worker's heap uses huge pages if the kernel supports them") {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) {
    MESSAGE("this kernel has none");
    return;
  }
  auto worker = WorkerProcess::start({kPlainWorker, kFakeNvrtc, "", 0, 5s}, {});
  REQUIRE(worker);
  std::ifstream maps("/proc/" + std::to_string((*worker)->pid()) + "/smaps");
  bool in_heap = false;
  bool large = false;
  for (std::string line; std::getline(maps, line);) {
    const bool begins = line.find(" kB") == std::string::npos && line.find('-') < 20;
    in_heap = begins ? line.find("[heap]") != std::string::npos : in_heap;
    large = large ||
            (in_heap && line.rfind("VmFlags:", 0) == 0 && line.find(" hg") != std::string::npos);
  }
  CHECK(large);
}

TEST_CASE("no more idle workers are kept than the limit") {
  WorkerPool pool;
  for (int i = 0; i < 2; ++i) {
    auto worker = WorkerProcess::start({kTestWorker, kFakeNvrtc, "", 0, 5s}, {});
    REQUIRE(worker);
    pool.put_back(std::move(*worker), 1);
  }
  CHECK(pool.take() != nullptr);
  CHECK(pool.take() == nullptr);
}
