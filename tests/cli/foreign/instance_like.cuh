// SPDX-License-Identifier: Apache-2.0
// A header-only GEMM library over CUTLASS: barriers in shared memory, and the next kernel that starts early.
#pragma once

#include <cutlass/arch/barrier.h>
#include <cute/arch/cluster_sm90.hpp>

#include <cstdint>
#include <utility>

namespace gemm {

template <uint32_t kThreads, uint32_t kStages, typename T>
CUTLASS_GLOBAL void __launch_bounds__(kThreads, 1) stages(const T* from, T* to, const uint32_t count) {
  using Barrier = cutlass::arch::ClusterTransactionBarrier;
  __shared__ alignas(8) uint64_t storage[kStages];
  auto* full = reinterpret_cast<Barrier*>(storage);
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < kStages; ++i) full[i].init(kThreads);
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  cudaGridDependencySynchronize();
  const std::pair<uint32_t, uint32_t> range{blockIdx.x * kThreads, count};
  for (uint32_t i = 0; i < kStages; ++i) {
    full[i].arrive();
    full[i].wait(0);
    const uint32_t at = range.first + i * kThreads + threadIdx.x;
    if (at < range.second) to[at] = from[at];
  }
  if (cute::elect_one_sync()) cudaTriggerProgrammaticLaunchCompletion();
}

}  // namespace gemm
