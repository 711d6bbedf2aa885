// SPDX-License-Identifier: Apache-2.0
// The hot path's promise, shown by counters and by the kernel: a lookup and a launch allocate
// nothing, take no lock, make no system call, and call the driver once. A child process installs a
// seccomp filter that kills it at the first system call, after its warm-up.
//
// Not under sanitizers: they replace malloc and make system calls of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "core/driver/module.hpp"
#include "support/fake_cuda.hpp"
#include "support/refuse_processes.hpp"
#include "support/writable_kernel_table.hpp"

namespace {
thread_local long allocations = 0;
thread_local long locks = 0;
}  // namespace

// Under these names they stand before libc's, for the whole test program.
#define CUKILN_INTERPOSE extern "C" __attribute__((visibility("default")))
extern "C" void* __libc_malloc(std::size_t);
extern "C" void* __libc_calloc(std::size_t, std::size_t);
extern "C" void* __libc_realloc(void*, std::size_t);
CUKILN_INTERPOSE void* malloc(std::size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
CUKILN_INTERPOSE void* calloc(std::size_t count, std::size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}
CUKILN_INTERPOSE void* realloc(void* old, std::size_t size) {
  ++allocations;
  return __libc_realloc(old, size);
}
CUKILN_INTERPOSE int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  ++locks;
  static int (*real)(pthread_mutex_t*) =
      reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  return real(mutex);
}

namespace cukiln {
namespace {

constexpr int kRounds = 1'000'000;
constexpr int kAllocated = 11;
constexpr int kLocked = 12;
constexpr int kNotFound = 13;
constexpr int kExtraCalls = 14;
constexpr int kNoFilter = 15;

// From here on this thread dies, with its process, at any system call but write and exit_group.
void forbid_system_calls() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  if (!testing::install_filter(filter)) {
    _exit(kNoFilter);
  }
}

// The exit code of a child that runs `body`, or minus the signal that ended it.
template <class Body>
int in_child(const Body& body) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    _exit(body());
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

struct Fixture {
  Fixture() {
    const std::size_t sizes[] = {8, 4, 4};
    fake.set_parameters("scale", sizes, 3);
    auto opened = DriverApi::open(fake.path);
    REQUIRE(opened);
    api = *std::move(opened);
    auto loaded = LoadedModule::load(api, testing::fake_cubin({"scale"}), {{"scale", "scale"}},
                                     std::vector{0}, nullptr);
    REQUIRE(loaded);
    module = *std::move(loaded);
    context = fake.new_context(0);
    for (int i = 0; i < 1000; ++i) {
      names.push_back("nvfp4/a_kernel_of_some_length_" + std::to_string(i));
      table.set_name(names.back(), module->kernels().front());
      table.add(module->kernels().front());
    }
  }

  int rounds(int count) const {
    float data = 0;
    for (int i = 0; i < count; ++i) {
      const auto id = static_cast<std::size_t>(i) % names.size();
      const Kernel named = table.find(names[id]);
      const Kernel numbered = table.at(id);
      float* pointer = &data;
      float factor = 2;
      void* arguments[] = {&pointer, &factor, &i};
      LaunchConfig config{{4}, {32}};
      config.programmatic_launch = i % 2 == 1;  // both ways of launching
      if (!named.launch(nullptr, config, arguments) || !numbered) {
        return kNotFound;
      }
    }
    return 0;
  }

  testing::FakeCuda fake;
  std::shared_ptr<const DriverApi> api;
  std::shared_ptr<LoadedModule> module;
  CUcontext context = nullptr;
  testing::WritableKernelTable table;
  std::vector<std::string> names;
};

TEST_CASE_FIXTURE(Fixture,
                  "A lookup and a launch: no system call, no allocation, no lock, one call") {
  CHECK(in_child([&] {
          api->call.cuCtxPushCurrent(context);
          rounds(2);
          const auto calls = fake.calls(nullptr);
          const auto plain = fake.calls("cuLaunchKernel");
          const auto extended = fake.calls("cuLaunchKernelEx");
          forbid_system_calls();
          allocations = 0;
          locks = 0;
          if (const int failed = rounds(kRounds); failed != 0) return failed;
          if (allocations != 0) return kAllocated;
          if (locks != 0) return kLocked;
          const bool one_each = fake.calls("cuLaunchKernel") - plain == kRounds / 2 &&
                                fake.calls("cuLaunchKernelEx") - extended == kRounds / 2 &&
                                fake.calls(nullptr) - calls == kRounds;
          return one_each ? 0 : kExtraCalls;
        }) == 0);
}

TEST_CASE_FIXTURE(Fixture, "Concurrent lookups, while a thread adds: no system call") {
  CHECK(in_child([&] {
          constexpr int kThreads = 4;
          std::atomic<int> ended{0};
          std::atomic<int> result{0};
          for (int thread = 0; thread < kThreads; ++thread) {
            std::thread([&] {
              forbid_system_calls();
              allocations = 0;
              locks = 0;
              for (int i = 0; i < kRounds / 4; ++i) {
                const auto id = static_cast<std::size_t>(i) % names.size();
                if (!table.find(names[id]) || !table.at(id)) result = kNotFound;
              }
              if (allocations != 0) result = kAllocated;
              if (locks != 0) result = kLocked;
              ++ended;
              for (;;) {  // the end of a thread is a system call
              }
            }).detach();
          }
          for (int i = 0; ended < kThreads; ++i) {
            if (i < 20'000) table.set_name("more/" + std::to_string(i), module->kernels().front());
          }
          return result.load();
        }) == 0);
}

TEST_CASE("The counters count: a system call kills, allocations and locks are seen") {
  CHECK(in_child([] {
          forbid_system_calls();
          return getppid() != 0 ? 0 : 1;
        }) == -SIGSYS);
  const long allocations_before = allocations;
  const long locks_before = locks;
  testing::WritableKernelTable table;
  table.set_name("a name that does not fit into the string itself", Kernel());
  CHECK(allocations > allocations_before);
  CHECK(locks == locks_before + 1);
}

}  // namespace
}  // namespace cukiln

#endif
