// SPDX-License-Identifier: Apache-2.0
// What a store costs: opening, a checked hit, a miss, a put, with few entries and with many.
//
//   cukiln_bench_store --benchmark_filter=Get
//
// Every get is of another key, so that nothing is in SQLite's cache because it was just asked for.
#include <benchmark/benchmark.h>
#include <time.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "core/store/sqlite_store.hpp"
#include "core/store/tiered_store.hpp"
#include "support/store_entries.hpp"

namespace cukiln::testing {
namespace {

constexpr std::size_t kCubinBytes = 20'000;

/// A filled store, made once per size and page size.
struct Filled {
  ScratchFolder folder;
  std::vector<CacheKey> keys;
  std::vector<RequestDigest> requests;
  std::vector<std::string> canonicals;
  SqliteStoreOptions options;

  Filled(std::int64_t entries, int page_bytes) {
    options.directory = folder / "store";
    options.page_bytes = page_bytes;
    options.max_bytes = 1ull << 40;
    const auto store = *SqliteStore::open(options);
    for (std::int64_t i = 0; i < entries; ++i) {
      const StoreEntry entry = make_entry(static_cast<std::uint64_t>(i), {kCubinBytes, 0, 20});
      keys.push_back(entry.key);
      requests.push_back(entry.request);
      canonicals.push_back(entry.request_canonical);
      if (!store->put(entry)) {
        std::abort();
      }
    }
    std::shuffle(keys.begin(), keys.end(), std::mt19937(1));
  }
};

Filled& filled(std::int64_t entries, int page_bytes = 4096) {
  static std::map<std::pair<std::int64_t, int>, std::unique_ptr<Filled>> all;
  auto& one = all[{entries, page_bytes}];
  if (!one) {
    one = std::make_unique<Filled>(entries, page_bytes);
  }
  return *one;
}

void Get(benchmark::State& state) {
  Filled& data = filled(state.range(0), static_cast<int>(state.range(1)));
  const auto store = *SqliteStore::open(data.options);
  std::size_t next = 0;
  for (auto _ : state) {
    const auto found = store->get(data.keys[next++ % data.keys.size()]);
    if (!found || !*found) {
      state.SkipWithError("not found");
      break;
    }
  }
}
BENCHMARK(Get)->Args({100, 4096})->Args({100, 8192})->Args({100, 16384});
BENCHMARK(Get)->Args({20'000, 4096})->Args({20'000, 8192})->Args({20'000, 16384});

/// As a fresh process does it: nothing in SQLite's cache, each key once. Time is per get.
void FirstGets(benchmark::State& state) {
  constexpr std::size_t kGets = 64;
  Filled& data = filled(state.range(0), static_cast<int>(state.range(1)));
  std::size_t next = 0;
  for (auto _ : state) {
    auto store = *SqliteStore::open(data.options);
    static_cast<void>(store->get(data.keys[next++ % data.keys.size()]));  // opens the connection
    timespec before{}, after{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    for (std::size_t i = 0; i < kGets; ++i) {
      benchmark::DoNotOptimize(store->get(data.keys[next++ % data.keys.size()]));
    }
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    state.SetIterationTime((static_cast<double>(after.tv_sec - before.tv_sec) +
                            static_cast<double>(after.tv_nsec - before.tv_nsec) * 1e-9) /
                           kGets);
  }
}
BENCHMARK(FirstGets)
    ->Args({100, 4096})
    ->Args({20000, 4096})
    ->Args({100, 8192})
    ->Args({20000, 8192})
    ->Args({100, 16384})
    ->Args({20000, 16384})
    ->UseManualTime()
    ->Iterations(300);

void FirstGetsAmongMany(benchmark::State& state) { FirstGets(state); }
BENCHMARK(FirstGetsAmongMany)->Args({100'000, 4096})->UseManualTime()->Iterations(300);

void FindSets(benchmark::State& state) {
  Filled& data = filled(state.range(0));
  const auto store = *SqliteStore::open(data.options);
  std::size_t next = 0;
  for (auto _ : state) {
    const std::size_t at = next++ % data.requests.size();
    benchmark::DoNotOptimize(store->find_sets(data.requests[at], data.canonicals[at]));
  }
}
BENCHMARK(FindSets)->Arg(100)->Arg(20'000);

void GetAbsent(benchmark::State& state) {
  Filled& data = filled(20'000);
  const auto store = *SqliteStore::open(data.options);
  const CacheKey absent = make_entry(1, {100, 99}).key;
  for (auto _ : state) {
    benchmark::DoNotOptimize(store->get(absent));
  }
}
BENCHMARK(GetAbsent);

void OpenAndFirstGet(benchmark::State& state) {
  Filled& data = filled(state.range(0));
  std::size_t next = 0;
  for (auto _ : state) {
    auto store = *SqliteStore::open(data.options);
    const auto found = store->get(data.keys[next++ % data.keys.size()]);
    if (!found || !*found) {
      state.SkipWithError("not found");
      break;
    }
    state.PauseTiming();  // closing writes the use, which a start does not wait for
    store.reset();
    state.ResumeTiming();
  }
}
BENCHMARK(OpenAndFirstGet)->Arg(100)->Arg(20'000);

void Put(benchmark::State& state) {
  const ScratchFolder folder;
  SqliteStoreOptions options;
  options.directory = folder / "store";
  options.page_bytes = static_cast<int>(state.range(0));
  const auto store = *SqliteStore::open(options);
  std::uint64_t number = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const StoreEntry entry = make_entry(number++, {kCubinBytes, 0, 20});
    state.ResumeTiming();
    if (!store->put(entry)) {
      state.SkipWithError("not stored");
      break;
    }
  }
}
BENCHMARK(Put)->Arg(4096)->Arg(8192)->Arg(16384);

void GetFromMemory(benchmark::State& state) {
  TieredStore::Options options;
  options.store.memory_only = true;
  const auto store = *TieredStore::open(options);
  const StoreEntry entry = make_entry(1, {kCubinBytes, 0, 20});
  static_cast<void>(store->put(entry));
  for (auto _ : state) {
    benchmark::DoNotOptimize(store->get(entry.key));
  }
}
BENCHMARK(GetFromMemory);

}  // namespace
}  // namespace cukiln::testing

BENCHMARK_MAIN();
