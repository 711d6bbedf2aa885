// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "kernels/nvfp4/quantize_checks.hpp"

namespace cukiln::nvfp4 {

TEST_CASE("a quantiser's thread blocks take runs of atoms that leave no turn half empty") {
  const auto blocks = [](std::int64_t rows, std::int64_t columns) {
    return quantize_config(rows, columns).grid.x;
  };
  CHECK(blocks(1, 16) == 1);
  CHECK(blocks(128, 7168) == 112);   // one atom each
  CHECK(blocks(2304, 7168) == 504);  // four each, in one turn: three each would take two
  CHECK(blocks(3072, 7168) == 896);  // three each, in two turns
  CHECK(blocks(4096, 7168) == 896);  // four each: three each would take nine atoms' time, not eight
  CHECK(blocks(16384, 7168) == 3584);  // four each: the last ones end together
  CHECK(blocks(8192, 8192) == 2048);
}

TEST_CASE("thread blocks for gate and up are runs, two of which share a multiprocessor") {
  CHECK(pairs_config(1, 16).grid.x == 1);
  CHECK(pairs_config(1024, 7168).grid.x == 224);  // one turn of two
  CHECK(pairs_config(4096, 7168).grid.x == 896);
  CHECK(swiglu_config(1, 16).grid.x == 1);
  CHECK(swiglu_config(4096, 7168).grid.x == 256);  // one turn of two
}

}  // namespace cukiln::nvfp4
