// SPDX-License-Identifier: Apache-2.0
// A molecular dynamics kernel: types by macros, math by C names, fixed-point sums.
#include <math.h>
#include <stdint.h>

typedef float real;
typedef unsigned long long mm_ulong;
#define SQRT sqrtf
#define EXP expf

extern "C" __global__ void bonds(mm_ulong* __restrict__ forces, const float4* __restrict__ positions,
                                 const uint2* __restrict__ atoms, uint32_t count, real length) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += blockDim.x * gridDim.x) {
    const float4 a = positions[atoms[i].x];
    const float4 b = positions[atoms[i].y];
    const real r = SQRT((a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y) + (a.z - b.z) * (a.z - b.z));
    const real force = (r - length) * EXP(-r) * static_cast<real>(M_PI);
    atomicAdd(&forces[atoms[i].x], static_cast<mm_ulong>(static_cast<int64_t>(force * 0x100000000)));
  }
}
