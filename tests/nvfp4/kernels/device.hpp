// SPDX-License-Identifier: Apache-2.0
#pragma once

// What kernels without tensor cores take from the CUDA language, for a host compiler: clusters,
// mostly of one thread block, run one after the other, and the threads of one in turn, each until
// it waits for the others. Where a cluster has several thread blocks, `__shared__` is
// SHARED_IN_CLUSTER: variables in a section of their own, of which each thread block has a copy.

#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "ptx.hpp"

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define SHARED_IN_CLUSTER __attribute__((section("shared_memory"))) static
#ifndef __shared__
#define __shared__ static
#endif
#define __CUDA_ARCH__ CUKILN_HOST_ARCH

using std::max;
using std::min;

struct Index {
  unsigned x = 0;
  unsigned y = 0;
};
inline Index threadIdx, blockIdx, gridDim;

struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace device {

constexpr unsigned kWarp = 32;
constexpr std::size_t kStackBytes = 1 << 16;

struct Thread {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};  // not filled, for there are many
  bool ended = false;
  const struct Group* waits_for = nullptr;
  unsigned round = 0;  // that it waits for the end of
};

// Threads that wait for each other.
struct Group {
  unsigned expected = 0;
  unsigned arrived = 0;
  unsigned round = 0;
};

inline std::vector<Thread> threads;  // of a cluster
inline unsigned running;             // the index of one of them
inline unsigned block_threads;
inline ucontext_t scheduler;
inline std::vector<Group> blocks;
inline std::vector<Group> warps;
inline Group cluster;
inline std::vector<unsigned> arrivals;  // the cluster's round in which each thread arrived
inline std::vector<std::uint64_t> exchanged;
inline const std::function<void()>* body;
inline bool trapped;  // the latest launch ended in a trap

// Shared memory: the running thread block's is where the variables are, the others' are aside.
inline std::vector<char> shared_memory;  // of the section's length, which a test that has one sets
inline char* shared_variables = nullptr;
inline std::vector<std::vector<char>> aside;

inline void wait_for_end(const Group& group, unsigned round) {
  if (group.round != round) return;
  threads[running].waits_for = &group;
  threads[running].round = round;
  swapcontext(&threads[running].context, &scheduler);
  threads[running].waits_for = nullptr;
}

inline void arrive(Group& group) {
  if (++group.arrived == group.expected) {
    group.arrived = 0;
    ++group.round;
  }
}

inline void wait(Group& group) {
  const unsigned round = group.round;
  arrive(group);
  wait_for_end(group, round);
}

inline Group& own_block() { return blocks[running / block_threads]; }
inline Group& own_warp() { return warps[running / kWarp]; }

inline void start() {
  (*body)();
  threads[running].ended = true;
}

inline void resume(unsigned thread) {
  const unsigned from = running / block_threads;
  const unsigned to = thread / block_threads;
  if (from != to && shared_variables != nullptr) {
    std::copy_n(shared_variables, aside[from].size(), aside[from].data());
    std::copy_n(aside[to].data(), aside[to].size(), shared_variables);
  }
  running = thread;
  threadIdx.x = thread % block_threads;
  blockIdx.x += to - from;
  swapcontext(&scheduler, &threads[thread].context);
}

inline void start_cluster(unsigned block_count) {
  const unsigned count = block_count * block_threads;
  threads.resize(count);
  blocks.assign(block_count, {block_threads});
  warps.assign(count / kWarp, {kWarp});
  cluster = {count};
  arrivals.assign(count, 0);
  exchanged.assign(count, 0);
  aside.assign(block_count, shared_memory);
  if (shared_variables != nullptr) {
    std::copy_n(shared_memory.data(), shared_memory.size(), shared_variables);
  }
  for (Thread& thread : threads) {
    thread.ended = false;
    thread.waits_for = nullptr;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = kStackBytes;
    thread.context.uc_link = &scheduler;
    makecontext(&thread.context, start, 0);
  }
}

inline void launch(Index grid, unsigned thread_count, const std::function<void()>& kernel,
                   unsigned cluster_blocks = 1) {
  gridDim = grid;
  body = &kernel;
  block_threads = thread_count;
  trapped = false;
  for (unsigned index = 0; index < grid.x * grid.y; index += cluster_blocks) {
    start_cluster(cluster_blocks);
    running = 0;
    blockIdx = {index % grid.x, index / grid.x};
    for (unsigned left = 1; left > 0;) {
      left = 0;
      for (unsigned i = 0; i < threads.size(); ++i) {
        const Group* const group = threads[i].waits_for;
        if (threads[i].ended) continue;
        if (group == nullptr || group->round != threads[i].round) resume(i);
        if (trapped) return;
        left += !threads[i].ended;
      }
    }
  }
}

inline void launch(unsigned grid, unsigned thread_count, const std::function<void()>& kernel) {
  launch(Index{grid, 1}, thread_count, kernel);
}

// Every lane's value, once all lanes gave theirs.
template <class T, class Use>
T among_lanes(T value, Use use) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(among_lanes(std::bit_cast<unsigned>(value), use));
  } else {
    exchanged[running] = value;
    wait(own_warp());
    const auto result = static_cast<T>(use(&exchanged[running / kWarp * kWarp]));
    wait(own_warp());
    return result;
  }
}

}  // namespace device

inline void __trap() {
  device::trapped = true;
  swapcontext(&device::threads[device::running].context, &device::scheduler);
}

inline void __syncthreads() { device::wait(device::own_block()); }
template <class T>
T __shfl_xor_sync(unsigned, T value, unsigned mask) {
  const unsigned lane = threadIdx.x % device::kWarp;
  return device::among_lanes(value, [&](const auto* lanes) { return lanes[lane ^ mask]; });
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned distance) {
  const unsigned lane = threadIdx.x % device::kWarp;
  return device::among_lanes(
      value, [&](const auto* lanes) { return lanes[lane < distance ? lane : lane - distance]; });
}
inline unsigned __ballot_sync(unsigned, bool vote) {
  return device::among_lanes(unsigned{vote}, [](const auto* lanes) {
    std::uint64_t votes = 0;
    for (unsigned lane = 0; lane < device::kWarp; ++lane) votes |= lanes[lane] << lane;
    return votes;
  });
}
inline void __syncwarp() { device::wait(device::own_warp()); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
  return device::among_lanes(
      value, [](const auto* lanes) { return *std::max_element(lanes, lanes + device::kWarp); });
}

template <class T>
T __ldg(const T* at) {
  return *at;
}
template <class T>
T atomicAdd(T* at, T value) {
  const T before = *at;
  *at += value;
  return before;
}
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<unsigned>(bytes >> (selector >> 4 * i & 7) * 8 & 0xFF) << 8 * i;
  }
  return result;
}
