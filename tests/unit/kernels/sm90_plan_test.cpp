#include <doctest/doctest.h>

#include "kernels/nvfp4/sm90_plan.hpp"

namespace cukiln::nvfp4::sm90 {
namespace {

constexpr std::uint32_t kH200 = 132;

std::uint32_t decode_rows(std::uint64_t n) {
  return kDecodeTiles[decode_tile_for(n, 1, kH200)].rows;
}

struct Chosen {
  std::uint32_t tokens, rows, splits;
  bool operator==(const Chosen&) const = default;
};
Chosen prefill(std::uint64_t m, std::uint64_t n, std::uint64_t k) {
  const PrefillPlan plan = prefill_plan_for(m, n, k, kH200);
  const PrefillTile& tile = kPrefillTiles[plan.tile];
  CHECK(plan.tiles == ceil_div(m, tile.tokens) * ceil_div(n, tile.rows));
  return {tile.tokens, tile.rows, plan.splits};
}

}  // namespace

TEST_CASE("a few tokens take the tile of weights that was fastest for its number of rows") {
  CHECK(decode_rows(2048) == 16);
  CHECK(decode_rows(4096) == 32);
  CHECK(decode_rows(7168) == 56);
}

TEST_CASE("many tokens take the tile and the split of K that were fastest") {
  CHECK(prefill(32, 7168, 7168) == Chosen{32, 128, 4});
  CHECK(prefill(64, 7168, 7168) == Chosen{64, 128, 4});
  CHECK(prefill(128, 7168, 7168) == Chosen{128, 128, 2});
  CHECK(prefill(256, 7168, 7168) == Chosen{128, 128, 1});
  CHECK(prefill(1024, 7168, 7168) == Chosen{128, 256, 1});
  CHECK(prefill(4096, 7168, 7168) == Chosen{128, 256, 1});
}

TEST_CASE("K is split only where all clusters run at once") {
  for (std::uint64_t m = 17; m <= 8192; m += 61) {
    for (std::uint64_t n = 128; n <= 32768; n += 1160) {
      const PrefillPlan plan = prefill_plan_for(m, n, 7168, kH200);
      CAPTURE(m);
      CAPTURE(n);
      if (plan.splits > 1) {
        CHECK(plan.tiles * plan.splits <= std::uint64_t{kH200} * kPrefillTiles[plan.tile].resident);
      }
    }
  }
  CHECK(prefill_plan_for(32, 128, 32, kH200).splits == 1);  // there is nothing to split
}

}  // namespace cukiln::nvfp4::sm90
