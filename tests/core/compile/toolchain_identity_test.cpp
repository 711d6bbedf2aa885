// SPDX-License-Identifier: Apache-2.0
#include "core/compile/toolchain_identity.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "core/compile/nvrtc_compiler.hpp"
#include "support/compile_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using namespace std::chrono_literals;

namespace {

const std::string kKernel = "extern \"C\" __global__ void k(int*) {}\n";

/// Waits until the file is so old that its record is used.
void let_age(const std::string& path) {
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK(becomes_true([&] { return std::time(nullptr) >= status.st_ctime + 4; }));
}

}  // namespace

TEST_CASE("NVRTC's version and digest are cached, and then no worker is started") {
  let_age(kFakeNvrtc);
  StatCache stats;
  NvrtcCompilerOptions options = fake_options();
  options.stats = &stats;
  const auto first = NvrtcCompiler(options).toolchain();
  REQUIRE(first);
  CHECK(first->version == "13.0.99");
  options.worker = "/nowhere/worker";
  const auto second = NvrtcCompiler(options).toolchain();
  REQUIRE(second);
  CHECK(second->version == first->version);
  CHECK(second->content == first->content);
  const auto targets = NvrtcCompiler(options).targets();
  REQUIRE(targets);
  CHECK(targets->size() == 13 + 6 + 5);  // plain, from 90 on also a, from 100 on also f
  CHECK(targets->back() == Target{121, 'f'});
}

TEST_CASE("the hint of upcoming compiles starts that many workers, up to the limit") {
  const ScratchFolder folder;
  const std::string started = folder / "started";
  NvrtcCompilerOptions options = fake_options();
  options.worker = counted_worker(folder, started);
  options.budget = std::make_shared<CompileBudget>(CompileBudget::Limits{3, 64ull << 30});
  NvrtcCompiler compiler(options);
  compiler.hint_upcoming(7);
  REQUIRE(compiler.toolchain());
  CHECK(lines_in(started) == 3);
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      TestModule module("// fake: count " + (folder / "compiling") + "\n// fake: wait " +
                        (folder / "go") + "\n" + kKernel);
      good += module.run(compiler) ? 1 : 0;
    });
  }
  CHECK(becomes_true([&] { return read_all(folder / "compiling").size() == 3; }));
  folder.write("go", "");
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(good == 3);
  CHECK(lines_in(started) == 3);  // each compile found an idle worker
}

TEST_CASE("the probe succeeds if only the first of its workers starts") {
  const ScratchFolder folder;
  const std::string started = folder / "started";
  NvrtcCompilerOptions options = fake_options();
  options.worker = counted_worker(folder, started,
                                  "while [ $(wc -l <'" + started +
                                      "') -lt 3 ]; do sleep 0.01; done\n"
                                      "[ $$ = $(sort -n '" +
                                      started + "' | head -n 1) ] || exit 1");
  options.budget = std::make_shared<CompileBudget>(CompileBudget::Limits{3, 64ull << 30});
  NvrtcCompiler compiler(options);
  compiler.hint_upcoming(3);
  CHECK(compiler.toolchain());
  TestModule module(kKernel);
  must(module.run(compiler));
  CHECK(lines_in(started) == 3);
}

TEST_CASE("of several processes one probes NVRTC, and the others wait for its record") {
  let_age(kFakeNvrtc);
  const ScratchFolder folder;
  const std::string started = folder / "started";
  StatCache stats;
  NvrtcCompilerOptions options = fake_options();
  options.stats = &stats;
  options.lock_folder = folder.path();
  int saved = 0;
  options.save_stats = [&] { ++saved; };
  options.worker = counted_worker(folder, started, until_exists(folder / "go"));
  NvrtcCompiler first(options);
  NvrtcCompiler second(options);
  std::thread measuring([&] { CHECK(first.toolchain()); });
  REQUIRE(becomes_true([&] { return lines_in(started) == 1; }));
  std::atomic<bool> known = false;
  std::thread waiting([&] {
    CHECK(second.toolchain());
    known = true;
  });
  std::this_thread::sleep_for(300ms);  // time in which it must not become known
  CHECK_FALSE(known);
  folder.write("go", "");
  measuring.join();
  waiting.join();
  CHECK(lines_in(started) == 1);
  CHECK(saved == 1);
}

