// SPDX-License-Identifier: Apache-2.0
#include "reference/gemm.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "reference/formats.hpp"
#include "reference/quantize.hpp"

namespace cukiln::reference {
namespace {

std::size_t size_of(std::int64_t value) { return static_cast<std::size_t>(value); }

struct Quantized {
  Quantized(std::int64_t rows, std::int64_t columns, unsigned seed)
      : codes(nvfp4::codes_bytes(rows, columns)), scales(nvfp4::scales_bytes(rows, columns)) {
    std::mt19937 random(seed);
    std::vector<std::uint16_t> values(size_of(rows * columns));
    for (std::uint16_t& value : values) {
      value = bf16_of_float(std::normal_distribution<float>()(random));
    }
    const Bf16View view = {values.data(), rows, columns, columns};
    const GlobalScale scale = amax_gsa(view);
    quantize(codes.data(), scales.data(), view, scale);
    gsa[0] = scale.encode;
    gsa[1] = scale.decode;
  }

  nvfp4::Matrix matrix() const { return {codes.data(), scales.data(), gsa}; }

  /// Element by element, from the bytes.
  double at(std::int64_t row, std::int64_t column, std::int64_t columns) const {
    const std::uint8_t pair = codes[size_of((row * columns + column) / 2)];
    const std::uint8_t scale =
        scales[nvfp4::scale_offset(size_of(row), size_of(column / 16), size_of(columns))];
    return kTwiceE2m1[column % 2 != 0 ? pair >> 4 : pair & 15] / 2.0 * double{decode_ue4m3(scale)} *
           double{gsa[1]};
  }

  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;
  float gsa[2];
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
    gemm(output.data(), a.matrix(), b.matrix(), bias.data(), m, n, k);
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0.25;
        for (std::int64_t c = 0; c < k; ++c) {
          sum += a.at(i, c, k) * b.at(j, c, k);
        }
        const double given = float_of_bf16(output[size_of(i * n + j)]);
        CHECK(std::abs(given - sum) <= std::abs(sum) / 256 + 1e-12);
      }
    }
  }
}

}  // namespace cukiln::reference
