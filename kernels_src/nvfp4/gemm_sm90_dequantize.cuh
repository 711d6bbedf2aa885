// From NVFP4 to the operands of Hopper's half-precision tensor cores, exactly.
//
// A code times its block scale has at most six significant bits and is a multiple of 2^-10, so that
// code * scale * 2^-14 is an fp16 number, a subnormal one if need be, which tensor cores take at
// full speed. The factor 2^-14 is free: a code's three magnitude bits, put where fp16 has its lowest
// exponent bits and its highest mantissa bit, are the code's value times 2^-14, its subnormal 0.5
// included. Two operands carry 2^-28, which the product of the global scales takes back.
//
// K is summed over, so its order is free as long as both operands agree. Here it is, for each group
// of 128: lane 4 * g + t of a warp holds, for its row g, elements 32 * t to 32 * t + 31, which is one
// 16-byte load and two block scales; word w of the load feeds the matrix instructions 2 * w and
// 2 * w + 1 of the eight that a group takes, and the pairs of `expand` their k = 2t, 2t + 1 and
// k = 2t + 8, 2t + 9.
#pragma once

#include "nvfp4_numerics.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kGroupK = 128;         // elements of K that a warp takes at a time
constexpr u32 kLaneK = 32;           // of them, a lane's
constexpr u32 kLaneBytes = 16;       // their codes
constexpr float kTwoTo14 = 16384.0f;

__device__ __forceinline__ u32 permute_bytes(u32 low, u32 high, u32 selector) {
  u32 result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
}

__device__ __forceinline__ u32 word_of(const uint4& v, u32 i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Any function of three bits, for all 32: kTable is its value for 0xF0, 0xCC and 0xAA. One instruction, where
// the compiler would see that some bits are not needed, or constants, and take two.
template <u32 kTable>
__device__ __forceinline__ u32 combine_bits(u32 a, u32 b, u32 c) {
  u32 result;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(result) : "r"(a), "r"(b), "r"(c), "n"(kTable));
  return result;
}

// The bits of `a`, but those of `mask` from `b`.
__device__ __forceinline__ u32 merge_bits(u32 a, u32 b, u32 mask) {
  return combine_bits<(0xF0 & ~0xAA) | (0xCC & 0xAA)>(a, b, mask);
}

__device__ __forceinline__ u32 flip_then_mask(u32 a, u32 flip, u32 mask) {
  return combine_bits<(0xF0 ^ 0xCC) & 0xAA>(a, flip, mask);
}

__device__ __forceinline__ u32 mask_then_flip(u32 a, u32 mask, u32 flip) {
  return combine_bits<(0xF0 & 0xCC) ^ 0xAA>(a, mask, flip);
}

// Eight codes to eight fp16 numbers, in pairs: (0, 4), (2, 6), (1, 5), (3, 7). Unscaled: times 2^-14.
//
// Of a byte's two codes the odd one has its sign where it belongs. The even one, its magnitude m
// flipped to f = 7 - m, is multiplied by 16 + 2 to have both parts where they belong: its sign s and f are
// then 128 s + 16 (s + f) + 2 f. The middle term is masked away; only s + f = 8, which is the code -0,
// carries, which makes it +0, and sets the lowest bit of the next byte, which is masked away too.
__device__ __forceinline__ void expand(u32 codes, u32 (&pairs)[4]) {
  constexpr u32 kSigns = 0x80808080u;
  constexpr u32 kHigh = 0x8E008E00u;  // sign and magnitude of an fp16 number's high byte
  constexpr u32 kMagnitude = 0x0E000E00u;
  const u32 even = flip_then_mask(codes, 0x07070707u, 0x0F0F0F0Fu) * 18;
  const u32 odd = merge_bits(codes >> 3, codes, kSigns);
  pairs[0] = mask_then_flip(even << 8, kHigh, kMagnitude);
  pairs[1] = mask_then_flip(even, kHigh, kMagnitude);
  pairs[2] = (odd << 8) & kHigh;
  pairs[3] = odd & kHigh;
}

__device__ __forceinline__ u32 multiply_f16x2(u32 a, u32 b) {
  u32 product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// One half of a register, twice: no instruction, for a multiplication picks its operand's halves itself.
__device__ __forceinline__ u32 low_twice(u32 pair) {
  u32 twice;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {low, low};}" : "=r"(twice) : "r"(pair));
  return twice;
}

__device__ __forceinline__ u32 high_twice(u32 pair) {
  u32 twice;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {high, high};}" : "=r"(twice) : "r"(pair));
  return twice;
}

// Two scale bytes, the low 16 bits. 0x7F becomes NaN.
__device__ __forceinline__ u32 scales_f16x2(u32 bytes) {
  u32 pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<u16>(bytes)));
  return pair;
}

// The lane's two block scales out of the word that holds its row's four of an atom. `selector`:
// see lane_scale_selector.
__device__ __forceinline__ void lane_scales(u32 word, u32 selector, u32 (&scales)[2]) {
  const u32 bytes = permute_bytes(word, 0, selector);
  scales[0] = scales_f16x2(bytes);
  scales[1] = scales_f16x2(bytes >> 16);
}

// Lanes with an even t use the atom's blocks 0 and 1, the others 2 and 3.
__device__ __forceinline__ u32 lane_scale_selector(u32 t) { return (t & 1) ? 0x3322u : 0x1100u; }

// Word w of the lane's four: eight codes times their block's scale, in the order of `expand`.
__device__ __forceinline__ void dequantize(u32 codes, u32 scales, u32 w, u32 (&pairs)[4]) {
  expand(codes, pairs);
  const u32 scale = w < 2 ? low_twice(scales) : high_twice(scales);
#pragma unroll
  for (u32 j = 0; j < 4; ++j) pairs[j] = multiply_f16x2(pairs[j], scale);
}

// sum += A * B, 16 rows by 16 of K times 8 columns: the instruction that takes such operands.
__device__ __forceinline__ void multiply_16x8x16(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace nvfp4
}  // namespace cukiln
