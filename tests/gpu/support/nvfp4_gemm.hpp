// SPDX-License-Identifier: Apache-2.0
#pragma once

// Random NVFP4 matrices for tests, and their GEMMs in double.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include <cukiln/nvfp4/nvfp4.hpp>

namespace cukiln::testing {

/// A quantised matrix [rows, k] in host memory.
struct HostMatrix {
  std::int64_t rows, k;
  std::vector<std::uint8_t> data, scales;
  std::vector<float> values;  ///< decoded, without the global scale

  float at(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * k + column)];
  }
  nvfp4::QuantizedMatrix view(const nvfp4::GlobalScale* global_scale) const {
    return {data.data(), scales.data(), global_scale, rows, k};
  }
};

/// Makes a matrix of every E2M1 value, with block scales that keep sums small. The block scales of
/// padding rows are NaN, because no kernel may use them; those beyond k are 0, as the quantisers
/// write them.
inline HostMatrix random_matrix(std::int64_t rows, std::int64_t k, std::mt19937& random) {
  constexpr float kMagnitude[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const auto columns = static_cast<std::size_t>(k);
  HostMatrix made{rows, k, std::vector<std::uint8_t>(nvfp4::data_bytes(rows, k)),
                  std::vector<std::uint8_t>(nvfp4::scales_bytes(rows, k), 0x7F),
                  std::vector<float>(static_cast<std::size_t>(rows) * columns)};
  for (std::uint8_t& byte : made.data) {
    byte = static_cast<std::uint8_t>(random());
  }
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    for (std::size_t block = 0; block < (columns + 63) / 64 * 4; ++block) {
      const auto scale = static_cast<std::uint8_t>(block < columns / 16 ? 0x28 + random() % 40 : 0);
      made.scales[nvfp4::scale_offset(row, block, columns)] = scale;
      const float factor = std::ldexp(1 + static_cast<float>(scale & 7) / 8, (scale >> 3) - 7);
      for (std::size_t i = block * 16; i < block * 16 + 16 && i < columns; ++i) {
        const std::size_t at = row * columns + i;
        const unsigned code = made.data[at / 2] >> at % 2 * 4 & 15;
        made.values[at] = kMagnitude[code & 7] * factor * ((code & 8) != 0 ? -1.0f : 1.0f);
      }
    }
  }
  return made;
}

/// In bf16, from 8 to 128.
inline std::vector<std::uint16_t> random_bias(std::int64_t count, std::mt19937& random) {
  std::vector<std::uint16_t> made(static_cast<std::size_t>(count));
  for (std::uint16_t& value : made) {
    value = static_cast<std::uint16_t>(0x4100 + random() % 512);
  }
  return made;
}

inline float float_of(std::uint16_t bf16) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(bf16) << 16);
}

/// Whether `given` is the dot product of row `row` of A and row `column` of B, to half a unit of
/// bf16 and the error of sums of floats.
inline bool is_dot_product(std::uint16_t given, const HostMatrix& a, std::int64_t row,
                           const HostMatrix& b, std::int64_t column, double alpha, double bias) {
  double sum = 0;
  double magnitude = 0;
  for (std::int64_t i = 0; i < a.k; ++i) {
    const double product = double{a.at(row, i)} * b.at(column, i);
    sum += product;
    magnitude += std::fabs(product);
  }
  const double want = sum * alpha + bias;
  return std::fabs(float_of(given) - want) <= std::fabs(want) / 256 + magnitude * alpha * 2e-6;
}

}  // namespace cukiln::testing
