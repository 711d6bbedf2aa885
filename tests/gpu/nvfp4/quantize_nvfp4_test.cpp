// SPDX-License-Identifier: Apache-2.0
#include <random>

#include <doctest/doctest.h>

#include <cukiln/nvfp4/nvfp4.hpp>

#include "gpu/nvfp4/matrices.hpp"
#include "gpu/nvfp4/reference.hpp"
#include "gpu/support/device.hpp"
#include "gpu/support/loader.hpp"

namespace cukiln::testing {
namespace {

constexpr std::size_t kGuard = 256;  // bytes after an output that must stay as they are
constexpr unsigned char kPoison = 0xA5;

struct Fixture {
  nvfp4::QuantizeStatic quantize = create<nvfp4::QuantizeStatic>();
  TestStream stream;
  std::mt19937_64 random{20250602};
};

void check_bytes(const std::vector<std::uint8_t>& given, const std::vector<std::uint8_t>& expected,
                 const char* what) {
  REQUIRE(given.size() == expected.size() + kGuard);
  std::size_t wrong = 0;
  std::size_t first = 0;
  for (std::size_t i = expected.size(); i-- > 0;) {
    if (given[i] != expected[i]) {
      ++wrong;
      first = i;
    }
  }
  CHECK_MESSAGE(wrong == 0, wrong, " of ", expected.size(), " bytes of ", what,
                " differ, the first at ", first);
  for (std::size_t i = expected.size(); i < given.size(); ++i) {
    REQUIRE_MESSAGE(given[i] == kPoison, what, " has a byte written after its end");
  }
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "quantize_nvfp4 equals the reference, padding included") {
  for (const std::size_t rows : {1, 127, 128, 129, 300}) {
    for (const std::size_t columns : {16, 32, 48, 64, 80, 1040}) {
      for (const Kind kind : kKinds) {
        CAPTURE(rows);
        CAPTURE(columns);
        CAPTURE(static_cast<int>(kind));
        const auto dense = random_bf16(kind, rows * columns, random);
        nvfp4::GlobalScale scale = global_scale_of(dense);
        if (std::isnan(scale.encode)) scale = global_scale_of_amax(3.0f);
        const Quantized expected = testing::quantize(dense, rows, columns, scale);
        const std::size_t row_stride = columns + 8 * (random() % 3);
        const DeviceBuffer<std::uint16_t> input(spread(dense, rows, columns, row_stride));
        DeviceBuffer<std::uint8_t> data(expected.data.size() + kGuard);
        DeviceBuffer<std::uint8_t> scales(expected.scales.size() + kGuard);
        data.fill_bytes(kPoison, stream);
        scales.fill_bytes(kPoison, stream);
        const auto signed_rows = static_cast<std::int64_t>(rows);
        const auto signed_columns = static_cast<std::int64_t>(columns);
        REQUIRE(nvfp4::data_bytes(signed_rows, signed_columns) == expected.data.size());
        REQUIRE(nvfp4::scales_bytes(signed_rows, signed_columns) == expected.scales.size());
        require_ok(quantize.launch(
            stream, {data.data(), scales.data(), nullptr, signed_rows, signed_columns},
            bf16(input.data(), rows, columns, row_stride), scale.encode));
        check_bytes(data.download(), expected.data, "data");
        check_bytes(scales.download(), expected.scales, "scales");
      }
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "quantize_nvfp4 rounds every tie of E2M1 to even") {
  // A block whose amax is 6 · 2^k has a power of two as its scale: elements round as they are.
  std::vector<std::uint16_t> host(32);
  const float values[] = {6,     0.25f,  0.75f,  1.25f,  1.75f,  2.5f,  3.5f,  5,
                          -0.0f, -0.25f, -0.75f, -1.25f, -1.75f, -2.5f, -3.5f, -5};
  for (std::size_t i = 0; i < 16; ++i) {
    host[i] = bf16_of_float(values[i]);
    host[16 + i] = bf16_of_float(values[i] * 32);
  }
  const DeviceBuffer<std::uint16_t> input(host);
  DeviceBuffer<std::uint8_t> data(16);
  DeviceBuffer<std::uint8_t> scales(512);
  require_ok(quantize.launch(stream, {data.data(), scales.data(), nullptr, 1, 32},
                             bf16(input.data(), 1, 32), 1.0f));
  const std::vector<std::uint8_t> block = {0x07, 0x22, 0x44, 0x66, 0x88, 0xAA, 0xCC, 0xEE};
  auto expected = block;
  expected.insert(expected.end(), block.begin(), block.end());
  CHECK(data.download() == expected);
  const auto given = scales.download();
  CHECK(given[0] == 0x38);  // 1
  CHECK(given[1] == 0x60);  // 32
}

TEST_CASE_FIXTURE(Fixture, "quantize_nvfp4 of nothing launches nothing") {
  require_ok(quantize.launch(stream, {nullptr, nullptr, nullptr, 0, 64},
                             {DataType::bf16, nullptr, 0, 64}, 1.0f));
}

TEST_CASE_FIXTURE(Fixture, "quantize_nvfp4 refuses what it cannot do") {
  DeviceBuffer<std::uint16_t> input(128);
  DeviceBuffer<std::uint8_t> data(64);
  DeviceBuffer<std::uint8_t> scales(512);
  const auto launch = [&](const MatrixView& from, float scale) {
    return refusal(quantize.launch(
        stream, {data.data(), scales.data(), nullptr, from.rows, from.columns}, from, scale));
  };
  CHECK(launch(bf16(input.data(), 1, 24), 1) ==
        "input is [1, 24]; expected a multiple of 16 columns, one block scale each");
  CHECK(launch(bf16(input.data(), 1, 32), 0) ==
        "encode_scale is 0; expected a positive finite number, 2688 / amax");
  CHECK(launch(bf16(input.data(), 1, 32, 33), 1) ==
        "input has a row stride of 33; expected a multiple of 8, so that rows lie on 16 bytes");
  CHECK(launch(bf16(input.data() + 1, 1, 32), 1).find("expected a multiple of 16 bytes") !=
        std::string::npos);
  CHECK(launch({DataType::bf16, nullptr, 1, 32}, 1) == "input is null; expected a device pointer");
}

}  // namespace cukiln::testing
