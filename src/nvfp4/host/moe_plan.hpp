// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "nvfp4/host/ceil_div.hpp"

#include <cukiln/nvfp4/moe.hpp>

namespace cukiln::nvfp4 {

/// The kernels that compute the two GEMMs.
enum class MoeKernels {
  skinny,      ///< nvfp4_moe_gemm's, which every device has
  warpgroups,  ///< nvfp4_moe_prefill's, of sm_90a
  grouped,     ///< nvfp4_moe_grouped_up's and nvfp4_gemm_grouped_*, of targets with tcgen05
};

/// How a mixture of experts of one shape is launched. Made without knowing the routing: grids are
/// for the largest number of tiles that a routing can give, and a thread block without a tile ends
/// immediately.
struct MoePlan {
  std::uint32_t slots;  ///< tokens · topk
  MoeKernels kernels;
  std::uint32_t tile_tokens;  ///< 8, 16 or 32; 64 or 128 by warpgroups; 128 if grouped
  std::uint32_t max_tiles;
  std::uint32_t up_splits;    ///< of K, added up in a cluster of twice as many thread blocks
  std::uint32_t down_splits;  ///< of K, added up by moe_combine
  // Offsets into the workspace.
  std::size_t tile_count;
  std::size_t tiles;
  std::size_t slot_of_position;
  std::size_t position_of_slot;  ///< the row of the slot, if grouped
  std::size_t token_data;
  std::size_t token_scales;
  std::size_t activation_data;  ///< bf16 with W4A16, which has no scales
  std::size_t activation_scales;
  std::size_t activation_rows;    ///< bf16, before they are quantised with a dynamic scale
  std::size_t activation_decode;  ///< float, of each row, with a dynamic scale
  std::size_t expanded;  ///< fp16 tokens, then activations, or bf16 tokens; by warpgroups only
  std::size_t partial;   ///< float; of skinny kernels only
  // Used by grouped GEMMs only, but for gemm_output. Rows: 128 for each of max_tiles.
  std::size_t row_experts;
  std::size_t down_global_scales;
  std::size_t row_data;
  std::size_t row_scales;
  std::size_t gemm_output;  ///< of the second GEMM; also by warpgroups
  // Used by grouped GEMMs with dynamic scales only.
  std::size_t wide_scales;            ///< of activations, before their rows' scales are known
  std::size_t row_states;             ///< {column tiles, largest wide scale}
  std::size_t activation_row_scales;  ///< GlobalScale
  std::size_t total_bytes;
};

inline constexpr std::int64_t kMoeMaxExperts = 1024;
inline constexpr std::int64_t kMoeMaxTopk = 1024;
inline constexpr std::int64_t kMoeMaxSlots = 1 << 20;
inline constexpr std::int64_t kMoeMaxTiles = 65535;  // a grid's y
inline constexpr std::int64_t kMoeGroupRows = 128;
/// With more tokens than this for each expert, the device's kernels for many tokens are used:
/// warpgroups, measured on an H100, and grouped GEMMs, which were never measured: an expert's
/// weights should take longer to read than 128 rows to compute, so that 128 tokens cost no more
/// than a skinny tile does for 32.
inline constexpr std::int64_t kMoeSkinnyTokens = 12;
inline constexpr std::int64_t kMoeSkinnyTokensBeforeGrouped = 16;
/// The tiles of warpgroups.
inline constexpr std::uint32_t kMoeFewTileTokens = 64;
inline constexpr std::uint32_t kMoeManyTileTokens = 128;

/// The tokens that warpgroups load at a time: a small tile has two boxes, or one if that holds its
/// tokens.
constexpr std::uint32_t moe_box_tokens(std::uint32_t tile_tokens) noexcept {
  return tile_tokens == kMoeFewTileTokens ? tile_tokens / 2 : tile_tokens;
}

/// Selects the tile of tokens. A skinny tile takes as long as if it were full, and every tile
/// reads and dequantises its expert's weights: the smallest that holds most experts' tokens is the
/// fastest. Measured on an H200, warpgroups on an H100.
inline std::uint32_t moe_tile_tokens(MoeKernels kernels, std::int64_t tokens_per_expert) noexcept {
  switch (kernels) {
    case MoeKernels::skinny: return tokens_per_expert <= 4 ? 8 : tokens_per_expert <= 10 ? 16 : 32;
    case MoeKernels::warpgroups:
      return tokens_per_expert <= 48 ? kMoeFewTileTokens : kMoeManyTileTokens;
    case MoeKernels::grouped: break;
  }
  return kMoeGroupRows;
}

/// Adds the workspace to a plan that has everything else.
inline void lay_out_workspace(MoePlan& plan, const MoeShape& shape) noexcept {
  using kernels::ceil_div;
  const auto reserve = [&](std::int64_t bytes) {
    const std::size_t offset = plan.total_bytes;
    plan.total_bytes += (static_cast<std::size_t>(bytes) + 255) / 256 * 256;
    return offset;
  };
  const std::int64_t slots = plan.slots;
  const bool grouped = plan.kernels == MoeKernels::grouped;
  const bool warpgroups = plan.kernels == MoeKernels::warpgroups;
  const auto whole_groups = [](std::int64_t columns) { return ceil_div(columns, 128) * 128; };
  const std::int64_t rows = grouped ? plan.max_tiles * kMoeGroupRows : 0;
  const std::int64_t activations = grouped ? rows : slots;
  const std::int64_t max_columns = std::max(shape.hidden, shape.width);
  const std::int64_t quantised_tokens = shape.w4a16 || grouped ? 0 : shape.tokens;
  plan.total_bytes = 0;
  plan.tile_count = reserve(8);
  plan.tiles = reserve(grouped ? 0 : std::int64_t{plan.max_tiles} * 16);
  plan.slot_of_position = reserve(grouped ? 0 : slots * 4);
  plan.position_of_slot = reserve(slots * 4);
  plan.token_data = reserve(quantised_tokens * (shape.hidden / 2));
  plan.token_scales = reserve(quantised_tokens * (shape.hidden / 16));
  plan.activation_data = reserve(!shape.w4a16 ? activations * (shape.width / 2)
                                 : warpgroups ? slots * whole_groups(shape.width) * 2
                                              : slots * shape.width * 2);
  plan.activation_scales = reserve(shape.w4a16 ? 0 : activations * (shape.width / 16));
  const std::int64_t dynamic_rows = shape.dynamic_activation_scale && !grouped ? slots : 0;
  plan.activation_rows = reserve(dynamic_rows * shape.width * 2);
  plan.activation_decode = reserve(dynamic_rows * 4);
  plan.expanded =
      reserve(warpgroups ? slots * whole_groups(shape.w4a16 ? shape.hidden : max_columns) * 2 : 0);
  plan.partial = reserve(grouped || warpgroups ? 0 : plan.down_splits * slots * shape.hidden * 4);
  plan.row_experts = reserve(rows / kMoeGroupRows * 4);
  plan.down_global_scales = reserve(grouped ? shape.experts * 8 : 0);
  plan.row_data = reserve(rows * (shape.hidden / 2));
  plan.row_scales = reserve(rows * (shape.hidden / 16));
  plan.gemm_output = reserve((warpgroups ? slots : rows) * shape.hidden * 2);
  const std::int64_t scaled_rows = shape.dynamic_activation_scale ? rows : 0;
  plan.wide_scales = reserve(scaled_rows * (shape.width / 16) * 2);
  plan.row_states = reserve(scaled_rows * 8);
  plan.activation_row_scales = reserve(scaled_rows * 8);
}

/// `shape` is one that `launch` accepts, with global_experts filled in. `for_many`: the device's
/// kernels for many tokens.
inline MoePlan moe_plan(const MoeShape& shape, MoeKernels for_many,
                        std::uint32_t num_sms) noexcept {
  using kernels::ceil_div;
  MoePlan plan{};
  const std::int64_t slots = shape.tokens * shape.topk;
  plan.slots = static_cast<std::uint32_t>(slots);

  const std::int64_t tokens_per_expert = slots / shape.global_experts;
  const bool has_whole_tiles = shape.width % 64 == 0 && (for_many != MoeKernels::grouped ||
                                                         (shape.hidden % 128 == 0 && !shape.w4a16));
  const std::int64_t few =
      for_many == MoeKernels::warpgroups ? kMoeSkinnyTokens : kMoeSkinnyTokensBeforeGrouped;
  plan.kernels = has_whole_tiles && tokens_per_expert > few ? for_many : MoeKernels::skinny;
  plan.tile_tokens = moe_tile_tokens(plan.kernels, tokens_per_expert);
  const auto max_tiles = [&] {
    return std::min(slots, slots / plan.tile_tokens + std::min(shape.experts, slots));
  };
  while (max_tiles() > kMoeMaxTiles) {  // few tokens for each of very many experts elsewhere
    plan.tile_tokens *= 2;
  }
  plan.max_tiles = static_cast<std::uint32_t>(max_tiles());

  // K is split where few experts have tokens: otherwise there would be no work for every SM. The
  // numbers of thread blocks were measured on an H200.
  constexpr std::int64_t kMeasuredSms = 132;
  const std::int64_t up_blocks = 180 * std::int64_t{num_sms} / kMeasuredSms;
  const std::int64_t down_blocks = 350 * std::int64_t{num_sms} / kMeasuredSms;
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
  plan.up_splits = splits(2 * shape.width, shape.hidden, up_blocks);
  plan.down_splits = splits(shape.hidden, shape.width, down_blocks);
  lay_out_workspace(plan, shape);
  return plan;
}

/// The largest workspace for this many tokens or fewer. Fewer may need more, where their K is split
/// more: there is no simpler bound that holds for every shape and device.
inline std::size_t moe_max_bytes(MoeShape shape, MoeKernels for_many,
                                 std::uint32_t num_sms) noexcept {
  std::size_t most = 0;
  for (; shape.tokens > 0; --shape.tokens) {
    most = std::max(most, moe_plan(shape, for_many, num_sms).total_bytes);
  }
  return most;
}

}  // namespace cukiln::nvfp4
