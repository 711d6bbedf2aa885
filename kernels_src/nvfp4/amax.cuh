// What the kernels that find the largest magnitude of a tensor end with.
#pragma once

#include "nvfp4_numerics.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kAmaxThreads = 512;
constexpr u32 kAmaxWarps = kAmaxThreads / 32;

// Called once by every thread of every thread block: gsa of the largest of all `magnitudes`.
//
// Each thread block writes its own largest to a word of its own, with a bit that says so, and ends:
// nothing is to be ordered after anything, and room is made at once for the next kernel's blocks.
// The last thread block, which starts last, looks at each word until it is there, and zeroes it.
__device__ __forceinline__ void write_global_scale(float* gsa, u32* workspace, u32 magnitudes) {
  constexpr u32 kIsThere = 1;  // of the 16 bits that are 0 in a bf16 as a float
  const u32 lane = threadIdx.x % 32;
  const u32 warp = threadIdx.x / 32;
  const u32 others = gridDim.x - 1;
  const bool is_last = blockIdx.x == others;
  volatile u32* const words = workspace;  // read and written in order, where all blocks see it
  u32 amax = larger_half(magnitudes);
  if (is_last) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < others; i += kAmaxThreads) {
      u32 word;
      do word = words[i];
      while (word == 0);
      words[i] = 0;
      amax = max(amax, word & ~kIsThere);
    }
  }

  __shared__ u32 warp_amax[kAmaxWarps];
  amax = __reduce_max_sync(~0u, amax);
  if (lane == 0) warp_amax[warp] = amax;
  __syncthreads();
  if (warp != 0) return;
  amax = __reduce_max_sync(~0u, lane < kAmaxWarps ? warp_amax[lane] : 0u);
  if (lane != 0) return;
  if (!is_last) {
    words[blockIdx.x] = amax | kIsThere;
    return;
  }
  const GlobalScale scale = global_scale_of(__uint_as_float(amax));
  gsa[0] = scale.encode;
  gsa[1] = scale.decode;
}

}  // namespace nvfp4
}  // namespace cukiln
