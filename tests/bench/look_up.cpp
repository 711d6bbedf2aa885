// SPDX-License-Identifier: Apache-2.0
// Finding a kernel that is ready: by a handle that was kept, by id, by name; alone and with every
// core at it; beside what one would write instead, a hash map under a mutex.

#include <benchmark/benchmark.h>

#include <cukiln/kernel_table.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

constexpr std::size_t kKernels = 64;

struct WritableTable : cukiln::KernelTable {
  using KernelTable::add;
  using KernelTable::set_name;
};

/// A table and a map of the same kernels. The kernels are never launched: only their addresses
/// count.
struct Tables {
  Tables() : states(new char[kKernels]) {
    for (std::size_t i = 0; i < kKernels; ++i) {
      const cukiln::Kernel kernel(
          reinterpret_cast<const cukiln::detail::KernelState*>(states.get() + i));
      names.push_back("quantize_nvfp4_from_buffer_" + std::to_string(i));
      handles.push_back(kernel);
      table.add(kernel);
      table.set_name(names.back(), kernel);
      map.emplace(names.back(), kernel);
    }
  }
  std::unique_ptr<char[]> states;
  std::vector<std::string> names;
  std::vector<cukiln::Kernel> handles;
  WritableTable table;
  std::mutex mutex;
  std::unordered_map<std::string, cukiln::Kernel> map;
};

Tables& tables() {
  static Tables all;
  return all;
}

void by_handle(benchmark::State& state) {
  const auto& handles = tables().handles;
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(handles[i++ % kKernels]);
  }
}

void by_id(benchmark::State& state) {
  const cukiln::KernelTable& table = tables().table;
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(table.at(i++ % kKernels));
  }
}

void by_name(benchmark::State& state) {
  const Tables& all = tables();
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(all.table.find(all.names[i++ % kKernels]));
  }
}

void mutex_and_map(benchmark::State& state) {
  Tables& all = tables();
  std::size_t i = 0;
  for (auto _ : state) {
    const std::lock_guard lock(all.mutex);
    benchmark::DoNotOptimize(all.map.find(all.names[i++ % kKernels])->second);
  }
}

void with_threads(benchmark::internal::Benchmark* benchmark) {
  benchmark->Threads(1);
  if (const unsigned cores = std::thread::hardware_concurrency(); cores > 1) {
    benchmark->Threads(static_cast<int>(cores));
  }
}

BENCHMARK(by_handle)->Apply(with_threads);
BENCHMARK(by_id)->Apply(with_threads);
BENCHMARK(by_name)->Apply(with_threads);
BENCHMARK(mutex_and_map)->Apply(with_threads);

}  // namespace

BENCHMARK_MAIN();
