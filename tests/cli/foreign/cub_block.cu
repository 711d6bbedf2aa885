// SPDX-License-Identifier: Apache-2.0
#include <cub/block/block_reduce.cuh>
#include <cub/warp/warp_reduce.cuh>

#include <cuda/std/limits>
#include <cuda/std/tuple>

extern "C" __global__ void sum(const float* from, float* to) {
  using Reduce = cub::BlockReduce<float, 128>;
  __shared__ Reduce::TempStorage storage;
  const auto [value, least] =
      cuda::std::make_tuple(from[threadIdx.x], cuda::std::numeric_limits<float>::lowest());
  const float total = Reduce(storage).Sum(value > least ? value : 0.f);
  if (threadIdx.x == 0) {
    *to = total;
  }
}
