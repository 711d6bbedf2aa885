// What the kernels that find the largest magnitude of a tensor end with.
#pragma once

#include "nvfp4_numerics.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kAmaxThreads = 512;
constexpr u32 kAmaxWarps = kAmaxThreads / 32;

// Orders what is before it and after it for the whole device; __threadfence, which orders all
// fences too, takes longer.
__device__ __forceinline__ void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// Called once by every thread of every thread block. The last thread block to come writes gsa from
// the largest of all `magnitudes`, and zeroes the workspace {amax bits, ticket}.
__device__ __forceinline__ void write_global_scale(float* gsa, u32* workspace, u32 magnitudes) {
  const u32 lane = threadIdx.x % 32;
  const u32 warp = threadIdx.x / 32;
  __shared__ u32 warp_amax[kAmaxWarps];
  const u32 bits = __reduce_max_sync(~0u, larger_half(magnitudes));
  if (lane == 0) warp_amax[warp] = bits;
  __syncthreads();
  if (warp != 0) return;
  const u32 block_amax = __reduce_max_sync(~0u, lane < kAmaxWarps ? warp_amax[lane] : 0u);
  if (lane != 0) return;

  atomicMax(&workspace[0], block_amax);
  fence();
  if (atomicInc(&workspace[1], gridDim.x - 1) != gridDim.x - 1) return;
  // The ticket wrapped to 0: every other block's maximum is in.
  fence();
  const GlobalScale scale = global_scale_of(__uint_as_float(atomicExch(&workspace[0], 0u)));
  gsa[0] = scale.encode;
  gsa[1] = scale.decode;
}

}  // namespace nvfp4
}  // namespace cukiln
