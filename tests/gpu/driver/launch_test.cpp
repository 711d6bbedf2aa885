// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <thread>

#include <doctest/doctest.h>

#include "gpu/support/test_loader.hpp"

namespace cukiln {
namespace {

using testing::Device;
using testing::DeviceBuffer;
using testing::TestLoader;
using testing::TestStream;

constexpr const char* kScale = R"(
extern "C" __global__ void scale(float* x, float factor, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= factor;
})";

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

template <class R>
void require(const R& result) {
  REQUIRE_MESSAGE(result, result.error().message());
}

TEST_CASE("A typed launch computes what the kernel says") {
  TestLoader loader;
  const auto scale = TypedKernel<float*, float, int>::create(loader.get("scale", kScale));
  require(scale);
  std::vector<float> host(10'000);
  std::iota(host.begin(), host.end(), 0.0f);
  DeviceBuffer<float> x(host);
  TestStream own;
  for (const Stream stream : {Stream(own), Stream(nullptr)}) {
    require(scale->launch(stream, {{40}, {256}}, x.data(), 2.0f, 10'000));
    Device::first().synchronize();
  }
  const std::vector<float> out = x.download();
  CHECK(out[1] == 4.0f);
  CHECK(out[9'999] == 39'996.0f);
}

TEST_CASE("The driver's parameter sizes refuse wrong argument types") {
  TestLoader loader;
  const Kernel kernel = loader.get("scale", kScale);
  CHECK(kernel.parameter_count() == 3);
  CHECK(kernel.parameter_bytes(0) == 8);
  CHECK(kernel.parameter_bytes(1) == 4);
  const auto wrong = TypedKernel<float*, double, int>::create(kernel);
  REQUIRE(!wrong);
  CHECK(wrong.error().code() == ErrorCode::invalid_argument);
  CHECK(!TypedKernel<float*, float>::create(kernel));
}

TEST_CASE("Structures are passed by value with their own size") {
  struct Shape {
    int rows;
    int columns;
    long long stride;
  };
  TestLoader loader;
  const auto kernel = TypedKernel<Shape, long long*>::create(loader.get("area", R"(
struct Shape { int rows; int columns; long long stride; };
extern "C" __global__ void area(Shape s, long long* out) { *out = s.rows * s.stride + s.columns; })"));
  require(kernel);
  DeviceBuffer<long long> out(1);
  require(kernel->launch(nullptr, {}, Shape{3, 4, 100}, out.data()));
  CHECK(out.download()[0] == 304);
}

TEST_CASE("After loading, the code is on the device, whatever CUDA_MODULE_LOADING says") {
  auto& gpu = Device::first();
  if (gpu.call.cuFuncIsLoaded == nullptr) {
    MESSAGE("skipped: the driver is older than 12.4");
    return;
  }
  TestLoader loader;
  CUfunction function = nullptr;
  const Kernel kernel = loader.get("scale", kScale);
  gpu.check(gpu.api()->call.cuKernelGetFunction(&function, kernel.native()), "cuKernelGetFunction");
  int state = -1;
  gpu.check(gpu.call.cuFuncIsLoaded(&state, function), "cuFuncIsLoaded");
  CHECK(state == 1);
}

TEST_CASE("A kernel tells what it uses, and how many of its blocks fit on an SM") {
  TestLoader loader;
  const Kernel kernel = loader.get("tile", R"(
extern "C" __global__ void tile(float* x) {
  __shared__ float row[4096];
  row[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = row[blockDim.x - 1 - threadIdx.x];
})");
  const auto used = kernel.attributes(0);
  require(used);
  CHECK(used->registers > 0);
  CHECK(used->max_block_threads == 1024);
  CHECK(used->static_shared_bytes == 16'384);
  const auto small = kernel.max_blocks_per_sm(0, 64);
  const auto large = kernel.max_blocks_per_sm(0, 64, 30'000);
  require(small);
  require(large);
  CHECK(*small > *large);  // by 16 KiB, and by 46 KiB
  CHECK(*large >= 1);
}

TEST_CASE("Dynamic shared memory above 48 KiB works once it is reserved") {
  constexpr std::uint32_t kBytes = 100'000;
  TestLoader loader;
  const Kernel kernel = loader.get("reverse", R"(
extern "C" __global__ void reverse(int* x, int n) {
  extern __shared__ int tile[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = tile[n - 1 - i];
})");
  const auto reverse = TypedKernel<int*, int>::create(kernel);
  require(reverse);
  std::vector<int> host(kBytes / 4);
  std::iota(host.begin(), host.end(), 0);
  DeviceBuffer<int> x(host);
  const auto count = static_cast<int>(host.size());

  const auto refused = reverse->launch(nullptr, {{1}, {256}, kBytes}, x.data(), count);
  REQUIRE(!refused);
  CHECK(refused.error().code() == ErrorCode::driver);
  CHECK(contains(refused.error().message(), "reserve_shared"));

  require(kernel.reserve_shared(kBytes));
  require(kernel.reserve_shared(1));  // does not lower it
  require(reverse->launch(nullptr, {{1}, {256}, kBytes}, x.data(), count));
  CHECK(x.download()[0] == count - 1);

  const auto too_much = kernel.reserve_shared(4 << 20);
  REQUIRE(!too_much);
  CHECK(contains(too_much.error().message(), "at most"));
}

TEST_CASE("A block with too many threads is refused with both numbers") {
  TestLoader loader;
  const auto scale = TypedKernel<float*, float, int>::create(loader.get("scale", kScale));
  require(scale);
  const auto launched = scale->launch(nullptr, {{1}, {2048}}, nullptr, 1.0f, 0);
  REQUIRE(!launched);
  CHECK(contains(launched.error().message(), "2048"));
  CHECK(contains(launched.error().message(), "at most 1024"));
}

TEST_CASE("Blocks of a cluster see their rank in it") {
  if (Device::first().capability() < 90) {
    MESSAGE("skipped: clusters need compute capability 9.0");
    return;
  }
  TestLoader loader;
  const auto ranks = TypedKernel<int*>::create(loader.get("ranks", R"(
extern "C" __global__ void ranks(int* out) {
  int rank, size;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  out[blockIdx.x] = size * 100 + rank;
})"));
  require(ranks);
  DeviceBuffer<int> out(8);
  LaunchConfig config{{8}, {32}};
  config.cluster = {4, 1, 1};
  require(ranks->launch(nullptr, config, out.data()));
  CHECK(out.download() == std::vector<int>{400, 401, 402, 403, 400, 401, 402, 403});
  config.cluster = {3, 1, 1};  // does not divide the grid
  CHECK(!ranks->launch(nullptr, config, out.data()));
}

TEST_CASE("A cooperative launch has all blocks resident, and one that cannot is refused") {
  TestLoader loader;
  const auto meet = TypedKernel<unsigned*, unsigned*>::create(loader.get("meet", R"(
extern "C" __global__ void meet(unsigned* arrived, unsigned* seen) {
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1u);
    while (atomicAdd(arrived, 0u) < gridDim.x) {}
    seen[blockIdx.x] = *((volatile unsigned*)arrived);
  }
})"));
  require(meet);
  const auto blocks = static_cast<unsigned>(Device::first().attribute(16));  // one per SM
  DeviceBuffer<unsigned> arrived(1);
  DeviceBuffer<unsigned> seen(blocks);
  arrived.fill_bytes(0);
  LaunchConfig config{{blocks}, {1024}};
  config.cooperative = true;
  require(meet->launch(nullptr, config, arrived.data(), seen.data()));
  for (const unsigned count : seen.download()) {
    REQUIRE(count == blocks);
  }
  config.grid.x = blocks * 100;
  const auto too_large = meet->launch(nullptr, config, arrived.data(), seen.data());
  REQUIRE(!too_large);
  CHECK(contains(too_large.error().message(), "COOPERATIVE_LAUNCH_TOO_LARGE"));
}

TEST_CASE("A programmatic dependent launch still sees what its predecessor wrote") {
  if (Device::first().capability() < 90) {
    MESSAGE("skipped: programmatic launches need compute capability 9.0");
    return;
  }
  TestLoader loader;
  const auto produce = TypedKernel<int*, int>::create(loader.get("produce", R"(
extern "C" __global__ void produce(int* x, int value) {
  asm volatile("griddepcontrol.launch_dependents;");
  x[blockIdx.x * blockDim.x + threadIdx.x] = value;
})"));
  const auto consume = TypedKernel<const int*, int, int*>::create(loader.get("consume", R"(
extern "C" __global__ void consume(const int* x, int value, int* wrong) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (x[blockIdx.x * blockDim.x + threadIdx.x] != value) atomicAdd(wrong, 1);
})"));
  require(produce);
  require(consume);
  DeviceBuffer<int> x(132 * 256);
  DeviceBuffer<int> wrong(1);
  wrong.fill_bytes(0);
  Device::first().synchronize();
  TestStream stream;
  LaunchConfig dependent{{132}, {256}};
  dependent.programmatic_launch = true;
  for (int i = 0; i < 1000; ++i) {
    require(produce->launch(stream, {{132}, {256}}, x.data(), i));
    require(consume->launch(stream, dependent, x.data(), i, wrong.data()));
  }
  CHECK(wrong.download()[0] == 0);
}

TEST_CASE("One handle launches in a second context of the device, and in threads without any") {
  TestLoader loader;
  const auto fill = TypedKernel<int*, int>::create(loader.get(
      "fill", R"(extern "C" __global__ void fill(int* x, int v) { x[threadIdx.x] = v; })"));
  require(fill);
  auto& gpu = Device::first();

  CUcontext second = nullptr;
  gpu.check(gpu.call.cuCtxCreate(&second, 0, gpu.handle()), "cuCtxCreate");  // and makes it current
  testing::DevicePointer memory = 0;
  gpu.check(gpu.call.cuMemAlloc(&memory, 32 * 4), "cuMemAlloc");
  require(fill->launch(nullptr, {{1}, {32}}, reinterpret_cast<int*>(memory), 7));
  int out[32] = {};
  gpu.check(gpu.call.cuMemcpyDtoH(out, memory, sizeof out), "cuMemcpyDtoH");
  CHECK(out[31] == 7);
  gpu.check(gpu.call.cuMemFree(memory), "cuMemFree");
  gpu.check(gpu.call.cuCtxDestroy(second), "cuCtxDestroy");

  Device::first();
  DeviceBuffer<int> x(32);
  std::jthread([&] {
    const auto launched = fill->launch(nullptr, {{1}, {32}}, x.data(), 9);
    REQUIRE(!launched);
    CHECK(contains(launched.error().message(), "make a CUDA context current"));
  }).join();
}

TEST_CASE("Loading in a thread without a context uses the primary one and leaves none behind") {
  auto& gpu = Device::first();
  TestLoader loader;
  std::jthread([&] {
    gpu.call.cuCtxSetCurrent(nullptr);
    const auto kernel = loader->get(testing::module_of("scale", kScale), "scale");
    CHECK(kernel.has_value());
    CUcontext current = nullptr;
    gpu.api()->call.cuCtxGetCurrent(&current);
    CHECK(current == nullptr);
  }).join();
}

TEST_CASE("Launches from many threads at once") {
  TestLoader loader;
  const auto add = TypedKernel<unsigned*>::create(loader.get(
      "add_one", R"(extern "C" __global__ void add_one(unsigned* x) { atomicAdd(x, 1u); })"));
  require(add);
  DeviceBuffer<unsigned> count(1);
  count.fill_bytes(0);
  Device::first().synchronize();
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      Device::first();
      TestStream stream;
      for (int repeat = 0; repeat < 1000; ++repeat) {
        if (!add->launch(stream, {}, count.data())) {
          FAIL_CHECK("a launch failed");
        }
      }
      stream.synchronize();
    });
  }
  threads.clear();
  CHECK(count.download()[0] == 8000);
}

TEST_CASE("A sealed loader launches, and neither compiles nor loads") {
  TestLoader loader;
  const auto scale = TypedKernel<float*, float, int>::create(loader.get("scale", kScale));
  require(scale);
  loader->seal();
  DeviceBuffer<float> x(std::vector<float>{1, 2, 3});
  require(scale->launch(nullptr, {{1}, {32}}, x.data(), 3.0f, 3));
  CHECK(x.download() == std::vector<float>{3, 6, 9});
  CHECK(loader->get(testing::module_of("scale", kScale), "scale"));  // it is loaded already
  const auto late =
      loader->get(testing::module_of("late", R"(extern "C" __global__ void late() {})"), "late");
  REQUIRE(!late);
  CHECK(late.error().code() == ErrorCode::sealed);
}

}  // namespace
}  // namespace cukiln
