// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <limits>

#include <doctest/doctest.h>

#include "core/driver/cuda_types.hpp"
#include "gpu/support/test_loader.hpp"
#include "support/writable_kernel_table.hpp"

namespace cukiln {
namespace {

using testing::Device;
using testing::DeviceBuffer;
using testing::TestLoader;
using testing::TestStream;

constexpr int kBatch = 400;  // below the depth of the launch queue, so that no launch waits
constexpr int kRounds = 400;

// The median time of one launch, in nanoseconds, of several ways to launch, taken in turns so that
// what disturbs the machine disturbs all.
template <std::size_t N, class Ways>
std::array<double, N> median_ns(const TestStream& stream, const Ways& launch_in_way) {
  std::array<std::vector<double>, N> times;
  for (int round = -10; round < kRounds; ++round) {
    for (std::size_t k = 0; k < N; ++k) {
      const std::size_t way = (k + static_cast<std::size_t>(round + 10)) % N;
      stream.synchronize();
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kBatch; ++i) {
        launch_in_way(way);
      }
      const std::chrono::duration<double, std::nano> took =
          std::chrono::steady_clock::now() - start;
      if (round >= 0) {
        times[way].push_back(took.count() / kBatch);
      }
    }
  }
  std::array<double, N> medians;
  for (std::size_t way = 0; way < N; ++way) {
    std::nth_element(times[way].begin(), times[way].begin() + kRounds / 2, times[way].end());
    medians[way] = times[way][kRounds / 2];
  }
  return medians;
}

TEST_CASE("A launch costs what the driver's costs") {
  TestLoader loader;
  const Kernel kernel = loader.get(
      "nop", R"(extern "C" __global__ void nop(float* x, float f, int n) { if (n < 0) *x = f; })");
  const auto typed = TypedKernel<float*, float, int>::create(kernel);
  REQUIRE(typed);
  auto& gpu = Device::first();
  const DriverFunctions& call = gpu.api()->call;
  CUfunction function = nullptr;
  gpu.check(call.cuKernelGetFunction(&function, kernel.native()), "cuKernelGetFunction");
  const auto as_function = reinterpret_cast<CUfunction>(kernel.native());
  DeviceBuffer<float> x(1);
  TestStream stream;
  CUresult failed = kCudaSuccess;

  float* pointer = x.data();
  float factor = 2;
  int count = 0;
  void* arguments[] = {&pointer, &factor, &count};
  const auto medians = median_ns<5>(stream, [&](std::size_t way) {
    CUresult result = kCudaSuccess;
    switch (way) {
      case 0:
        result = call.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr);
        break;
      case 1: result = typed->launch(stream, {{1}, {32}}, pointer, factor, count) ? 0 : 1; break;
      case 2: result = kernel.launch(stream, {{1}, {32}}, arguments) ? 0 : 1; break;
      case 3:
        result = call.cuLaunchKernel(as_function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr);
        break;
      default: {
        const LaunchConfiguration configuration{1, 1, 1, 32, 1, 1, 0, stream, nullptr, 0};
        result = call.cuLaunchKernelEx(&configuration, function, arguments, nullptr);
      }
    }
    failed |= result;
  });
  CHECK(failed == kCudaSuccess);
  std::printf(
      "launch, ns: raw %.0f, typed %.0f, untyped %.0f, raw by CUkernel %.0f, raw Ex %.0f; "
      "typed/raw %.4f (goal 1.02)\n",
      medians[0], medians[1], medians[2], medians[3], medians[4], medians[1] / medians[0]);
  WARN(medians[1] / medians[0] <= 1.02);
  CHECK(medians[1] / medians[0] <= 1.10);
}

TEST_CASE("A lookup costs nanoseconds beside a launch's microseconds") {
  TestLoader loader;
  const Kernel kernel = loader.get("nop", R"(extern "C" __global__ void nop() {})");
  testing::WritableKernelTable table;
  std::vector<std::string> names;
  for (int i = 0; i < 64; ++i) {
    names.push_back("family/kernel_" + std::to_string(i));
    table.set_name(names.back(), kernel);
    table.add(kernel);
  }
  const auto ns_each = [&](const auto& look_up) {
    constexpr int kCount = 4'000'000;
    double best = std::numeric_limits<double>::max();
    for (int repeat = 0; repeat < 5; ++repeat) {
      std::size_t found = 0;
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kCount; ++i) {
        found += static_cast<bool>(look_up(static_cast<std::size_t>(i) % 64)) ? 1 : 0;
      }
      const std::chrono::duration<double, std::nano> took =
          std::chrono::steady_clock::now() - start;
      REQUIRE(found == kCount);
      best = std::min(best, took.count() / kCount);
    }
    return best;
  };
  const double by_id = ns_each([&](std::size_t i) { return table.at(i); });
  const double by_name = ns_each([&](std::size_t i) { return table.find(names[i]); });
  std::printf("lookup, ns: by id %.2f (goal 2), by name %.2f (goal 20)\n", by_id, by_name);
}

}  // namespace
}  // namespace cukiln