TEST_CASE("a process that dies while it probes NVRTC does not block others") {
  let_age(kFakeNvrtc);
  const ScratchFolder folder;
  const std::string started = folder / "started";
  NvrtcCompilerOptions options = fake_options();
  options.lock_folder = folder.path();
  options.worker = counted_worker(folder, started, until_exists(folder / "go"));
  const pid_t owner = ::fork();
  if (owner == 0) {
    ::_exit(NvrtcCompiler(options).toolchain() ? 0 : 1);
  }
  REQUIRE(becomes_true([&] { return lines_in(started) == 1; }));
  StatCache stats;
  options.stats = &stats;
  NvrtcCompiler next(options);
  std::thread waiting([&] { CHECK(next.toolchain()); });
  std::this_thread::sleep_for(200ms);  // time in which no second worker may start
  CHECK(lines_in(started) == 1);
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  CHECK(becomes_true([&] { return lines_in(started) == 2; }));
  folder.write("go", "");
  waiting.join();
}

TEST_CASE("the cached record of an unobserved NVRTC says so") {
  let_age(kUnobservedNvrtc);
  StatCache stats;
  NvrtcCompilerOptions options = fake_options(kUnobservedNvrtc);
  options.stats = &stats;
  REQUIRE(NvrtcCompiler(options).toolchain());
  const auto again = NvrtcCompiler(options).identity();
  CHECK_FALSE(again->observed);
  CHECK(again->toolchain.version == "13.0.99");
}

namespace {

/// An NVRTC that a compiler has identified, and that is removed since. No worker has it open.
struct RemovedNvrtc {
  const ScratchFolder folder;
  const std::string library = folder / "libnvrtc.so.13";
  NvrtcCompiler compiler{options()};
  Result<Toolchain> before = compiler.toolchain();

  RemovedNvrtc() {
    REQUIRE(before);
    const auto worker = static_cast<pid_t>(std::stol(read_all(folder / "started")));
    REQUIRE(becomes_true([&] { return has_ended(worker); }));
    std::filesystem::remove(library);
  }
  NvrtcCompilerOptions options() const {
    std::filesystem::copy_file(kFakeNvrtc, library);
    NvrtcCompilerOptions options = fake_options(library.c_str());
    options.worker = counted_worker(folder, folder / "started");
    options.budget = std::make_shared<CompileBudget>(CompileBudget::Limits{1, 64ull << 30});
    options.worker_idle = 1s;
    return options;
  }
};

}  // namespace

// fault 48
TEST_CASE_FIXTURE(RemovedNvrtc, "an NVRTC that is replaced while the process runs is noticed") {
  std::filesystem::copy_file(kUnobservedNvrtc, library);
  TestModule module(kKernel);
  module.request.toolchain = *before;
  auto outcome = module.run(compiler);
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().code() == ErrorCode::incompatible);
  const auto after = compiler.toolchain();
  REQUIRE(after);
  CHECK(after->content != before->content);
}

// fault 346
TEST_CASE_FIXTURE(RemovedNvrtc,
                  "an NVRTC that is replaced by one that does not start is searched again") {
  folder.write("libnvrtc.so.13", "not a library");
  TestModule module(kKernel);
  module.request.toolchain = *before;
  auto outcome = module.run(compiler);
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().code() == ErrorCode::incompatible);
  std::filesystem::remove(library);
  std::filesystem::copy_file(kUnobservedNvrtc, library);
  const auto after = compiler.toolchain();
  REQUIRE(after);
  CHECK(after->content != before->content);
  module.request.toolchain = *after;
  must(module.run(compiler));
}
