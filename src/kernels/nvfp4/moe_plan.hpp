// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cukiln/nvfp4_moe.hpp>

namespace cukiln::nvfp4 {

/// The kernels that make the two products.
enum class MoeKernels {
  skinny,      ///< nvfp4_moe_gemm's, which every device has
  warpgroups,  ///< nvfp4_moe_prefill's, of sm_90a
  grouped,     ///< nvfp4_gemm_grouped_*, of sm_100a and sm_103a, with nvfp4_moe_grouped's between
};

/// How a mixture of experts of one shape is launched, decided without knowing the routing: grids
/// are for the most tiles there can be, and a thread block without a tile ends at once.
struct MoePlan {
  std::uint32_t slots;  ///< tokens · topk
  MoeKernels kernels;
  std::uint32_t tile_tokens;  ///< 8, 16 or 32; 64 or 128 by warpgroups; 128 if grouped
  std::uint32_t most_tiles;
  std::uint32_t up_splits;    ///< of K, added up in a cluster of twice as many thread blocks
  std::uint32_t down_splits;  ///< of K, added up by moe_combine
  // Offsets of the parts of the workspace.
  std::size_t tile_count;
  std::size_t tiles;
  std::size_t slot_of_position;
  std::size_t position_of_slot;
  std::size_t token_codes;
  std::size_t token_scales;
  std::size_t activation_codes;
  std::size_t activation_scales;
  std::size_t expanded;  ///< of tokens, then of activations; by warpgroups only
  std::size_t partial;   ///< not if grouped
  // Of grouped products only. Rows: 128 for each of most_tiles.
  std::size_t row_experts;
  std::size_t up_gsa;
  std::size_t down_gsa;
  std::size_t row_codes;
  std::size_t row_scales;
  std::size_t products;  ///< of the one, then of the other
  std::size_t bytes;
};

inline constexpr std::int64_t kMoeMostExperts = 1024;
inline constexpr std::int64_t kMoeMostSlots = 1 << 20;
inline constexpr std::int64_t kMoeGroupRows = 128;
/// With more tokens than this for each expert, the device's kernels for many tokens take over.
/// Measured on an H200, for warpgroups. Grouped products were never measured: reading an expert's
/// weights should take them longer than computing 128 rows, so that they cost no more for 128
/// tokens than a skinny tile does for 32.
inline constexpr std::int64_t kMoeSkinnyTokens = 16;

/// `shape` is one that `launch` accepts, with global_experts filled in. `for_many`: what the device
/// has for many tokens.
inline MoePlan moe_plan(const MoeShape& shape, MoeKernels for_many) noexcept {
  const auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  MoePlan plan{};
  const std::int64_t slots = shape.tokens * shape.topk;
  plan.slots = static_cast<std::uint32_t>(slots);

  // A tile takes as long as if it were full, and every tile reads its expert's weights: the
  // smallest that most experts' tokens fit in. Measured on an H200.
  const std::int64_t mean = slots / shape.global_experts;
  const bool fits =
      shape.width % 64 == 0 && (for_many != MoeKernels::grouped || shape.hidden % 128 == 0);
  plan.kernels = fits && mean > kMoeSkinnyTokens ? for_many : MoeKernels::skinny;
  switch (plan.kernels) {
    case MoeKernels::skinny: plan.tile_tokens = mean <= 4 ? 8 : mean <= 10 ? 16 : 32; break;
    case MoeKernels::warpgroups: plan.tile_tokens = mean <= 48 ? 64 : 128; break;
    case MoeKernels::grouped: plan.tile_tokens = kMoeGroupRows; break;
  }
  plan.most_tiles = static_cast<std::uint32_t>(
      std::min(slots, slots / plan.tile_tokens + std::min(shape.experts, slots)));

  // K is split where few experts have tokens, for else there is no work for every multiprocessor.
  const std::int64_t busy = std::min(shape.global_experts, slots);
  const std::int64_t tiles =
      std::max(ceil_div(busy * shape.experts, shape.global_experts), slots / plan.tile_tokens);
  const auto splits = [&](std::int64_t rows, std::int64_t k, std::int64_t wanted_blocks) {
    const std::int64_t blocks = tiles * ceil_div(rows, 128);
    std::int64_t parts = 1;
    while (plan.kernels == MoeKernels::skinny && parts < 4 && blocks * parts < wanted_blocks &&
           k >= 2 * parts * 512) {
      parts *= 2;
    }
    return static_cast<std::uint32_t>(parts);
  };
  plan.up_splits = splits(2 * shape.width, shape.hidden, 180);
  plan.down_splits = splits(shape.hidden, shape.width, 350);

  const auto take = [&](std::int64_t bytes) {
    const std::size_t at = plan.bytes;
    plan.bytes += (static_cast<std::size_t>(bytes) + 255) / 256 * 256;
    return at;
  };
  plan.tile_count = take(8);
  plan.tiles = take(std::int64_t{plan.most_tiles} * 16);
  plan.slot_of_position = take(slots * 4);
  plan.position_of_slot = take(slots * 4);
  plan.token_codes = take(shape.tokens * (shape.hidden / 2));
  plan.token_scales = take(shape.tokens * (shape.hidden / 16));
  const bool grouped = plan.kernels == MoeKernels::grouped;
  const std::int64_t rows = grouped ? plan.most_tiles * kMoeGroupRows : 0;
  const std::int64_t activations = grouped ? rows : slots;
  plan.activation_codes = take(activations * (shape.width / 2));
  plan.activation_scales = take(activations * (shape.width / 16));
  const std::int64_t widest = std::max(shape.hidden, shape.width);
  plan.expanded = take(plan.kernels == MoeKernels::warpgroups  //
                           ? slots * ceil_div(widest, 128) * 128 * 2
                           : 0);
  plan.partial = take(grouped ? 0 : plan.down_splits * slots * shape.hidden * 4);
  plan.row_experts = take(rows / kMoeGroupRows * 4);
  plan.up_gsa = take(grouped ? shape.experts * 8 : 0);
  plan.down_gsa = take(grouped ? shape.experts * 8 : 0);
  plan.row_codes = take(rows * (shape.hidden / 2));
  plan.row_scales = take(rows * (shape.hidden / 16));
  plan.products = take(rows * std::max(2 * shape.width, shape.hidden) * 2);
  return plan;
}

}  // namespace cukiln::nvfp4
