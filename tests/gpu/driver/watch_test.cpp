// SPDX-License-Identifier: Apache-2.0
// KernelLoader::watch on a GPU: kernels are edited while they are launched.
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "gpu/support/device.hpp"
#include "support/scratch.hpp"
#include "support/wait.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/settings.hpp>

namespace cukiln {
namespace {

using testing::Device;
using testing::DeviceBuffer;
using testing::TestStream;

constexpr int kElements = 4096;
constexpr std::uint32_t kShared = 100'000;  // above the default limit of 48 KiB

struct Fixture {
  testing::ScratchFolder scratch;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Event> reloads;
  std::optional<Store> store;
  std::optional<KernelLoader> loader;

  Fixture() {
    Device::first();
    auto settings = Settings::load();
    REQUIRE_MESSAGE(settings, settings.error().message());
    settings->store.memory_only = true;
    settings->store.system_directory.clear();
    settings->loader.events = [this](const Event& event) {
      if (event.kind == EventKind::reload) {
        const std::lock_guard lock(mutex);
        reloads.push_back(event);
        changed.notify_all();
      }
    };
    auto opened = Store::open(settings->store);
    REQUIRE_MESSAGE(opened, opened.error().message());
    store = *std::move(opened);
    auto created = KernelLoader::create(*store, settings->loader);
    REQUIRE_MESSAGE(created, created.error().message());
    loader = *std::move(created);
  }
  Kernel get(const std::string& path) {
    ModuleSpec spec;
    spec.sources = {SourceFile{path}};
    auto kernel = loader->get(spec);
    REQUIRE_MESSAGE(kernel, kernel.error().message(), "\n", kernel.error().log());
    return *kernel;
  }
  /// The next reload.
  Event next() {
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, testing::kTestTimeout, [&] { return !reloads.empty(); }));
    const Event event = reloads.front();
    reloads.erase(reloads.begin());
    return event;
  }
  /// Saves a file as editors do: it is whole at each moment.
  void save(const std::string& name, const std::string& text) const {
    std::filesystem::rename(scratch.write(".saved", text), scratch / name);
  }
  int attribute(const Kernel& kernel, int id) const {
    const Device& gpu = Device::first();
    int value = -1;
    gpu.check(gpu.api()->call.cuKernelGetAttribute(&value, id, kernel.native(), gpu.handle()),
              "cuKernelGetAttribute");
    return value;
  }
};

std::string factor_header(int factor) {
  return "constexpr int kFactor = " + std::to_string(factor) + ";\n";
}

// Goes through dynamic shared memory, so that a launch fails without the limit that was reserved.
constexpr const char* kSource = R"(
#include "factor.cuh"
extern "C" __global__ void apply(int* out, int n) {
  extern __shared__ int staged[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) staged[i] = kFactor * i;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = staged[i];
}
)";

}  // namespace

TEST_CASE_FIXTURE(Fixture, "watch: each launch computes with one version, and soon with the edit") {
  scratch.write("factor.cuh", factor_header(1));
  const std::string source = scratch.write("apply.cu", kSource);
  const auto apply = TypedKernel<int*, int>::create(get(source));
  REQUIRE(apply);
  REQUIRE(apply->untyped().reserve_shared(kShared));
  REQUIRE(Device::first().api()->call.cuKernelSetAttribute(
              kKernelNonPortableCluster, 1, apply->untyped().native(), Device::first().handle()) ==
          kCudaSuccess);
  const auto watch = loader->watch();
  REQUIRE_MESSAGE(watch, watch.error().message());

  std::atomic<bool> stop{false};
  std::atomic<long> launches{0}, mixed{0}, failed{0};
  std::vector<std::thread> threads;
  const auto factor_of_launch = [&](Stream stream, const DeviceBuffer<int>& out) {
    const auto launched = apply->launch(stream, {{1}, {256}, kShared}, out.data(), kElements);
    failed += launched ? 0 : 1;
    const std::vector<int> host = out.download();
    const int factor = host[1];
    for (int i = 0; i < kElements; ++i) {
      mixed += host[static_cast<std::size_t>(i)] == factor * i ? 0 : 1;
    }
    ++launches;
    return factor;
  };
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      Device::first();
      TestStream stream;
      const DeviceBuffer<int> out(kElements);
      while (!stop) {
        const int factor = factor_of_launch(stream, out);
        mixed += factor >= 1 && factor <= 12 ? 0 : 1;
      }
    });
  }
  const DeviceBuffer<int> out(kElements);
  for (int factor = 2; factor <= 12; ++factor) {
    save("factor.cuh", factor_header(factor));
    const Event event = next();
    INFO(event.reason);
    CHECK_FALSE(event.failed);
    CHECK(factor_of_launch(nullptr, out) == factor);
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(mixed == 0);
  CHECK(failed == 0);
  CHECK(attribute(apply->untyped(), kKernelNonPortableCluster) == 1);
  MESSAGE(launches.load(), " launches while 11 edits were reloaded");
}

TEST_CASE_FIXTURE(Fixture, "watch: a mistake, or other parameters, keep the kernel that was") {
  scratch.write("factor.cuh", factor_header(5));
  const std::string source = scratch.write("apply.cu", kSource);
  const auto apply = TypedKernel<int*, int>::create(get(source));
  REQUIRE(apply);
  const auto watch = loader->watch();
  REQUIRE(watch);
  const DeviceBuffer<int> out(8);
  const auto launched = [&] {
    REQUIRE(apply->launch(nullptr, {{1}, {32}, 64}, out.data(), 8));
    return out.download()[1];
  };
  save("factor.cuh", "constexpr int kFactor = undefined;\n");
  Event event = next();
  CHECK(event.failed);
  CHECK(event.reason.find("factor.cuh(1): error") != std::string::npos);
  CHECK(launched() == 5);
  save("apply.cu", std::string("__device__ int unused;\n") +
                       "extern \"C\" __global__ void apply(int* out) { *out = 0; }\n");
  event = next();
  CHECK(event.failed);
  CHECK(event.reason.find("apply has parameters of 8 bytes now; expected 8, 4 bytes") !=
        std::string::npos);
  CHECK(launched() == 5);
  save("factor.cuh", factor_header(7));
  save("apply.cu", kSource);
  do {  // the header may be seen first
    event = next();
  } while (event.failed);
  CHECK(launched() == 7);
}

TEST_CASE_FIXTURE(Fixture, "watch: a cluster that the source had, and has no more, is not kept") {
  if (Device::first().capability() < 90) {
    MESSAGE("skipped: no clusters before compute capability 9.0");
    return;
  }
  const std::string kernel = "(int* out) { *out = 1; }\n";
  const std::string source =
      scratch.write("k.cu", "extern \"C\" __global__ void __cluster_dims__(2, 1, 1) k" + kernel);
  const Kernel k = get(source);
  CHECK(attribute(k, kKernelClusterWidth) == 2);
  const auto watch = loader->watch();
  REQUIRE(watch);
  save("k.cu", "extern \"C\" __global__ void k" + kernel);
  CHECK_FALSE(next().failed);
  CHECK(attribute(k, kKernelClusterWidth) == 0);
}

}  // namespace cukiln
