// SPDX-License-Identifier: Apache-2.0
#pragma once

// What device_source.py makes of asm statements: a function for each PTX instruction.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

// PTX, as its specification has it. The host rounds to nearest even and keeps subnormals.
namespace ptx {

inline float f32(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline float saturated(float x) { return x > 0 ? std::min(x, 1.0f) : 0.0f; }
inline float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}

inline void griddepcontrol_wait() {}  // kernels run one after the other
inline void griddepcontrol_launch_dependents() {}
// Reads, so that an invalid address is noticed.
inline void prefetch_global_L2(const void* at) { *static_cast<const volatile char*>(at); }

inline float add_rn_f32(float a, float b) { return a + b; }
inline float mul_rn_f32(float a, float b) { return a * b; }
inline float div_rn_f32(float a, float b) { return a / b; }
inline float rcp_rn_f32(float a) { return 1 / a; }
inline float fma_rn_f32(float a, float b, float c) { return std::fma(a, b, c); }
inline float mul_rn_sat_f32(float a, float b) { return saturated(a * b); }
inline float fma_rn_sat_f32(float a, float b, float c) { return saturated(std::fma(a, b, c)); }
inline float rcp_approx_ftz_f32(float a) { return flushed(1 / flushed(a)); }
inline float ex2_approx_ftz_f32(float a) { return flushed(std::exp2(flushed(a))); }
inline float min_NaN_f32(float a, float b) {
  return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b);
}
inline float min_NaN_xorsign_abs_f32(float a, float b) {
  const float magnitude = min_NaN_f32(std::fabs(a), std::fabs(b));
  return std::signbit(a) != std::signbit(b) ? -magnitude : magnitude;
}
inline std::uint32_t max_u16x2(std::uint32_t a, std::uint32_t b) {
  return std::max(a & 0xFFFF0000, b & 0xFFFF0000) | std::max(a & 0xFFFF, b & 0xFFFF);
}
inline std::uint32_t bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::isnan(x) ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
inline std::uint32_t cvt_rn_bf16x2_f32(float high, float low) {
  return bf16(high) << 16 | bf16(low);
}

// To the nearest float of so many mantissa bits, ties to even, the largest beyond the largest.
inline std::uint32_t rounded(float x, int mantissa_bits, int lowest_exponent,
                             std::uint32_t largest) {
  const float magnitude = std::fabs(x);
  if (magnitude == 0) return 0;
  const int exponent = std::max(std::ilogb(magnitude), lowest_exponent);
  const double steps = std::nearbyint(std::ldexp(double{magnitude}, mantissa_bits - exponent));
  const double code = steps + std::ldexp(exponent - lowest_exponent, mantissa_bits);
  return code >= largest ? largest : static_cast<std::uint32_t>(code);
}
inline std::uint32_t e4m3(float x) {
  return std::isnan(x) ? 0x7F : rounded(x, 3, -6, 0x7E) | (std::signbit(x) ? 0x80 : 0);
}
inline std::uint32_t e2m1(float x) {
  return std::isnan(x) ? 7 : rounded(x, 1, 0, 7) | (std::signbit(x) ? 8 : 0);
}
inline std::uint16_t cvt_rn_satfinite_e4m3x2_f32(float high, float low) {
  return static_cast<std::uint16_t>(e4m3(high) << 8 | e4m3(low));
}
inline std::uint32_t cvt_rn_satfinite_e2m1x2_f32(float high, float low) {
  return e2m1(high) << 4 | e2m1(low);
}
inline std::uint32_t mov_b32(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  return a | b << 8 | c << 16 | d << 24;
}

}  // namespace ptx
