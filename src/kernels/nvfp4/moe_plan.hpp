#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cukiln/nvfp4_moe.hpp>

namespace cukiln::nvfp4 {

/// How a mixture of experts of one shape is launched, decided without knowing the routing: grids
/// are for the most tiles there can be, and a thread block without a tile ends at once.
struct MoePlan {
  std::uint32_t slots;        ///< tokens · topk
  std::uint32_t tile_tokens;  ///< 8, 16 or 32; 64 or 128 by warpgroups
  bool by_warpgroups;         ///< nvfp4_moe_prefill's kernels, else nvfp4_moe_gemm's
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
  std::size_t partial;
  std::size_t bytes;
};

inline constexpr std::int64_t kMoeMostExperts = 1024;
inline constexpr std::int64_t kMoeMostSlots = 1 << 20;

/// `shape` is one that `launch` accepts, with global_experts filled in. `warpgroups`: the device
/// has sm_90a's warpgroup instructions.
inline MoePlan moe_plan(const MoeShape& shape, bool warpgroups) noexcept {
  const auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  MoePlan plan{};
  const std::int64_t slots = shape.tokens * shape.topk;
  plan.slots = static_cast<std::uint32_t>(slots);

  // A tile takes as long as if it were full, and every tile reads its expert's weights: the
  // smallest that most experts' tokens fit in. Measured on an H200.
  const std::int64_t mean = slots / shape.global_experts;
  plan.by_warpgroups = warpgroups && mean > 16 && shape.width % 64 == 0;
  if (plan.by_warpgroups) {
    plan.tile_tokens = mean <= 48 ? 64 : 128;
  } else {
    plan.tile_tokens = mean <= 4 ? 8 : mean <= 10 ? 16 : 32;
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
    while (!plan.by_warpgroups && parts < 4 && blocks * parts < wanted_blocks &&
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
  plan.activation_codes = take(slots * (shape.width / 2));
  plan.activation_scales = take(slots * (shape.width / 16));
  const std::int64_t widest = std::max(shape.hidden, shape.width);
  plan.expanded = take(plan.by_warpgroups ? slots * ceil_div(widest, 128) * 128 * 2 : 0);
  plan.partial = take(plan.down_splits * slots * shape.hidden * 4);
  return plan;
}

}  // namespace cukiln::nvfp4
