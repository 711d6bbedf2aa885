// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/host/moe_plan.hpp"

#include <algorithm>
#include <iterator>

#include <doctest/doctest.h>

namespace cukiln::nvfp4 {
namespace {

constexpr std::uint32_t kH200 = 132;

MoePlan plan_of(std::int64_t tokens, std::int64_t topk, std::int64_t experts, std::int64_t hidden,
                std::int64_t width, std::int64_t global_experts = 0,
                MoeKernels for_many = MoeKernels::skinny) {
  return moe_plan(
      {tokens, topk, experts, hidden, width, global_experts == 0 ? experts : global_experts},
      for_many, kH200);
}
constexpr MoeKernels kWarpgroups = MoeKernels::warpgroups;
constexpr MoeKernels kGrouped = MoeKernels::grouped;

TEST_CASE("A tile grows with the tokens of an expert") {
  CHECK(plan_of(64, 8, 256, 7168, 2048).tile_tokens == 8);
  CHECK(plan_of(40, 2, 8, 4096, 14336).tile_tokens == 16);
  CHECK(plan_of(1024, 8, 256, 7168, 2048).tile_tokens == 32);
  CHECK(plan_of(1024, 8, 256, 7168, 2048, 0, kWarpgroups).tile_tokens == 64);
  CHECK(plan_of(4096, 8, 256, 7168, 2048, 0, kWarpgroups).tile_tokens == 128);
  // Warpgroups take whole tiles of 64 columns.
  CHECK(plan_of(4096, 8, 256, 7168, 2080, 0, kWarpgroups).tile_tokens == 32);
  CHECK(plan_of(48, 2, 8, 4096, 14336, 0, kWarpgroups).tile_tokens == 32);
  CHECK(plan_of(52, 2, 8, 4096, 14336, 0, kWarpgroups).tile_tokens == 64);
  // Groups are 128 rows, of whole tiles of 128 columns.
  CHECK(plan_of(1024, 8, 256, 7168, 2048, 0, kGrouped).tile_tokens == 128);
  CHECK(plan_of(1024, 8, 256, 7168, 2080, 0, kGrouped).tile_tokens == 32);
  CHECK(plan_of(1024, 8, 256, 7200, 2048, 0, kGrouped).tile_tokens == 32);
  CHECK(plan_of(64, 2, 8, 4096, 14336, 0, kGrouped).tile_tokens == 32);
  // Experts on other devices take their share.
  CHECK(plan_of(1024, 8, 16, 7168, 2048, 4096).tile_tokens == 8);
}

TEST_CASE("There are never more tiles than the grid is for") {
  // Every expert but one with one token too many for its tiles: the worst there is.
  for (const std::int64_t experts : {1, 3, 8, 256}) {
    for (const std::int64_t slots : {1, 7, 8, 9, 100, 1000, 5000}) {
      const MoePlan plan = plan_of(slots, 1, experts, 64, 64);
      const std::int64_t tile = plan.tile_tokens;
      std::int64_t left = slots;
      std::int64_t tiles = 0;
      for (std::int64_t e = 0; e + 1 < experts && left > 0; ++e) {
        --left;
        ++tiles;
      }
      tiles += (left + tile - 1) / tile;
      CAPTURE(experts);
      CAPTURE(slots);
      CHECK(tiles <= plan.max_tiles);
      CHECK(plan.max_tiles <= 65535);  // a grid's y
    }
  }
  CHECK(plan_of(kMoeMaxSlots, 1, kMoeMaxExperts, 64, 64).max_tiles <= 65535);
  // Few of the tokens are for experts here, and yet all of them may be.
  for (const std::int64_t local : {1, 8, 1024}) {
    for (const std::int64_t global : {4096, 104858, 209716, 1 << 20, INT32_MAX}) {
      CAPTURE(local);
      CAPTURE(global);
      const MoePlan plan = plan_of(kMoeMaxSlots, 1, local, 64, 64, global);
      CHECK(plan.max_tiles >= kMoeMaxSlots / plan.tile_tokens);
      CHECK(plan.max_tiles <= 65535);
      CHECK(plan.tile_tokens <= 32);
    }
  }
}

TEST_CASE("K is split where few experts have tokens, and not below 512 a part") {
  const MoePlan deepseek = plan_of(1, 8, 256, 7168, 2048);
  CHECK(deepseek.up_splits == 1);
  CHECK(deepseek.down_splits == 1);
  const MoePlan mixtral = plan_of(1, 2, 8, 4096, 14336);
  CHECK(mixtral.up_splits == 1);
  CHECK(mixtral.down_splits == 4);
  CHECK(plan_of(1, 8, 256, 7168, 256).up_splits == 4);
  CHECK(plan_of(1, 8, 256, 1023, 256).up_splits == 1);
  CHECK(plan_of(4096, 8, 256, 7168, 2048).down_splits == 1);
}

TEST_CASE("K is split for as many thread blocks as the device has room for") {
  const auto splits_on = [](std::uint32_t num_sms) {
    return moe_plan({1, 8, 256, 7168, 2048, 256}, MoeKernels::skinny, num_sms).up_splits;
  };
  CHECK(splits_on(kH200) == 1);
  CHECK(splits_on(2 * kH200) == 2);
}

TEST_CASE("The largest workspace is enough for every number of tokens up to its own") {
  struct Layer {
    MoeShape shape;
    MoeKernels for_many;
    std::int64_t tokens;
  };
  const auto layer = [](std::int64_t topk, std::int64_t experts, std::int64_t global,
                        std::int64_t hidden, std::int64_t width, MoeKernels for_many,
                        std::int64_t tokens) -> Layer {
    return {{0, topk, experts, hidden, width, global}, for_many, tokens};
  };
  const Layer layers[] = {
      layer(8, 256, 256, 7168, 2048, kWarpgroups, 1200),
      layer(8, 32, 256, 7168, 2048, kWarpgroups, 1200),  // 8 ranks of expert parallelism
      layer(8, 32, 256, 7168, 2048, kGrouped, 1200),
      layer(8, 32, 256, 7168, 2048, MoeKernels::skinny, 1200),
      layer(8, 256, 256, 7168, 2048, MoeKernels::skinny, 1200),
      layer(4, 32, 32, 2880, 2880, kWarpgroups, 600),
      layer(4, 128, 128, 2880, 2880, kGrouped, 600),
      layer(2, 8, 8, 4096, 14336, kWarpgroups, 600),
      layer(2, 8, 8, 4096, 14336, MoeKernels::skinny, 600),
  };
  for (const std::uint32_t num_sms : {kH200, 78u, 188u}) {
    int fewer_need_more = 0;
    for (const Layer& each : layers) {
      std::size_t most = 0;
      for (std::int64_t tokens = 1; tokens <= each.tokens; ++tokens) {
        MoeShape shape = each.shape;
        shape.tokens = tokens;
        const std::size_t bytes = moe_plan(shape, each.for_many, num_sms).total_bytes;
        fewer_need_more += bytes < most;
        most = std::max(most, bytes);
        CAPTURE(num_sms);
        CAPTURE(&each - layers);
        CAPTURE(tokens);
        REQUIRE(moe_max_bytes(shape, each.for_many, num_sms) == most);
      }
    }
    CHECK(fewer_need_more > 0);  // or this would have tested nothing
  }
}

TEST_CASE("Under expert parallelism there are tiles for the experts here, not for all") {
  // Any routing may be to experts here alone: slots have no smaller bound, but tiles have.
  const MoePlan here = plan_of(1024, 8, 32, 7168, 2048, 256, kGrouped);
  const MoePlan all = plan_of(1024, 8, 256, 7168, 2048, 0, kGrouped);
  REQUIRE(here.kernels == kGrouped);
  CHECK(here.max_tiles == 1024 * 8 / 128 + 32);
  CHECK(all.max_tiles == 1024 * 8 / 128 + 256);
  CHECK(here.total_bytes < all.total_bytes / 3);
}

TEST_CASE("The parts of the workspace lie one after the other") {
  for (const MoeKernels for_many : {MoeKernels::skinny, kWarpgroups, kGrouped}) {
    for (const bool dynamic : {false, true}) {
      const MoePlan plan = moe_plan({100, 3, 8, 128, 192, 8, false, dynamic}, for_many, kH200);
      REQUIRE(plan.kernels == for_many);
      const bool grouped = for_many == kGrouped;
      const std::size_t rows = grouped ? std::size_t{128} * plan.max_tiles : 0;
      const std::size_t activations = grouped ? rows : 300;
      const std::size_t parts[][2] = {
          {plan.tile_count, 8},
          {plan.tiles, grouped ? 0u : 16 * plan.max_tiles},
          {plan.slot_of_position, grouped ? 0u : 300u * 4},
          {plan.position_of_slot, 300 * 4},
          {plan.token_data, grouped ? 0u : 100u * 64},
          {plan.token_scales, grouped ? 0u : 100u * 8},
          {plan.activation_data, activations * 96},
          {plan.activation_scales, activations * 12},
          {plan.expanded, for_many == kWarpgroups ? 300u * 256 * 2 : 0u},
          {plan.partial, for_many == MoeKernels::skinny ? 300u * 128 * 4 : 0u},
          {plan.row_experts, rows / 128 * 4},
          {plan.down_global_scales, grouped ? 8u * 8 : 0u},
          {plan.row_data, rows * 64},
          {plan.row_scales, rows * 8},
          {plan.gemm_output,
           (for_many == kWarpgroups ? 300 : rows) * 128 * 2},  // of the second GEMM alone
          {plan.wide_scales, dynamic ? rows * 24 : 0},
          {plan.row_states, dynamic ? rows * 8 : 0},
          {plan.activation_row_scales, dynamic ? rows * 8 : 0},
          {plan.total_bytes, 0},
      };
      for (std::size_t i = 0; i + 1 < std::size(parts); ++i) {
        CAPTURE(i);
        CHECK(parts[i][0] + parts[i][1] <= parts[i + 1][0]);
        CHECK(parts[i + 1][0] % 256 == 0);
      }
    }
  }
}

}  // namespace
}  // namespace cukiln::nvfp4
