// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <cukiln/nvfp4/nvfp4.hpp>

#include "gpu/nvfp4/gemm_operands.hpp"
#include "gpu/nvfp4/matrices.hpp"
#include "gpu/nvfp4/reference.hpp"
#include "gpu/support/device.hpp"
#include "gpu/support/loader.hpp"

namespace cukiln::testing {
namespace {

constexpr std::uint16_t kBf16Nan = 0x7FC0;
constexpr std::uint16_t kBf16Infinity = 0x7F80;

/// bf16 tokens on both sides, with a gap of NaN after each row.
struct Tokens {
  Tokens(std::size_t row_count, std::size_t column_count, std::mt19937_64& random)
      : rows(row_count), columns(column_count), values(row_count * stride(), kBf16Nan) {
    const auto drawn = random_bf16(Kind::normal, rows * columns, random);
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      value(i / columns, i % columns) = drawn[i];
    }
  }

  std::size_t stride() const { return columns + 8; }
  std::uint16_t& value(std::size_t row, std::size_t column) {
    return values[row * stride() + column];
  }
  double at(std::size_t row, std::size_t column) const {
    return float_of_bf16(values[row * stride() + column]);
  }

  std::size_t rows;
  std::size_t columns;
  std::vector<std::uint16_t> values;
};

struct W4a16Fixture {
  std::vector<std::uint16_t> multiply(const Tokens& a, const HostOperand& b,
                                      const std::vector<std::uint16_t>& bias,
                                      nvfp4::GemmOptions options = {}) {
    const DeviceBuffer<std::uint16_t> tokens(a.values);
    const DeviceOperand weights(b);
    const DeviceBuffer<std::uint16_t> device_bias(bias);
    DeviceBuffer<std::uint16_t> output(a.rows * b.rows + 8);
    output.fill_bytes(0xA5, stream);
    const auto m = static_cast<std::int64_t>(a.rows);
    DeviceBuffer<std::uint8_t> space(gemm.workspace_bytes(m, weights.rows, weights.columns));
    space.fill_bytes(0xFF, stream);
    if (!bias.empty()) {
      options.bias = {DataType::bf16, device_bias.data(), weights.rows};
    }
    require_ok(gemm.launch(stream, bf16(output.data(), m, weights.rows),
                           bf16(tokens.data(), m, weights.columns, a.stride()), weights.view(),
                           {space.data(), space.bytes()}, options));
    auto given = output.download();
    for (int i = 0; i < 8; ++i) {
      REQUIRE_MESSAGE(given.back() == 0xA5A5, "written after the end");
      given.pop_back();
    }
    return given;
  }

