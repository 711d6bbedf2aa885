// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/base/portable.hpp"

/// The number formats of NVFP4 on a CPU, as in `kernels_src/nvfp4/nvfp4_numerics.cuh`.
namespace cukiln::reference {

inline constexpr std::int64_t kBlock = 16;  ///< elements that share a scale
inline constexpr float kFloatMax = std::numeric_limits<float>::max();
inline constexpr std::uint8_t kNanScaleByte = 0x7F;

inline float float_of_bf16(std::uint16_t bits) noexcept {
  return bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Round to nearest even; NaN stays one.
inline std::uint16_t bf16_of_float(float value) noexcept {
  const auto bits = bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) {
    return 0x7FFF;
  }
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/// Encodes a value that is not negative. Rounds to nearest even and saturates at 448.
inline std::uint8_t encode_ue4m3(float value) noexcept {
  if (std::isnan(value)) {
    return kNanScaleByte;
  }
  constexpr float kLargest = 448.0f;
  constexpr float kSmallestNormal = 0x1p-6f;
  value = std::min(value, kLargest);
  if (value < kSmallestNormal) {  // one unit of 2^-9 is one in the last place of 2^14
    return static_cast<std::uint8_t>(bit_cast<std::uint32_t>(value + 0x1p14f));
  }
  const auto bits = bit_cast<std::uint32_t>(value);
  return static_cast<std::uint8_t>(((bits + 0x7FFFF + (bits >> 20 & 1)) >> 20) - (120u << 3));
}

inline float decode_ue4m3(std::uint8_t byte) noexcept {
  if (byte == kNanScaleByte) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return bit_cast<float>(static_cast<std::uint32_t>(byte) << 20) * 0x1p120f;
}

/// Encodes a magnitude as 0 to 7. Rounds to nearest even and saturates at 6; NaN becomes 0. E2M1
/// has steps of 1/2 below 2, of 1 below 4 and of 2 below 6: each range is added to 2^23 in units of
/// its own step, so that the additions round.
inline std::uint32_t encode_e2m1(float magnitude) noexcept {
  const auto saturate = [](float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; };
  const float half = magnitude * 0.5f;
  float code = 0x1p23f + saturate(half) * 4.0f;
  code += saturate(half - 1.0f) * 2.0f;
  code += saturate(half - 2.0f);
  return bit_cast<std::uint32_t>(code) & 0xF;
}

/// Twice the value of each E2M1 encoding, which is an integer.
inline constexpr std::int16_t kTwiceE2m1[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                0, -1, -2, -3, -4, -6, -8, -12};

/// Minimum and maximum that return NaN where an operand is NaN.
template <class Float>
Float min_nan(Float a, Float b) noexcept {
  return std::isnan(a) || a < b ? a : b;
}
template <class Float>
Float max_nan(Float a, Float b) noexcept {
  return std::isnan(a) || a > b ? a : b;
}

}  // namespace cukiln::reference
