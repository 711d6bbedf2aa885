// Dequantises NVFP4 to the operands of tensor cores that have no NVFP4, exactly: to fp16 where both matrices
// are NVFP4 (W4A4), to bf16 where the tokens are bf16 (W4A16). `F16` and `Bf16` hold what differs.
//
// An E2M1 value times its block scale has at most six significant bits and is a multiple of 2^-10, so value
// * scale * 2^-14 is exact in fp16, if need be as a subnormal, which tensor cores process at full speed.
// The factor 2^-14 costs nothing: the three magnitude bits of E2M1, placed at fp16's lowest two exponent
// bits and highest mantissa bit, are its value times 2^-14, the subnormal 0.5 included. Both operands carry
// it; the epilogue multiplies by 2^28 together with the global scales.
//
// In bf16 the magnitude bits at the lowest two exponent bits and the highest mantissa bit are the value times
// 2^-126, 0.5 a subnormal again. The scale carries 2^119, the largest power with which 448 is finite, so
// weights carry 2^-7 and are normal numbers; the epilogue multiplies by 2^7.
//
// K is the reduction dimension, so any permutation of it is allowed that both operands share. Here, in each
// group of 128: lane 4 * g + t of a warp holds elements 32 * t to 32 * t + 31 of its row g, which is one
// 16-byte load and two block scales. Word w of the load feeds MMAs 2 * w and 2 * w + 1 of the group's eight
// (K = 16 each), and the pairs of `e2m1x8_to_f16x2` their k = 2t, 2t + 1 and k = 2t + 8, 2t + 9.
#pragma once

#include "nvfp4_numerics.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kGroupK = 128;         // of K that a warp processes at a time
constexpr u32 kLaneK = 32;           // of those, held by one lane
constexpr u32 kLaneBytes = 16;       // of packed data for those
constexpr float kTwoTo14 = 16384.0f;

__device__ __forceinline__ u32 permute_bytes(u32 low, u32 high, u32 selector) {
  u32 result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
}

__device__ __forceinline__ u32 word_of(const uint4& v, u32 i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// A bitwise function of three operands: kTable is its value for 0xF0, 0xCC and 0xAA. As asm, since the
// compiler otherwise splits some of these into two instructions.
template <u32 kTable>
__device__ __forceinline__ u32 lop3(u32 a, u32 b, u32 c) {
  u32 result;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(result) : "r"(a), "r"(b), "r"(c), "n"(kTable));
  return result;
}

// `a` with the bits under `mask` taken from `b`.
__device__ __forceinline__ u32 merge_bits(u32 a, u32 b, u32 mask) {
  return lop3<(0xF0 & ~0xAA) | (0xCC & 0xAA)>(a, b, mask);
}

__device__ __forceinline__ u32 flip_then_mask(u32 a, u32 flip, u32 mask) {
  return lop3<(0xF0 ^ 0xCC) & 0xAA>(a, flip, mask);
}

__device__ __forceinline__ u32 mask_then_flip(u32 a, u32 mask, u32 flip) {
  return lop3<(0xF0 & 0xCC) ^ 0xAA>(a, mask, flip);
}

// Converts eight packed E2M1 values to fp16, times 2^-14, as pairs (0, 4), (2, 6), (1, 5), (3, 7).
//
// In each byte the odd value's sign is in place already. The even value, with its magnitude m flipped to f
// = 7 - m, is multiplied by 16 + 2, which gives 128 s + 16 (s + f) + 2 f for its sign s: sign and magnitude
// in place, and a middle term that is masked away. That term carries only for s + f = 8, the value -0: it
// becomes +0, and the carry into the next byte's lowest bit is masked away too.
__device__ __forceinline__ void e2m1x8_to_f16x2(u32 data, u32 (&pairs)[4]) {
  constexpr u32 kSigns = 0x80808080u;
  constexpr u32 kHigh = 0x8E008E00u;  // sign and magnitude of an fp16 number's high byte
  constexpr u32 kMagnitude = 0x0E000E00u;
  const u32 even = flip_then_mask(data, 0x07070707u, 0x0F0F0F0Fu) * 18;
  const u32 odd = merge_bits(data >> 3, data, kSigns);
  pairs[0] = mask_then_flip(even << 8, kHigh, kMagnitude);
  pairs[1] = mask_then_flip(even, kHigh, kMagnitude);
  pairs[2] = (odd << 8) & kHigh;
  pairs[3] = odd & kHigh;
}

