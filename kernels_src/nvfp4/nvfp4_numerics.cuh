// NVFP4 arithmetic: global scale, block scale, rounding to E2M1. Shared by all kernels that quantise.
//
//   encode     = min(divisor / amax, FLT_MAX), or 1 when amax is 0 or infinite; decode = 1 / encode
//   scale byte = ue4m3_rn(block_amax * (encode * (1/6)))
//   element    = e2m1_rn(x * min(1 / (float(scale byte) * decode), FLT_MAX))
//
// With divisor = 2688 = 448 * 6, the largest UE4M3 and E2M1 values, this is TransformerEngine's exact
// formula, except for blocks whose scale byte is 0 or NaN (0x7F): all their elements become +0.
//
// Every rounding is PTX with .rn and without .ftz, so --use_fast_math, --ftz, --prec-div and --fmad change
// no output byte. The two versions of encode_e2m1x8, cvt and FMA, agree on every finite and infinite value.
//
// Source: Micikevicius et al., FP8 Formats for Deep Learning (2022), for E4M3; OCP Microscaling
// Formats v1.0 for E2M1; NVIDIA PTX ISA, cvt; TransformerEngine, NVFP4 recipe, for the formula.
#pragma once

#include "bf16.cuh"
#include "scale_layout.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kNanScaleByte = 0x7F;
constexpr float kFloatMax = 3.402823466385288598e38f;

struct GlobalScale {
  float encode;
  float decode;
};

__device__ __forceinline__ float mul_rn(float a, float b) {
  float product;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
  return product;
}

__device__ __forceinline__ float div_rn(float a, float b) {
  float quotient;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
}

__device__ __forceinline__ float rcp_rn(float a) {
  float reciprocal;
  asm("rcp.rn.f32 %0, %1;" : "=f"(reciprocal) : "f"(a));
  return reciprocal;
}

__device__ __forceinline__ float rcp_approx(float a) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(a));
  return reciprocal;
}

// Returns NaN when an operand is NaN, unlike fminf.
__device__ __forceinline__ float min_nan(float a, float b) {
  float smaller;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
  return smaller;
}

// Clears the sign bits of a bf16 pair.
__device__ __forceinline__ u32 magnitudes_of(u32 pair) { return pair & 0x7FFF7FFFu; }

// Elementwise larger magnitude of two bf16 pairs, compared as integers, which orders NaN > inf > finite.
// `magnitudes` has its sign bits clear; `pair` may have them set.
__device__ __forceinline__ u32 max_magnitude_bf16x2(u32 magnitudes, u32 pair) {
  const u32 other = magnitudes_of(pair);
#if __CUDA_ARCH__ >= 900
  u32 larger;
  asm("max.u16x2 %0, %1, %2;" : "=r"(larger) : "r"(magnitudes), "r"(other));
  return larger;
#else
  return max(magnitudes & 0xFFFF0000u, other & 0xFFFF0000u) |
         max(magnitudes & 0xFFFFu, other & 0xFFFFu);
#endif
}

// The larger magnitude of a pair, as the bits of a float.
__device__ __forceinline__ u32 larger_half(u32 magnitudes) {
  return max(magnitudes & 0xFFFF0000u, magnitudes << 16);
}

// Loads 16 bf16 as eight pairs. `source` is 16-byte aligned.
__device__ __forceinline__ void load_16_bf16(const u16* source, u32 (&pairs)[8]) {
  const uint4 low = reinterpret_cast<const uint4*>(source)[0];
  const uint4 high = reinterpret_cast<const uint4*>(source)[1];
  pairs[0] = low.x;
  pairs[1] = low.y;
  pairs[2] = low.z;
  pairs[3] = low.w;
  pairs[4] = high.x;
  pairs[5] = high.y;
  pairs[6] = high.z;
  pairs[7] = high.w;
}

// The amax of one block of 16, as the bits of a float.
__device__ __forceinline__ u32 amax_of(const u32 (&pairs)[8]) {
  u32 magnitudes = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) magnitudes = max_magnitude_bf16x2(magnitudes, pairs[i]);
  return larger_half(magnitudes);
}

// `divisor`: 1 to 2688. From 1 on decode is finite for every finite bf16 amax.
__device__ __forceinline__ GlobalScale global_scale_of(float amax, float divisor) {
  const float encode = min_nan(div_rn(divisor, amax), kFloatMax);
  // Compared by bits: a float comparison would flush a subnormal amax under --ftz.
  if (__float_as_uint(amax) == 0 || __float_as_uint(encode) == 0) return {1.0f, 1.0f};
  return {encode, rcp_rn(encode)};
}

__device__ __forceinline__ u32 encode_ue4m3(float value) {
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  return pair & 0xFFu;
}

// Exact for every byte but NaN: the byte's exponent and mantissa, moved to a float's, are 2^-120 too small.
__device__ __forceinline__ float decode_ue4m3(u32 byte) {
  return mul_rn(__uint_as_float(byte << 20), __uint_as_float((127u + 120u) << 23));
}

// The factor from a block's amax to its scale: encode / 6. The same for a whole tensor.
__device__ __forceinline__ float block_scale_factor(float encode) {
  return mul_rn(encode, __uint_as_float(0x3E2AAAABu));  // float(1/6)
}

// The factor from a block's elements to E2M1's range.
__device__ __forceinline__ float element_multiplier(u32 scale_byte, float decode) {
  return min_nan(rcp_rn(mul_rn(decode_ue4m3(scale_byte), decode)), kFloatMax);
}

