// Loads a gate and an up matrix from one bf16 input [rows, 2 * columns] and applies their clamped SwiGLU
// (swiglu.cuh). layout: kHalves 0: gate | up; kPairs 1: columns alternate, gate first.
#pragma once

#include "dependent_launch.cuh"
#include "swiglu.cuh"

namespace cukiln {
namespace nvfp4 {

// Sixteen columns of both matrices: where they are in memory, and once loaded the values.
struct GateUpCursor {
  const u16* low_from;
  u32 to_high;  // distance from the first 16 elements to the other 16
  u32 step;     // elements from one atom of scales to the next
  u32 low[8];   // in memory order. kHalves: low is gate, high is up. kPairs: gate and up alternate in both
  u32 high[8];

  static __device__ __forceinline__ GateUpCursor of_pairs(const u16* row, u32 column) {
    return {row + 2 * u64{column}, kBlockColumns, 8 * kBlockColumns, {}, {}};
  }

  // kPairs only: gate and up of column 2 * i (even) or 2 * i + 1 (odd).
  __device__ __forceinline__ u32 even(int i) const { return (i < 4 ? low : high)[2 * i % 8]; }
  __device__ __forceinline__ u32 odd(int i) const { return (i < 4 ? low : high)[2 * i % 8 + 1]; }

  __device__ __forceinline__ void load() {
    load_16_bf16(low_from, low);
    load_16_bf16(low_from + to_high, high);
  }
  __device__ __forceinline__ void prefetch() const {
    prefetch_l2(low_from);
    prefetch_l2(low_from + to_high);
  }
  __device__ __forceinline__ void advance() { low_from += step; }
};

// A Source for quantize_tiles: the clamped SwiGLU, rounded to bf16 once.
struct SwiGluSource {
  const u16* input;
  i64 row_stride;
  u32 columns;
  u32 layout;
  SwiGlu activate;

  using Cursor = GateUpCursor;
  static constexpr bool kLoadsAhead = true;

  __device__ __forceinline__ Cursor at(u32 row, u32 column) const {
    const u16* const first = input + row * row_stride;
    if (layout == kHalves) return {first + column, columns, 4 * kBlockColumns, {}, {}};
    return Cursor::of_pairs(first, column);
  }

  // One branch on the layout with straight-line code for each, instead of one for each pair: the compiler
  // then interleaves the instructions of all pairs.
  __device__ __forceinline__ void take(const Cursor& from, u32 (&pairs)[8]) const {
    if (layout == kHalves) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const u32 gate = from.low[i];
        const u32 up = from.high[i];
        pairs[i] = pack_bf16x2(activate(low_bf16(gate), low_bf16(up)),
                               activate(high_bf16(gate), high_bf16(up)));
      }
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const u32 even = from.even(i);
        const u32 odd = from.odd(i);
        pairs[i] = pack_bf16x2(activate(low_bf16(even), high_bf16(even)),
                               activate(low_bf16(odd), high_bf16(odd)));
      }
    }
  }
};

}  // namespace nvfp4
}  // namespace cukiln
