// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/host/ceil_div.hpp"

#include <cstdint>
#include <limits>
#include <type_traits>

#include <doctest/doctest.h>

using cukiln::kernels::ceil_div;

TEST_CASE("a division is rounded up in the wider of both types, up to its largest number") {
  CHECK(ceil_div(0, 128) == 0);
  CHECK(ceil_div(1, 128) == 1);
  CHECK(ceil_div(128, 128) == 1);
  CHECK(ceil_div(129, 128) == 2);
  constexpr std::uint32_t kMax = std::numeric_limits<std::uint32_t>::max();
  CHECK(ceil_div(kMax, 2u) == 1u << 31);
  CHECK(ceil_div(kMax, kMax) == 1);
  CHECK(ceil_div(std::uint64_t{kMax} + 1, 128u) == 1u << 25);
  CHECK(ceil_div(std::int64_t{kMax} + 1, 128u) == 1u << 25);
  static_assert(std::is_same_v<decltype(ceil_div(std::int64_t{1}, 1u)), std::int64_t>);
  static_assert(std::is_same_v<decltype(ceil_div(1u, std::uint64_t{1})), std::uint64_t>);
}
