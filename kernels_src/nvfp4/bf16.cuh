// The values of a pair of bf16 in a register.
#pragma once

#include "types.cuh"

namespace cukiln {
namespace nvfp4 {

__device__ __forceinline__ float low_bf16(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_bf16(u32 pair) { return __uint_as_float(pair & 0xFFFF0000u); }

}  // namespace nvfp4
}  // namespace cukiln
