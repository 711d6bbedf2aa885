// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/loader_fixture.hpp"

using namespace cukiln;

namespace {

constexpr int kThreads = 3;
constexpr int kChildren = 120;
constexpr unsigned kChildSeconds = 120;  // a child that lives as long hangs

struct Fixture : testing::LoaderFixture {
  std::string source = scratch.write("k.cu", "// fake: sleep 3\n__global__ void k() {}\n");

  ModuleSpec variant(int number) const {
    ModuleSpec module = spec(source, {{90, 'a'}});
    module.define["N"] = std::to_string(number);
    return module;
  }
};

/// Returns 0, or the number of the step that failed. `key` is that of the first compile.
int use_in_child(KernelLoader& loader, const std::vector<ModuleSpec>& modules, CacheKey& key) {
  for (const ModuleSpec& module : modules) {
    const auto compiled = loader.compile(module);
    if (!compiled || compiled->front().error) return 2;
    if (&module == &modules.front()) key = compiled->front().key;
    const auto kernel = loader.get(module, "k");
    if (!kernel) return 3;
    const auto explained = loader.explain(module, {90, 'a'});
    if (!explained || !explained->hit) return 4;
  }
  if (loader.stats().hits + loader.stats().compiles == 0) return 5;
  return loader.kernels().find("k") ? 0 : 6;
}

// In a child that was forked while another thread allocated, the allocators of GCC 12's sanitizers
// wait forever for a lock of theirs.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitizerCannotFork = true;
#else
constexpr bool kSanitizerCannotFork = false;
#endif

}  // namespace

// fault 89
TEST_CASE_FIXTURE(
    Fixture, "a child that is forked while threads work uses the loader and waits for no thread" *
                 doctest::skip(kSanitizerCannotFork)) {
  const Opened opened = open(fake_options());
  std::atomic<int> next{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        const ModuleSpec module = variant(next++);
        static_cast<void>(opened->compile(module));
        static_cast<void>(opened->get(module));
        static_cast<void>(opened->explain(module, {90, 'a'}));
        static_cast<void>(opened->stats());
      }
    });
  }
  int hung = 0, failed = 0, wrong = 0;
  for (int c = 0; c < kChildren; ++c) {
    std::this_thread::sleep_for(std::chrono::milliseconds(c % 7));  // forks at various moments
    // The modules that the threads work on now, and the next.
    const int now = next.load();
    std::vector<ModuleSpec> modules;
    for (int number = std::max(now - kThreads, 0); number <= now; ++number) {
      modules.push_back(variant(number));
    }
    int answer[2];
    REQUIRE(::pipe(answer) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::alarm(kChildSeconds);
      CacheKey key;
      const int status = use_in_child(opened.loader, modules, key);
      const std::string text = key.hex();
      static_cast<void>(!::write(answer[1], text.data(), text.size()));
      ::_exit(status);
    }
    ::close(answer[1]);
    char text[129] = {};
    static_cast<void>(!::read(answer[0], text, sizeof text - 1));
    ::close(answer[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status)) {
      ++hung;
      CHECK(WTERMSIG(status) == SIGALRM);
    } else if (WEXITSTATUS(status) != 0) {
      CAPTURE(WEXITSTATUS(status));
      CHECK(false);
      ++failed;
    } else {
      const auto here = opened->compile(modules.front());
      wrong += here && here->front().key.hex() == text ? 0 : 1;
    }
    if (hung > 1) break;
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(hung == 0);
  CHECK(failed == 0);
  CHECK(wrong == 0);
}
