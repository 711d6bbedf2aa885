// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a .cu file takes from the CUDA language, for g++. Included before everything else, so that
// device code compiles for the CPU as it is. Light, because every mutant is compiled.

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __restrict__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)

struct Index3 {
  unsigned x, y, z;
};
extern constinit thread_local Index3 threadIdx, blockIdx, gridDim;

struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct float4 {
  float x, y, z, w;
};

void __syncthreads();
void __syncwarp();

template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}

inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(high) << 32 | low;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    result |= static_cast<unsigned>(bytes >> (selector >> 4 * i & 7) * 8 & 0xFF) << 8 * i;
  }
  return result;
}
inline unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }
inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }

#define CUKILN_MACHINE "emulator/machine.hpp"
#define CUKILN_TCGEN05 "emulator/tcgen05.hpp"
#define CUKILN_ASYNC_COPY "emulator/async_copy.hpp"
