// SPDX-License-Identifier: Apache-2.0
#pragma once

// Dequantisation and mma.sync, beside ptx.hpp, for code that has threadIdx and __byte_perm.

#include <array>

#include "ptx.hpp"

namespace ptx {

// ---- Bits, and 16-bit floats. Subnormals are kept.

inline std::uint32_t prmt_b32(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  return __byte_perm(a, b, selector);
}
inline std::uint32_t lop3_b32(std::uint32_t a, std::uint32_t b, std::uint32_t c, unsigned table) {
  std::uint32_t result = 0;
  for (int bit = 0; bit < 32; ++bit) {
    const unsigned index = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1);
    result |= (table >> index & 1) << bit;
  }
  return result;
}
inline float of_bf16(std::uint32_t bits) { return f32(bits << 16); }
inline float of_f16(std::uint32_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  const float magnitude = exponent == 31 ? (mantissa != 0 ? NAN : INFINITY)
                          : exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -24)
                              : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}
inline std::uint32_t f16(float x) {
  return (std::isnan(x) ? 0x7FFF : rounded(x, 10, -14, 0x7C00)) | (std::signbit(x) ? 0x8000 : 0);
}
inline std::uint32_t mul_rn_bf16x2(std::uint32_t a, std::uint32_t b) {
  return bf16(of_bf16(a & 0xFFFF) * of_bf16(b & 0xFFFF)) | bf16(of_bf16(a >> 16) * of_bf16(b >> 16))
                                                               << 16;
}
inline std::uint32_t mul_rn_f16x2(std::uint32_t a, std::uint32_t b) {
  return f16(of_f16(a & 0xFFFF) * of_f16(b & 0xFFFF)) | f16(of_f16(a >> 16) * of_f16(b >> 16))
                                                            << 16;
}
inline float of_e4m3(std::uint32_t byte) {
  const int exponent = byte >> 3 & 15;
  const int mantissa = byte & 7;
  const float magnitude = (byte & 0x7F) == 0x7F ? NAN
                          : exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (byte & 0x80) != 0 ? -magnitude : magnitude;
}
inline std::uint32_t cvt_rn_f16x2_e4m3x2(std::uint32_t bytes) {
  return f16(of_e4m3(bytes & 0xFF)) | f16(of_e4m3(bytes >> 8 & 0xFF)) << 16;
}
inline std::uint32_t cvt_f32_f16(std::uint32_t bits) {
  return std::bit_cast<std::uint32_t>(of_f16(bits & 0xFFFF));
}

// ---- mma.sync m16n8k16: sums in double, rounded to float at the end.

using MmaOperands = std::array<std::uint32_t, 6>;  // of a lane: A's four, B's two

/// Gives the other lanes of the warp this one's operands, and returns those of all. They stay until
/// the lane's next but one exchange. Defined by what runs the threads.
const MmaOperands* exchange_operands(const MmaOperands& own);

template <class Convert>
void mma_m16n8k16(float* (&sum)[4], const MmaOperands& own, Convert convert) {
  const MmaOperands* const lanes = exchange_operands(own);
  const unsigned lane = threadIdx.x % 32;
  const auto half = [&](std::uint32_t pair, unsigned k) {
    return double{convert(k % 2 == 0 ? pair & 0xFFFF : pair >> 16)};
  };
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4;
    const unsigned column = lane % 4 * 2 + i % 2;
    double total = *sum[i];
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned t = k % 8 / 2;
      total += half(lanes[row * 4 + t][k / 8 * 2 + i / 2], k) *
               half(lanes[column * 4 + t][4 + k / 8], k);
    }
    *sum[i] = static_cast<float>(total);
  }
}
inline void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(float& d0, float& d1, float& d2,
                                                                float& d3, std::uint32_t a0,
                                                                std::uint32_t a1, std::uint32_t a2,
                                                                std::uint32_t a3, std::uint32_t b0,
                                                                std::uint32_t b1, float, float,
                                                                float, float) {
  float* sum[4] = {&d0, &d1, &d2, &d3};
  mma_m16n8k16(sum, {a0, a1, a2, a3, b0, b1}, of_bf16);
}
inline void mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float& d0, float& d1, float& d2,
                                                              float& d3, std::uint32_t a0,
                                                              std::uint32_t a1, std::uint32_t a2,
                                                              std::uint32_t a3, std::uint32_t b0,
                                                              std::uint32_t b1, float, float, float,
                                                              float) {
  float* sum[4] = {&d0, &d1, &d2, &d3};
  mma_m16n8k16(sum, {a0, a1, a2, a3, b0, b1}, of_f16);
}

}  // namespace ptx
