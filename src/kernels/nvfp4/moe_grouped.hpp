// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/result.hpp"
#include "kernels/nvfp4/moe_plan.hpp"

#include <cukiln/nvfp4_moe.hpp>

namespace cukiln::nvfp4 {

/// What a launch is given, checked, global_experts filled in.
struct MoeCall {
  Stream stream;
  std::uint16_t* output;
  MoeShape shape;
  MoeInput input;
  MoeWeights up;
  MoeWeights down;
  const float* activation_gsa;
  GateUpLayout layout;
  SwiGlu activation;
  std::uint8_t* workspace;

  template <class T>
  T* at(std::size_t offset) const noexcept {
    return reinterpret_cast<T*>(workspace + offset);
  }
};

/// {expert, first position, tokens, unused}, of the device alone.
struct MoeTile;

/// A grid of thread blocks.
struct MoeGrid {
  std::uint32_t x;
  std::uint32_t y = 1;
};

inline std::uint32_t ceil_div(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::uint32_t>((a + b - 1) / b);
}

/// `run(grid, arguments of moe_route…)`.
template <class Run>
Result<void> run_moe_route(const MoePlan& plan, const MoeCall& call, std::uint32_t multiprocessors,
                           Run&& run) noexcept {
  const MoeShape& shape = call.shape;
  const MoeGrid grid{
      1 + std::min(ceil_div(shape.tokens * (shape.hidden / 16), 256), 8 * multiprocessors)};
  return run(grid, call.at<MoeTile>(plan.tiles), call.at<std::uint32_t>(plan.tile_count),
             call.at<std::uint32_t>(plan.slot_of_position),
             call.at<std::int32_t>(plan.position_of_slot), call.at<std::uint8_t>(plan.token_codes),
             call.at<std::uint8_t>(plan.token_scales), call.input.hidden, call.input.hidden_gsa,
             call.input.topk_ids, call.input.expert_map, static_cast<std::uint32_t>(shape.tokens),
             static_cast<std::uint32_t>(shape.topk), static_cast<std::uint32_t>(shape.hidden),
             static_cast<std::uint32_t>(shape.global_experts),
             static_cast<std::uint32_t>(shape.experts), plan.tile_tokens);
}

/// What follows moe_route where products are grouped: `run.gather(grid, arguments…)`,
/// `run.product(output, a, b, row_experts, shape)` and so on, one after the other. Tests run the
/// same steps on a CPU.
template <class Run>
Result<void> run_moe_grouped(const MoePlan& plan, const MoeCall& call,
                             std::uint32_t multiprocessors, Run&& run) noexcept {
  const MoeShape& shape = call.shape;
  const auto topk = static_cast<std::uint32_t>(shape.topk);
  const auto hidden = static_cast<std::uint32_t>(shape.hidden);
  const auto width = static_cast<std::uint32_t>(shape.width);
  const std::int64_t rows = plan.most_tiles * kMoeGroupRows;
  auto* const row_experts = call.at<std::int32_t>(plan.row_experts);
  auto* const row_of_slot = call.at<std::int32_t>(plan.position_of_slot);
  auto* const products = call.at<std::uint16_t>(plan.products);
  const Matrix tokens{call.at<std::uint8_t>(plan.row_codes), call.at<std::uint8_t>(plan.row_scales),
                      call.input.hidden_gsa};
  const Matrix activations{call.at<std::uint8_t>(plan.activation_codes),
                           call.at<std::uint8_t>(plan.activation_scales), call.activation_gsa};
  const Matrix up{call.up.codes, call.up.scales, call.at<float>(plan.up_gsa)};
  const Matrix down{call.down.codes, call.down.scales, call.at<float>(plan.down_gsa)};
  const std::uint32_t* const tile_count = call.at<std::uint32_t>(plan.tile_count);

  CUKILN_CHECK(run.gather(
      MoeGrid{ceil_div(hidden, 512), plan.most_tiles}, call.at<std::uint8_t>(plan.row_codes),
      call.at<std::uint8_t>(plan.row_scales), row_experts, row_of_slot, call.at<float>(plan.up_gsa),
      call.at<float>(plan.down_gsa), call.at<const MoeTile>(plan.tiles), tile_count,
      call.at<const std::uint32_t>(plan.slot_of_position),
      call.at<const std::uint8_t>(plan.token_codes), call.at<const std::uint8_t>(plan.token_scales),
      call.up.decode, call.down.decode, topk, hidden));
  CUKILN_CHECK(run.product(products, tokens, up, row_experts,
                           {rows, 2 * shape.width, shape.hidden, shape.experts}));
  const std::uint32_t atoms = plan.most_tiles * (width / 64);
  CUKILN_CHECK(run.activate(MoeGrid{std::min(atoms, 2 * multiprocessors)},
                            call.at<std::uint8_t>(plan.activation_codes),
                            call.at<std::uint8_t>(plan.activation_scales), products, tile_count,
                            call.activation_gsa, width, static_cast<std::uint32_t>(call.layout),
                            call.activation.limit, call.activation.alpha, call.activation.beta));
  CUKILN_CHECK(run.product(products, activations, down, row_experts,
                           {rows, shape.hidden, shape.width, shape.experts}));
  return run.combine(
      MoeGrid{static_cast<std::uint32_t>(shape.tokens), ceil_div(shape.hidden, 2048)}, call.output,
      products, call.input.topk_weights, row_of_slot, topk, hidden);
}

}  // namespace cukiln::nvfp4
