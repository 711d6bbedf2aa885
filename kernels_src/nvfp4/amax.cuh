// The reduction across thread blocks that ends the amax kernels: per-thread magnitudes to a global scale.
#pragma once

#include "nvfp4_numerics.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kAmaxThreads = 512;
constexpr u32 kAmaxWarps = kAmaxThreads / 32;

// Polls of one word before the kernel traps: 10.5 s on an H200.
constexpr u32 kMaxPolls = 1u << 26;

// Writes the global scale {encode, decode} for the largest of all threads' `magnitudes`. Every thread of
// every thread block calls it once.
//
// Each thread block writes its own amax and a ready bit to its word of `workspace` and exits, without a
// fence or an atomic counter, so that SM resources are free immediately for the next kernel. The last thread
// block (by index) polls all words and resets them to 0. It alone waits, and a device has room for more than
// one thread block, so in whichever order they are dispatched, the others end and polling with them. Where
// another launch has reset a word, because it uses the same workspace at the same time, the kernel traps:
// CUDA_ERROR_LAUNCH_FAILED. (An assertion would name the reason, but a kernel that may call its function takes
// 0.15 us more on an H200.)
__device__ __forceinline__ void write_global_scale(float* global_scale, u32* workspace, u32 magnitudes,
                                                   float divisor) {
  constexpr u32 kReady = 1;  // a bit of the lower half, which is 0 in a bf16 widened to float
  const u32 lane = threadIdx.x % 32;
  const u32 warp = threadIdx.x / 32;
  const u32 others = gridDim.x - 1;
  const bool is_last = blockIdx.x == others;
  volatile u32* const words = workspace;  // through L2, never from L1 or a register
  u32 amax = larger_half(magnitudes);
  if (is_last) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < others; i += kAmaxThreads) {
      u32 word;
      u32 polls = kMaxPolls;
      do word = words[i];
      while (word == 0 && --polls != 0);
      if (word == 0) __trap();
      words[i] = 0;
      amax = max(amax, word & ~kReady);
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
    words[blockIdx.x] = amax | kReady;
    return;
  }
  const GlobalScale scale = global_scale_of(__uint_as_float(amax), divisor);
  global_scale[kEncode] = scale.encode;
  global_scale[kDecode] = scale.decode;
}

}  // namespace nvfp4
}  // namespace cukiln
