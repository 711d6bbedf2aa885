// SPDX-License-Identifier: Apache-2.0
#pragma once

// NVFP4 on the CPU, written from the formats' definitions and TransformerEngine's formula, sharing
// nothing with the kernels.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <cukiln/nvfp4/nvfp4.hpp>

namespace cukiln::testing {

inline float float_of_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// To nearest, ties to even; NaN stays NaN.
inline std::uint16_t bf16_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/// The clamped SwiGLU of gate and up.
inline double swiglu(double gate, double up, const nvfp4::SwiGlu& activation) {
  const double limit = activation.limit;
  const double g = std::min(gate, limit);
  const double u = std::clamp(up, -limit, limit);
  return g / (1 + std::exp(-activation.alpha * g)) * (u + activation.beta);
}

inline float float_of_ue4m3(int byte) {
  const int exponent = byte >> 3;
  const int mantissa = byte & 7;
  if (byte == 0x7F) return std::numeric_limits<float>::quiet_NaN();
  return exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                       : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
}

/// The nearest of the 127 values, the even byte at a tie, the largest beyond the largest.
inline std::uint8_t ue4m3_of_float(float value) {
  if (std::isnan(value)) return 0x7F;
  int best = 0;
  for (int byte = 1; byte < 0x7F; ++byte) {
    const double distance = std::abs(static_cast<double>(value) - float_of_ue4m3(byte));
    const double shortest = std::abs(static_cast<double>(value) - float_of_ue4m3(best));
    if (distance < shortest || (distance == shortest && byte % 2 == 0)) best = byte;
  }
  return static_cast<std::uint8_t>(std::isinf(value) ? 0x7E : best);
}

/// The code of the nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6, the even code at a tie, 6 beyond; bit 3
/// is the sign, of zero too.
inline std::uint8_t e2m1_of_float(float value) {
  static constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const double magnitude = std::min(std::abs(static_cast<double>(value)), 6.0);
  int best = 0;
  for (int code = 1; code < 8; ++code) {
    const double distance = std::abs(magnitude - kValues[code]);
    const double shortest = std::abs(magnitude - kValues[best]);
    if (distance < shortest || (distance == shortest && code % 2 == 0)) best = code;
  }
  return static_cast<std::uint8_t>(best | (std::signbit(value) ? 8 : 0));
}

inline nvfp4::GlobalScale global_scale_of_amax(float amax, float divisor = 2688) {
  const float largest = std::numeric_limits<float>::max();
  if (std::isnan(amax)) return {amax, amax};
  if (amax == 0) return {};
  const float encode = std::min(divisor / amax, largest);
  if (encode == 0) return {};
  return {encode, 1.0f / encode};
}

/// NaN wherever there is one.
inline float amax_of(const std::vector<std::uint16_t>& values) {
  float amax = 0;
  for (const std::uint16_t bits : values) {
    const float value = std::abs(float_of_bf16(bits));
    if (std::isnan(value)) return value;
    amax = std::max(amax, value);
  }
  return amax;
}

inline nvfp4::GlobalScale global_scale_of(const std::vector<std::uint16_t>& values) {
  return global_scale_of_amax(amax_of(values));
}

struct Quantized {
  std::vector<std::uint8_t> data;
  std::vector<std::uint8_t> scales;
};

/// TransformerEngine's formula, or vLLM's with correctly rounded reciprocals.
enum class Rounding { transformer_engine, vllm };

/// Dense rows.
inline Quantized quantize(const std::vector<std::uint16_t>& input, std::size_t rows,
                          std::size_t columns, nvfp4::GlobalScale scale,
                          Rounding rounding = Rounding::transformer_engine) {
  const bool vllm = rounding == Rounding::vllm;
  const std::size_t atoms_per_row = (columns + 63) / 64;
  Quantized out{std::vector<std::uint8_t>(rows * columns / 2),
                std::vector<std::uint8_t>((rows + 127) / 128 * atoms_per_row * 512)};
  const float factor = scale.encode * (1.0f / 6.0f);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t block = 0; block < columns / 16; ++block) {
      const std::uint16_t* values = &input[row * columns + block * 16];
      float amax = 0;
      for (int i = 0; i < 16; ++i) {
        const float value = std::abs(float_of_bf16(values[i]));
        if (!std::isnan(amax) && !(value <= amax)) amax = value;
      }
      const std::uint8_t block_scale =
          ue4m3_of_float(vllm ? scale.encode * (amax * (1.0f / 6.0f)) : amax * factor);
      out.scales[(row / 128 * atoms_per_row + block / 4) * 512 + row % 32 * 16 + row / 32 % 4 * 4 +
                 block % 4] = block_scale;
      if (block_scale == 0 || block_scale == 0x7F) continue;
      float decode = scale.decode;
      if (vllm && decode < std::numeric_limits<float>::min()) decode = 0;  // approximate ones flush
      const float multiplier = std::min(1.0f / (float_of_ue4m3(block_scale) * decode),
                                        std::numeric_limits<float>::max());
      for (std::size_t i = 0; i < 16; ++i) {
        const std::uint8_t code = e2m1_of_float(float_of_bf16(values[i]) * multiplier);
        out.data[(row * columns + block * 16 + i) / 2] |=
            static_cast<std::uint8_t>(code << (i % 2 * 4));
      }
    }
  }
  return out;
}

/// Random matrices that find different faults.
enum class Kind {
  normal,
  heavy_tail,
  any_finite,
  subnormal,
  zeros,
  one_nan,
  one_infinity,
  outlier
};
inline constexpr Kind kKinds[] = {Kind::normal,       Kind::heavy_tail, Kind::any_finite,
                                  Kind::subnormal,    Kind::zeros,      Kind::one_nan,
                                  Kind::one_infinity, Kind::outlier};

inline std::vector<std::uint16_t> random_bf16(Kind kind, std::size_t count,
                                              std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::student_t_distribution<float> heavy(2);
  std::vector<std::uint16_t> values(count);
  for (std::uint16_t& value : values) {
    const auto bits = static_cast<std::uint16_t>(random());
    switch (kind) {
      case Kind::heavy_tail: value = bf16_of_float(heavy(random)); break;
      case Kind::any_finite: value = (bits & 0x7F80) == 0x7F80 ? bits & 0x8FFF : bits; break;
      case Kind::subnormal: value = bits & 0x807F; break;
      case Kind::zeros: value = bits & 0x8000; break;
      case Kind::outlier: value = bf16_of_float(normal(random) * 1e-3f); break;
      default: value = bf16_of_float(normal(random));
    }
  }
  if (kind == Kind::one_nan) values[random() % count] = 0xFFC1;
  if (kind == Kind::one_infinity) values[random() % count] = 0xFF80;
  if (kind == Kind::outlier) values[random() % count] = bf16_of_float(1344.0f);
  return values;
}

/// Rows `row_stride` apart, the gaps full of NaN.
inline std::vector<std::uint16_t> spread(const std::vector<std::uint16_t>& dense, std::size_t rows,
                                         std::size_t columns, std::size_t row_stride) {
  std::vector<std::uint16_t> out(rows * row_stride, 0x7FC0);
  for (std::size_t row = 0; row < rows; ++row) {
    std::copy_n(&dense[row * columns], columns, &out[row * row_stride]);
  }
  return out;
}

inline bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

}  // namespace cukiln::testing
