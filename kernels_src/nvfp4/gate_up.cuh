// A gate and an up matrix in one bf16 input [rows, 2 * columns], and what is made of them.
//
//   layout      kHalves 0: gate | up; kPairs 1: gate and up alternate, gate first.
//   activation  kNone 0: [gate | up], 2 * columns wide, from either layout.
//               kSwiGlu 1: bf16 of the clamped SwiGLU (swiglu.cuh), `columns` wide, rounded once.
#pragma once

#include "swiglu.cuh"

namespace cukiln {
namespace nvfp4 {

enum GateUpActivation : u32 { kNone = 0, kSwiGlu = 1 };

// One source for every mode: a second loop over it would cost more compile time than the branches
// cost.
struct GateUpSource {
  const u16* input;
  i64 row_stride;
  u32 columns;
  u32 layout;
  u32 activation;
  SwiGlu activate;

  // Sixteen of gate and of up from `column` on.
  __device__ __forceinline__ void load_both(u32 row, u32 column, u32 (&gate)[8],
                                            u32 (&up)[8]) const {
    const u16* const first = input + row * row_stride;
    if (layout == kHalves) {
      load_16_bf16(first + column, gate);
      load_16_bf16(first + columns + column, up);
      return;
    }
    u32 low[8], high[8];
    load_16_bf16(first + 2 * u64{column}, low);
    load_16_bf16(first + 2 * u64{column} + 16, high);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      gate[i] = __byte_perm(low[2 * i], low[2 * i + 1], 0x5410);
      gate[i + 4] = __byte_perm(high[2 * i], high[2 * i + 1], 0x5410);
      up[i] = __byte_perm(low[2 * i], low[2 * i + 1], 0x7632);
      up[i + 4] = __byte_perm(high[2 * i], high[2 * i + 1], 0x7632);
    }
  }

  __device__ __forceinline__ void load(u32 row, u32 column, u32 (&pairs)[8]) const {
    if (activation == kNone && layout == kHalves) {  // as they lie there
      load_16_bf16(input + row * row_stride + column, pairs);
      return;
    }
    u32 gate[8], up[8];
    const bool is_up = column >= columns;  // never with kSwiGlu
    load_both(row, is_up ? column - columns : column, gate, up);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (activation == kSwiGlu) {
        const float even = activate(__uint_as_float(gate[i] << 16), __uint_as_float(up[i] << 16));
        const float odd =
            activate(__uint_as_float(gate[i] & 0xFFFF0000u), __uint_as_float(up[i] & 0xFFFF0000u));
        pairs[i] = pack_bf16x2(even, odd);
      } else {
        pairs[i] = is_up ? up[i] : gate[i];
      }
    }
  }
};

}  // namespace nvfp4
}  // namespace cukiln