constexpr u32 kSignAndMagnitude = 0x81C081C0u;  // of E2M1 in bf16

// As e2m1x8_to_f16x2, to bf16, times 2^-126. A nibble times 2^12 + 2^6 has its sign at bit 15 and its
// magnitude at bits 6 to 8 of a half; the other copies of its bits do not overlap them and are masked away.
__device__ __forceinline__ void e2m1x8_to_bf16x2(u32 data, u32 (&pairs)[4]) {
  const u32 high = data >> 8;
  pairs[0] = ((data & 0x000F000Fu) * 0x1040u) & kSignAndMagnitude;
  pairs[1] = ((high & 0x000F000Fu) * 0x1040u) & kSignAndMagnitude;
  pairs[2] = ((data & 0x00F000F0u) * 0x0104u) & kSignAndMagnitude;
  pairs[3] = ((high & 0x00F000F0u) * 0x0104u) & kSignAndMagnitude;
}

__device__ __forceinline__ u32 mul_bf16x2(u32 a, u32 b) {
  u32 product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

__device__ __forceinline__ u32 mul_f16x2(u32 a, u32 b) {
  u32 product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// One half of a register in both halves. No instruction: HMUL2 selects its operands' halves itself.
__device__ __forceinline__ u32 broadcast_low(u32 pair) {
  u32 twice;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {low, low};}" : "=r"(twice) : "r"(pair));
  return twice;
}

__device__ __forceinline__ u32 broadcast_high(u32 pair) {
  u32 twice;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {high, high};}" : "=r"(twice) : "r"(pair));
  return twice;
}

// Converts two UE4M3 scale bytes, the low 16 bits, to fp16. 0x7F becomes NaN.
__device__ __forceinline__ u32 ue4m3x2_to_f16x2(u32 bytes) {
  u32 pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<u16>(bytes)));
  return pair;
}

// Converts two UE4M3 scale bytes, the low 16 bits, to bf16, times 2^119. 0x7F becomes NaN.
__device__ __forceinline__ u32 ue4m3x2_to_bf16x2(u32 bytes) {
  constexpr u32 kTwoTo119 = (127 + 119) << 7;
  u32 low;
  u32 high;
  asm("{\n\t"
      ".reg .b16 l, h;\n\t"
      "mov.b32 {l, h}, %2;\n\t"
      "cvt.f32.f16 %0, l;\n\t"
      "cvt.f32.f16 %1, h;\n\t"
      "}"
      : "=r"(low), "=r"(high)
      : "r"(ue4m3x2_to_f16x2(bytes)));
  return mul_bf16x2(permute_bytes(low, high, 0x7632u), kTwoTo119 * 0x10001u);
}

// The shift that brings a lane's two scale bytes to the low 16 bits of its row's word with the four scales of
// an atom: lanes with an even t = lane % 4 use its blocks 0 and 1, the others 2 and 3.
__device__ __forceinline__ u32 lane_scale_shift(u32 t) { return (t & 1) * 16; }

// The operands of W4A4: fp16, with which weights and tokens carry a factor of 2^-14 each.
struct F16 {
  static constexpr float kWeightFactor = kTwoTo14;  // by which the epilogue multiplies for the weights

  // Two block scales, the low 16 bits, for `dequantize`.
  static __device__ __forceinline__ u32 scales(u32 bytes) { return ue4m3x2_to_f16x2(bytes); }

  // Dequantises word w of the lane's four: eight values times their block scale, in the order of
  // e2m1x8_to_f16x2.
  static __device__ __forceinline__ void dequantize(u32 data, u32 scales, u32 w, u32 (&pairs)[4]) {
    e2m1x8_to_f16x2(data, pairs);
    const u32 scale = w < 2 ? broadcast_low(scales) : broadcast_high(scales);
#pragma unroll
    for (u32 j = 0; j < 4; ++j) pairs[j] = mul_f16x2(pairs[j], scale);
  }

