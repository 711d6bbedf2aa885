// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/reference/gemm.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "nvfp4/reference/formats.hpp"
#include "nvfp4/reference/quantize.hpp"

namespace cukiln::reference {
namespace {

std::size_t size_of(std::int64_t value) { return static_cast<std::size_t>(value); }

struct Quantized {
  Quantized(std::int64_t rows, std::int64_t columns, unsigned seed)
      : data(nvfp4::data_bytes(rows, columns)),
        scales(nvfp4::scales_bytes(rows, columns)),
        matrix{data.data(), scales.data(), &scale, rows, columns} {
    std::mt19937 random(seed);
    std::vector<std::uint16_t> values(size_of(rows * columns));
    for (std::uint16_t& value : values) {
      value = bf16_of_float(std::normal_distribution<float>()(random));
    }
    const MatrixView input(DataType::bf16, values.data(), rows, columns);
    scale = compute_global_scale(input);
    quantize(matrix, input);
  }

  /// Element by element, from the bytes.
  double at(std::int64_t row, std::int64_t column) const {
    const std::int64_t columns = matrix.columns;
    const std::uint8_t pair = data[size_of((row * columns + column) / 2)];
    const std::uint8_t block_scale =
        scales[nvfp4::scale_offset(size_of(row), size_of(column / 16), size_of(columns))];
    return kTwiceE2m1[column % 2 != 0 ? pair >> 4 : pair & 15] / 2.0 *
           double{decode_ue4m3(block_scale)} * double{scale.decode};
  }

  std::vector<std::uint8_t> data;
  std::vector<std::uint8_t> scales;
  nvfp4::GlobalScale scale;
  nvfp4::MutableQuantizedMatrix matrix;
};

}  // namespace

TEST_CASE("every UE4M3 number encodes to itself") {
  for (int byte = 0; byte < 0x7F; ++byte) {
    CHECK(encode_ue4m3(decode_ue4m3(static_cast<std::uint8_t>(byte))) == byte);
  }
  CHECK(encode_ue4m3(1e30f) == 0x7E);
  CHECK(encode_ue4m3(std::numeric_limits<float>::quiet_NaN()) == kNanScaleByte);
}

TEST_CASE("a GEMM's result is the exact sum, rounded once") {
  for (const std::int64_t m : {0, 1, 130}) {
    constexpr std::int64_t n = 24;
    constexpr std::int64_t k = 96;
    const Quantized a(m, k, 1);
    const Quantized b(n, k, 2);
    std::vector<std::uint16_t> bias(n, bf16_of_float(0.25f));
    std::vector<std::uint16_t> output(size_of(m * n));
    gemm({DataType::bf16, output.data(), m, n}, a.matrix, b.matrix,
         {DataType::bf16, bias.data(), n});
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0.25;
        for (std::int64_t c = 0; c < k; ++c) {
          sum += a.at(i, c) * b.at(j, c);
        }
        const double given = float_of_bf16(output[size_of(i * n + j)]);
        CHECK(std::abs(given - sum) <= std::abs(sum) / 256 + 1e-12);
      }
    }
  }
}

TEST_CASE("a GEMM with a bf16 operand takes its values as they are") {
  constexpr std::int64_t m = 5;
  constexpr std::int64_t n = 24;
  constexpr std::int64_t k = 96;
  constexpr std::int64_t stride = k + 8;
  const Quantized b(n, k, 2);
  std::mt19937 random(3);
  std::vector<std::uint16_t> values(size_of(m * stride), 0x7FC0);  // NaN between rows
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t c = 0; c < k; ++c) {
      values[size_of(i * stride + c)] = bf16_of_float(std::normal_distribution<float>()(random));
    }
  }
  std::vector<std::uint16_t> bias(n, bf16_of_float(0.25f));
  std::vector<std::uint16_t> output(size_of(m * n));
  gemm({DataType::bf16, output.data(), m, n},
       MatrixView(DataType::bf16, values.data(), m, k, stride), b.matrix,
       {DataType::bf16, bias.data(), n});
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0.25;
      for (std::int64_t c = 0; c < k; ++c) {
        sum += double{float_of_bf16(values[size_of(i * stride + c)])} * b.at(j, c);
      }
      const double given = float_of_bf16(output[size_of(i * n + j)]);
      CHECK(std::abs(given - sum) <= std::abs(sum) / 256 + 1e-12);
    }
  }
}

}  // namespace cukiln::reference