// cvt to E2M1 exists for architecture- and family-specific targets (sm_100a, sm_100f), not for plain
// sm_100.
#if __CUDA_ARCH__ >= 1000 &&                                                       \
    (defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM101_ALL) || \
     defined(__CUDA_ARCH_FEAT_SM103_ALL) || defined(__CUDA_ARCH_FEAT_SM120_ALL) || \
     defined(__CUDA_ARCH_FEAT_SM121_ALL) || defined(__CUDA_ARCH_SPECIFIC__) ||     \
     defined(__CUDA_ARCH_FAMILY_SPECIFIC__))

__device__ __forceinline__ u32 encode_e2m1x8(const u32 (&pairs)[4], float multiplier) {
  float value[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    value[2 * i] = mul_rn(low_bf16(pairs[i]), multiplier);
    value[2 * i + 1] = mul_rn(high_bf16(pairs[i]), multiplier);
  }
  u32 data;
  asm("{\n\t"
      ".reg .b8 c0, c1, c2, c3;\n\t"
      "cvt.rn.satfinite.e2m1x2.f32 c0, %2, %1;\n\t"
      "cvt.rn.satfinite.e2m1x2.f32 c1, %4, %3;\n\t"
      "cvt.rn.satfinite.e2m1x2.f32 c2, %6, %5;\n\t"
      "cvt.rn.satfinite.e2m1x2.f32 c3, %8, %7;\n\t"
      "mov.b32 %0, {c0, c1, c2, c3};\n\t"
      "}"
      : "=r"(data)
      : "f"(value[0]), "f"(value[1]), "f"(value[2]), "f"(value[3]), "f"(value[4]), "f"(value[5]),
        "f"(value[6]), "f"(value[7]));
  return data;
}

#else

// Rounds a magnitude to its E2M1 encoding 0 to 7 and returns 0x4B000000 + encoding.
// E2M1 has step 1/2 below 2, 1 below 4 and 2 below 6. A saturating operation cuts out each range; adding it
// to 2^23, where one unit in the last place is one encoding, rounds to nearest even. All of it runs on the
// FMA pipe, which is twice as wide on sm_90 as the integer pipe.
__device__ __forceinline__ u32 biased_e2m1(float magnitude) {
  float encoding;
  asm("{\n\t"
      ".reg .f32 low, middle, high;\n\t"
      "mul.rn.sat.f32 low, %1, 0f3F000000;\n\t"
      "fma.rn.sat.f32 middle, %1, 0f3F000000, 0fBF800000;\n\t"
      "fma.rn.sat.f32 high, %1, 0f3F000000, 0fC0000000;\n\t"
      "fma.rn.f32 low, low, 0f40800000, 0f4B000000;\n\t"
      "fma.rn.f32 low, middle, 0f40000000, low;\n\t"
      "add.rn.f32 %0, low, high;\n\t"
      "}"
      : "=f"(encoding)
      : "f"(magnitude));
  return __float_as_uint(encoding);
}

__device__ __forceinline__ u32 encode_e2m1x8(const u32 (&pairs)[4], float multiplier) {
  // The eight biases 0x4B000000, each shifted into place, add up to 0xFB000000 modulo 2^32.
  u32 data = 0u - 0xFB000000u;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // By byte_perm: with shifts and masks the compiler recomputes the masks.
    const u32 magnitudes = magnitudes_of(pairs[i]);
    const float even = mul_rn(__uint_as_float(__byte_perm(magnitudes, 0, 0x1044)), multiplier);
    const float odd = mul_rn(__uint_as_float(__byte_perm(magnitudes, 0, 0x3244)), multiplier);
    data += biased_e2m1(even) << (8 * i);
    data += biased_e2m1(odd) << (8 * i + 4);
  }
  const u32 signs01 = __byte_perm(pairs[0], pairs[1], 0x7351);  // sign bytes: even, even, odd, odd
  const u32 signs23 = __byte_perm(pairs[2], pairs[3], 0x7351);
  const u32 even_signs = __byte_perm(signs01, signs23, 0x5410);
  const u32 odd_signs = __byte_perm(signs01, signs23, 0x7632);
  return data | ((even_signs >> 4) & 0x08080808u) | (odd_signs & 0x80808080u);
}

#endif

// The packed E2M1 data of a block of 16, low nibble = even column; 0 where the scale byte is 0 or NaN.
__device__ __forceinline__ uint2 encode_block(const u32 (&pairs)[8], u32 scale_byte,
                                              float multiplier) {
  const u32 low[4] = {pairs[0], pairs[1], pairs[2], pairs[3]};
  const u32 high[4] = {pairs[4], pairs[5], pairs[6], pairs[7]};
  const u32 kept = scale_byte != 0 && scale_byte != kNanScaleByte ? ~0u : 0u;
  return make_uint2(encode_e2m1x8(low, multiplier) & kept, encode_e2m1x8(high, multiplier) & kept);
}

// Quantises one block of 16: returns its scale byte, writes its packed data.
__device__ __forceinline__ u32 quantize_block(const u32 (&pairs)[8], float scale_factor,
                                              float decode, uint2* data) {
  const u32 scale_byte = encode_ue4m3(mul_rn(__uint_as_float(amax_of(pairs)), scale_factor));
  *data = encode_block(pairs, scale_byte, element_multiplier(scale_byte, decode));
  return scale_byte;
}

__device__ __forceinline__ u32 pack_bf16x2(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace nvfp4
}  // namespace cukiln