  // The same in two steps: the lane's two block scales, each twice in a pair, from the word of which
  // lane_scale_shift takes them by a shift; `selector`: selector(t).
  struct LaneScales {
    u32 twice[2];
  };
  static __device__ __forceinline__ u32 selector(u32 t) { return (t & 1) ? 0x3322u : 0x1100u; }
  static __device__ __forceinline__ LaneScales lane_scales(u32 word, u32 selector) {
    const u32 bytes = permute_bytes(word, 0, selector);
    return {{ue4m3x2_to_f16x2(bytes), ue4m3x2_to_f16x2(bytes >> 16)}};
  }
  static __device__ __forceinline__ void dequantize(u32 data, const LaneScales& scales, u32 w,
                                                    u32 (&pairs)[4]) {
    e2m1x8_to_f16x2(data, pairs);
#pragma unroll
    for (u32 j = 0; j < 4; ++j) pairs[j] = mul_f16x2(pairs[j], scales.twice[w / 2]);
  }

  // sum += A * B with mma.sync m16n8k16: A 16 by 16, B 16 by 8, float sums.
  static __device__ __forceinline__ void mma(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

// The operands of W4A16: bf16, with which weights carry a factor of 2^-7 and tokens none.
struct Bf16 {
  static constexpr float kWeightFactor = 128.0f;

  static __device__ __forceinline__ u32 scales(u32 bytes) { return ue4m3x2_to_bf16x2(bytes); }

  static __device__ __forceinline__ void dequantize(u32 data, u32 scales, u32 w, u32 (&pairs)[4]) {
    e2m1x8_to_bf16x2(data, pairs);
    const u32 scale = w < 2 ? broadcast_low(scales) : broadcast_high(scales);
#pragma unroll
    for (u32 j = 0; j < 4; ++j) pairs[j] = mul_bf16x2(pairs[j], scale);
  }

  using LaneScales = u32;
  static __device__ __forceinline__ u32 selector(u32 t) { return (t & 1) ? 0x4432u : 0x4410u; }
  static __device__ __forceinline__ LaneScales lane_scales(u32 word, u32 selector) {
    return scales(permute_bytes(word, 0, selector));
  }

  static __device__ __forceinline__ void mma(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }

  // Dequantises a byte of packed data: its low and its high nibble times one of two block scales.
  static __device__ __forceinline__ u32 dequantize_byte(u32 byte, u32 scales, u32 which) {
    const u32 nibbles = (byte * 0x1001u) & 0x000F000Fu;
    return mul_bf16x2((nibbles * 0x1040u) & kSignAndMagnitude,
                      which == 0 ? broadcast_low(scales) : broadcast_high(scales));
  }

  // Eight bf16 tokens, adjacent along K, as pairs in the order of e2m1x8_to_bf16x2.
  static __device__ __forceinline__ void arrange(const uint4& eight, u32 (&pairs)[4]) {
    pairs[0] = permute_bytes(eight.x, eight.z, 0x5410u);
    pairs[1] = permute_bytes(eight.y, eight.w, 0x5410u);
    pairs[2] = permute_bytes(eight.x, eight.z, 0x7632u);
    pairs[3] = permute_bytes(eight.y, eight.w, 0x7632u);
  }
};

// Dequantises one of the 16 chunks of a row's group of 128 columns, in the lanes' order: the pairs with k < 8
// or with k >= 8 of one MMA, zeros from `columns_left` columns on. `data`: packed data of the group.
// scale_of(i): the address of the scale of its block i.
template <class ScaleOf>
__device__ __forceinline__ uint4 expand_chunk(u32 chunk, const u8* data, ScaleOf scale_of,
                                              u32 columns_left) {
  const u32 word = chunk >> 2;
  const u32 shift = (0x084Cu >> (4 * (chunk & 3))) & 15;  // pairs (0,4), (2,6), (1,5), (3,7)
  u32 pairs[4];
#pragma unroll
  for (u32 t = 0; t < 4; ++t) {
    pairs[t] = 0;
    if (t * kLaneK < columns_left) {
      const u32 shifted = __ldg(reinterpret_cast<const u32*>(data + t * kLaneBytes + word * 4)) << shift;
      const u32 scale = __ldg(scale_of(t * 2 + word / 2));
      pairs[t] = mul_f16x2((shifted & 0x80008000u) | ((shifted >> 3) & 0x0E000E00u),
                           ue4m3x2_to_f16x2(scale * 0x101u));
    }
  }
  return {pairs[0], pairs[1], pairs[2], pairs[3]};
}

}  // namespace nvfp4
}  // namespace cukiln
