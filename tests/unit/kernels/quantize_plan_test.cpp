#include <doctest/doctest.h>

#include "kernels/nvfp4/quantize_checks.hpp"

namespace cukiln::nvfp4 {

TEST_CASE("a quantiser's thread blocks take runs of atoms that leave no turn half empty") {
  const auto blocks = [](std::int64_t rows, std::int64_t columns) {
    return quantize_config(rows, columns).grid.x;
  };
  CHECK(blocks(1, 16) == 1);
  CHECK(blocks(128, 7168) == 112);     // one atom each
  CHECK(blocks(4096, 7168) == 512);    // seven each, in one turn: four each would take two
  CHECK(blocks(16384, 7168) == 3584);  // four each: the last ones end together
  CHECK(blocks(8192, 8192) == 2048);
}

TEST_CASE("thread blocks for gate and up are runs that few of share a multiprocessor") {
  CHECK(pairs_config(1, 16).grid.x == 2);         // the two halves of an atom
  CHECK(pairs_config(4096, 7168).grid.x == 378);  // one turn of three to a multiprocessor
  CHECK(swiglu_config(1, 16).grid.x == 1);
  CHECK(swiglu_config(4096, 7168).grid.x == 256);  // one turn of two
}

}  // namespace cukiln::nvfp4
