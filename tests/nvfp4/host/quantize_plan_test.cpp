// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "nvfp4/host/quantize_launch.hpp"

namespace cukiln::nvfp4 {

namespace {

constexpr std::int64_t kH200 = 132;  // SMs

std::uint32_t grid(std::int64_t rows, std::int64_t columns, std::int64_t wave_blocks,
                   const TilesPerBlock& range) {
  return quantize_config(rows, columns, wave_blocks, range).grid.x;
}

}  // namespace

TEST_CASE("a quantiser's thread blocks take tiles that leave no wave half empty") {
  const auto blocks = [](std::int64_t rows, std::int64_t columns) {
    return grid(rows, columns, 4 * kH200, kQuantizeTiles);
  };
  CHECK(blocks(1, 16) == 1);
  CHECK(blocks(128, 7168) == 112);   // one atom each
  CHECK(blocks(2304, 7168) == 504);  // four each, in one wave: three each would take two
  CHECK(blocks(3072, 7168) == 896);  // three each, in two waves
  CHECK(blocks(4096, 7168) == 896);  // four each: three each would take nine tiles' time, not eight
  CHECK(blocks(16384, 7168) == 3584);  // four each: the last ones end together
  CHECK(blocks(8192, 8192) == 2048);
}

TEST_CASE("thread blocks for gate and up take tiles, and two share an SM") {
  const auto pairs = [](std::int64_t rows, std::int64_t columns) {
    return grid(rows, columns, 2 * kH200, kPairsTiles);
  };
  CHECK(pairs(1, 16) == 1);
  CHECK(pairs(1024, 7168) == 224);  // one wave
  CHECK(pairs(4096, 7168) == 896);
  const auto swiglu = [](std::int64_t rows, std::int64_t columns) {
    return grid(rows, columns, 2 * kH200, kSwiGluTiles);
  };
  CHECK(swiglu(1, 16) == 1);
  CHECK(swiglu(4096, 7168) == 256);  // one wave
}

TEST_CASE("a device with more room for thread blocks gets more of them") {
  CHECK(grid(2304, 7168, 4 * 132, kQuantizeTiles) == 504);
  CHECK(grid(2304, 7168, 4 * 148, kQuantizeTiles) == 504);
  CHECK(grid(2304, 7168, 4 * 264, kQuantizeTiles) == 1008);  // two each
  CHECK(grid(2304, 7168, 1, kQuantizeTiles) == 672);         // never more than measured
}

}  // namespace cukiln::nvfp4
