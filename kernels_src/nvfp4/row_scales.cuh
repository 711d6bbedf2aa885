// The global scale of one row of y, known only once all thread blocks that compute the row have its amax.
//
// It is a power of two, so that a block of 16 is quantised before it is known: E2M1 data depend on the
// block's own scale alone. That one is kept as a wide scale, a float's exponent with UE4M3's three bits of
// mantissa, and becomes a byte once the row is complete:
//
//   s          = float(block_amax * float(1/6)), rounded to three bits of mantissa, at most the largest finite
//   element    = e2m1_rn(x * min(1 / s, FLT_MAX))
//   encode     = the largest power of two, up to 2^120, for which no s * encode of the row rounds above 448
//   scale byte = ue4m3_rn(s * encode)
//
// These are the bytes that nvfp4_numerics.cuh's formula gives with {encode, 1 / encode}, except of blocks
// whose byte is subnormal, with an amax below 2^-13 of the row's: their elements were made with the s that
// their byte rounds. CUKILN_NVFP4_FAST changes nothing here. A NaN makes the byte of its block NaN and leaves decode finite.
#pragma once

#include "nvfp4_numerics.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kWideScaleShift = 20;  // from a wide scale to the bits of a float
constexpr u32 kLargestWideScale = 0x7F7;
constexpr u32 kNanWideScale = 0x7FF;

// `amax`: the bits of a float.
__device__ __forceinline__ u32 wide_scale(u32 amax) {
  const u32 bits = __float_as_uint(mul_rn(__uint_as_float(amax), block_scale_factor(1.0f)));
  const u32 half = (1u << kWideScaleShift) / 2;
  const u32 rounded = (bits + half - 1 + (bits >> kWideScaleShift & 1)) >> kWideScaleShift;
  return amax > 0x7F800000u ? kNanWideScale : min(rounded, kLargestWideScale);
}

__device__ __forceinline__ float float_of_wide_scale(u32 wide) {
  return __uint_as_float(wide << kWideScaleShift);
}

// The packed E2M1 data of a block of 16.
__device__ __forceinline__ uint2 encode_block_wide(const u32 (&pairs)[8], u32 wide) {
  const u32 low[4] = {pairs[0], pairs[1], pairs[2], pairs[3]};
  const u32 high[4] = {pairs[4], pairs[5], pairs[6], pairs[7]};
  const float multiplier = min_nan(rcp_rn(float_of_wide_scale(wide)), kFloatMax);
  return make_uint2(encode_e2m1x8(low, multiplier), encode_e2m1x8(high, multiplier));
}

// The global scale of the row whose largest wide scale this is. Its byte is then 0x77 to 0x7E.
__device__ __forceinline__ GlobalScale row_scale_of(u32 largest) {
  const u32 top = max((largest + 1) >> 3, 15u);  // the exponent of a float that becomes 2^8
  return {__uint_as_float((262 - top) << 23), __uint_as_float((top - 8) << 23)};
}

__device__ __forceinline__ u32 scale_byte_of(u32 wide, float encode) {
  return encode_ue4m3(mul_rn(float_of_wide_scale(wide), encode));
}

}  // namespace nvfp4
}  // namespace cukiln