  nvfp4::W4a16Gemm gemm = create<nvfp4::W4a16Gemm>();
  TestStream stream;
  std::mt19937_64 random{20261126};
};

/// Compares the results of every row of B, or of one in `step`, with sums in double.
void check_w4a16(const std::vector<std::uint16_t>& given, const Tokens& a, const HostOperand& b,
                 const std::vector<std::uint16_t>& bias, std::size_t step = 1) {
  std::size_t wrong = 0;
  for (std::size_t j = 0; j < b.rows; j += step) {
    std::vector<double> row(b.columns);
    for (std::size_t k = 0; k < b.columns; ++k) row[k] = b.at(j, k);
    for (std::size_t i = 0; i < a.rows; ++i) {
      double sum = 0;
      double size = 0;
      for (std::size_t k = 0; k < b.columns; ++k) {
        sum += a.at(i, k) * row[k];
        size += std::abs(a.at(i, k) * row[k]);
      }
      const double decode = b.global_scale.decode;
      const double value = sum * decode + (bias.empty() ? 0.0 : float_of_bf16(bias[j]));
      const double tolerance = std::abs(value) * 0x1p-8 + size * decode * 0x1p-18;
      const double difference = std::abs(float_of_bf16(given[i * b.rows + j]) - value);
      wrong += !(difference <= tolerance);
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE_FIXTURE(W4a16Fixture, "every W4A16 tactic equals the reference for every kind of shape") {
  struct Shape {
    std::size_t m, n, k;
  };
  for (const Shape shape : {Shape{1, 8, 32},
                            {3, 264, 736},
                            {7, 1032, 4128},
                            {8, 136, 96},
                            {9, 200, 64},
                            {16, 520, 8224},
                            {17, 136, 224},
                            {32, 520, 2080},
                            {40, 264, 2592},
                            {64, 328, 1568},
                            {65, 120, 288},
                            {100, 328, 1568},
                            {128, 264, 2592},
                            {130, 520, 352},
                            {260, 264, 2080},
                            {300, 520, 544}}) {
    const Tokens a(shape.m, shape.k, random);
    const HostOperand b = random_operand(shape.n, shape.k, 1.3e-3f, random);
    const auto bias = random_bf16(Kind::normal, shape.n, random);
    const int tactics =
        gemm.tactics(static_cast<std::int64_t>(shape.m), static_cast<std::int64_t>(shape.n),
                     static_cast<std::int64_t>(shape.k));
    REQUIRE(tactics >= 3);
    for (int tactic = -1; tactic < tactics; ++tactic) {
      CAPTURE(shape.m);
      CAPTURE(shape.n);
      CAPTURE(shape.k);
      CAPTURE(tactic);
      const auto given = multiply(a, b, bias, {.tactic = tactic});
      check_w4a16(given, a, b, bias);
      CHECK(multiply(a, b, bias, {.constant_b = true, .tactic = tactic}) == given);
    }
  }
}

TEST_CASE_FIXTURE(W4a16Fixture, "rows of B behind the last whole wave are computed too") {
  constexpr std::size_t kN = 17416;  // 132 SMs: 132 tiles of 128 rows and 5
  const HostOperand b = random_operand(kN, 4128, 1.3e-3f, random);
  const auto bias = random_bf16(Kind::normal, kN, random);
  for (const std::size_t m : {32, 60, 128, 130}) {
    const Tokens a(m, b.columns, random);
    const auto rows = static_cast<std::int64_t>(m);
    for (int tactic = -1; tactic < gemm.tactics(rows, kN, 4128); ++tactic) {
      CAPTURE(m);
      CAPTURE(tactic);
      const auto given = multiply(a, b, bias, {.tactic = tactic});
      check_w4a16(given, a, b, bias, 41);
      CHECK(multiply(a, b, bias, {.tactic = tactic}) == given);
    }
  }
}

TEST_CASE_FIXTURE(W4a16Fixture, "every element with every block scale is exact") {
  constexpr std::size_t kK = 2048;  // 128 blocks: block i has the scale byte i
  constexpr std::size_t kN = 16;
  HostOperand b = random_operand(kN, kK, 1, random);
  for (std::size_t j = 0; j < kN; ++j) {
    for (std::size_t k = 0; k < kK; k += 2) {
      b.data[(j * kK + k) / 2] = static_cast<std::uint8_t>((k + j) % 16 | (k + j + 1) % 16 << 4);
    }
    for (std::size_t block = 0; block < kK / 16; ++block) {
      b.scale(j, block) = static_cast<std::uint8_t>(block % 0x7F);
    }
  }
  for (const std::size_t m : {8, 16, 32, 64, 128}) {
    CAPTURE(m);
    std::size_t wrong = 0;
    for (std::size_t first = 0; first < kK; first += m) {
      Tokens a(m, kK, random);
      for (std::size_t i = 0; i < m; ++i) {
        for (std::size_t k = 0; k < kK; ++k) a.value(i, k) = k == first + i ? 0x3F80 : 0;
      }
      const auto given = multiply(a, b, {});
      for (std::size_t i = 0; i < given.size(); ++i) {
        wrong += float_of_bf16(given[i]) != b.at(i % kN, first + i / kN);
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE_FIXTURE(W4a16Fixture, "NaN and infinities reach their rows and columns, and no other") {
  for (const std::size_t m : {5, 16, 32, 64, 150}) {
    CAPTURE(m);
    constexpr std::size_t kN = 264;
    HostOperand b = random_operand(kN, 160, 1, random);
    for (std::uint8_t& pair : b.data) pair |= 0x11;  // no zeros
    b.scale(130, 0) = 0x7F;
    for (std::size_t j = 0; j < kN; ++j) b.scale(j, 9) = 0x38;  // nor here: 1
    Tokens a(m, 160, random);
    a.value(1, 7) = kBf16Nan;
    a.value(3, 159) = kBf16Infinity;
    const auto given = multiply(a, b, {});
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < given.size(); ++i) {
      const float value = float_of_bf16(given[i]);
      const bool is_nan = i / kN == 1 || i % kN == 130;
      wrong += std::isnan(value) != is_nan;
      wrong += !is_nan && std::isinf(value) != (i / kN == 3);
      if (!is_nan && i / kN == 3) wrong += (value < 0) != (b.at(i % kN, 159) < 0);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE_FIXTURE(W4a16Fixture,
                  "W4A16 launches in a row, each started early, give the same bytes") {
  for (const std::size_t m : {1, 16, 32, 64, 128, 130}) {
    CAPTURE(m);
    constexpr std::size_t kN = 1032;
    constexpr std::size_t kK = 3104;
    const auto rows = static_cast<std::int64_t>(m);
    const Tokens host(m, kK, random);
    const DeviceBuffer<std::uint16_t> a(host.values);
    const DeviceOperand b(random_operand(kN, kK, 1, random));
    DeviceBuffer<std::uint8_t> space(gemm.workspace_bytes(rows, kN, kK));
    DeviceBuffer<std::uint16_t> output(m * kN);
    const auto launch = [&](bool constant_b) {
      require_ok(gemm.launch(stream, bf16(output.data(), m, kN),
                             bf16(a.data(), m, kK, host.stride()), b.view(),
                             {space.data(), space.bytes()}, {.constant_b = constant_b}));
    };
    launch(false);
    const auto first = output.download();
    for (int i = 0; i < 20; ++i) launch(i % 2 == 0);
    CHECK(output.download() == first);
    TestGraph graph(stream, [&] { launch(true); });
    output.fill_bytes(0, stream);
    graph.launch(stream);
    stream.synchronize();
    CHECK(output.download() == first);
  }
}

TEST_CASE_FIXTURE(W4a16Fixture, "W4A16 reads weights and tokens that the kernel before it writes") {
  const auto quantize = create<nvfp4::QuantizeStatic>();
  for (const std::size_t m : {1, 16, 32, 40, 70}) {
    CAPTURE(m);
    constexpr std::size_t kN = 1024;
    constexpr std::size_t kK = 7168;
    const auto rows = static_cast<std::int64_t>(m);
    const DeviceOperand b(random_operand(kN, kK, 1, random));
    const Tokens host(m, kK, random);
    const DeviceBuffer<std::uint16_t> a(host.values);
    DeviceBuffer<std::uint8_t> space(gemm.workspace_bytes(rows, kN, kK));
    DeviceBuffer<std::uint16_t> early(m * kN);
    DeviceBuffer<std::uint16_t> late(m * kN);
    const auto launch = [&](DeviceBuffer<std::uint16_t>& output) {
      require_ok(gemm.launch(stream, bf16(output.data(), m, kN),
                             bf16(a.data(), m, kK, host.stride()), b.view(),
                             {space.data(), space.bytes()}));
    };
    for (int i = 0; i < 4; ++i) {
      const DeviceBuffer<std::uint16_t> input(random_bf16(Kind::normal, kN * kK, random));
      require_ok(quantize.launch(stream, b.view(), bf16(input.data(), kN, kK), 100.0f));
      launch(early);
      stream.synchronize();
      launch(late);
      CHECK(early.download() == late.download());
    }
  }
}

}  // namespace cukiln::testing
