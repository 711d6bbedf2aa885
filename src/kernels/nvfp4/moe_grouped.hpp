// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/result.hpp"
#include "kernels/nvfp4/moe_plan.hpp"

#include <cukiln/nvfp4_moe.hpp>

namespace cukiln::nvfp4 {

/// The arguments of a launch, checked. `shape` has global_experts filled in.
struct MoeCall {
  Stream stream;
  std::uint16_t* output;
  MoeShape shape;
  MoeInput input;
  MoeLayer layer;
  std::uint8_t* workspace;

  template <class T>
  T* at(std::size_t offset) const noexcept {
    return reinterpret_cast<T*>(workspace + offset);
  }
};

/// {expert, first position, tokens, unused}: only device code reads it.
struct MoeTile;

/// A grid of thread blocks.
struct MoeGrid {
  std::uint32_t x;
  std::uint32_t y = 1;
};

/// As a size of a grid.
inline std::uint32_t ceil_div(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::uint32_t>(kernels::ceil_div(a, b));
}

/// Calls `run(grid, arguments of moe_route…)`.
template <class Run>
Result<void> run_moe_route(const MoePlan& plan, const MoeCall& call, std::uint32_t num_sms,
                           Run&& run) noexcept {
  const MoeShape& shape = call.shape;
  const std::int64_t blocks = shape.w4a16 ? 0 : shape.tokens * (shape.hidden / 16);
  const MoeGrid grid{1 + std::min(ceil_div(blocks, 256), 8 * num_sms)};
  return run(
      grid, call.at<MoeTile>(plan.tiles), call.at<std::uint32_t>(plan.tile_count),
      call.at<std::uint32_t>(plan.slot_of_position), call.at<std::int32_t>(plan.position_of_slot),
      call.at<std::uint8_t>(plan.token_data), call.at<std::uint8_t>(plan.token_scales),
      call.input.hidden.data_as<const std::uint16_t>(),
      shape.w4a16 ? nullptr : &call.input.hidden_scale->encode,
      call.input.topk_ids.data_as<const std::int32_t>(),
      call.layer.expert_map.data_as<const std::int32_t>(), static_cast<std::uint32_t>(shape.tokens),
      static_cast<std::uint32_t>(shape.topk), static_cast<std::uint32_t>(shape.hidden),
      static_cast<std::uint32_t>(shape.global_experts), static_cast<std::uint32_t>(shape.experts),
      plan.tile_tokens);
}

/// Calls the steps that follow moe_route where GEMMs are grouped, one after the other:
/// `run.gather(grid, arguments…)`, `run.gemm(output, a, b, row_experts)` and so on. Tests run the
/// same steps on a CPU.
template <class Run>
Result<void> run_moe_grouped(const MoePlan& plan, const MoeCall& call, std::uint32_t num_sms,
                             Run&& run) noexcept {
  const MoeShape& shape = call.shape;
  const MoeLayer& layer = call.layer;
  const auto topk = static_cast<std::uint32_t>(shape.topk);
  const auto hidden = static_cast<std::uint32_t>(shape.hidden);
  const auto width = static_cast<std::uint32_t>(shape.width);
  const std::int64_t rows = plan.max_tiles * kMoeGroupRows;
  auto* const row_of_slot = call.at<std::int32_t>(plan.position_of_slot);
  auto* const gemm_output = call.at<std::uint16_t>(plan.gemm_output);
  const std::uint32_t* const tile_count = call.at<std::uint32_t>(plan.tile_count);
  const VectorView row_experts(DataType::i32, call.at<const std::int32_t>(plan.row_experts),
                               plan.max_tiles);
  const auto in_workspace = [&](std::size_t data, std::size_t scales, const GlobalScale* scale,
                                std::int64_t columns) {
    return QuantizedMatrix{call.at<std::uint8_t>(data), call.at<std::uint8_t>(scales), scale, rows,
                           columns};
  };
  const auto of_experts = [&](const MoeWeights& weights, std::size_t global_scales) {
    return QuantizedMatrix{weights.data, weights.scales, call.at<GlobalScale>(global_scales),
                           weights.experts * weights.rows, weights.columns};
  };
  const auto output_of = [&](std::int64_t columns) {
    return MutableMatrixView(DataType::bf16, gemm_output, rows, columns);
  };

  CUKILN_CHECK(run.gather(
      MoeGrid{ceil_div(hidden, 512), plan.max_tiles}, call.at<std::uint8_t>(plan.row_data),
      call.at<std::uint8_t>(plan.row_scales), call.at<std::int32_t>(plan.row_experts), row_of_slot,
      call.at<float>(plan.up_global_scales), call.at<float>(plan.down_global_scales),
      call.at<const MoeTile>(plan.tiles), tile_count,
      call.at<const std::uint32_t>(plan.slot_of_position),
      call.at<const std::uint8_t>(plan.token_data), call.at<const std::uint8_t>(plan.token_scales),
      layer.up.decode, layer.down.decode, topk, hidden));
  CUKILN_CHECK(
      run.gemm(output_of(2 * shape.width),
               in_workspace(plan.row_data, plan.row_scales, call.input.hidden_scale, shape.hidden),
               of_experts(layer.up, plan.up_global_scales), row_experts));
  const std::uint32_t atoms = plan.max_tiles * (width / 64);
  CUKILN_CHECK(run.activate(
      MoeGrid{std::min(atoms, 2 * num_sms)}, call.at<std::uint8_t>(plan.activation_data),
      call.at<std::uint8_t>(plan.activation_scales), gemm_output, tile_count,
      &layer.activation_scale->encode, width, static_cast<std::uint32_t>(layer.layout),
      layer.activation.limit, layer.activation.alpha, layer.activation.beta));
  CUKILN_CHECK(run.gemm(output_of(shape.hidden),
                        in_workspace(plan.activation_data, plan.activation_scales,
                                     layer.activation_scale, shape.width),
                        of_experts(layer.down, plan.down_global_scales), row_experts));
  return run.combine(MoeGrid{static_cast<std::uint32_t>(shape.tokens), ceil_div(hidden, 2048)},
                     call.output, gemm_output, call.input.topk_weights.data_as<const float>(),
                     row_of_slot, topk, hidden);
}

}  // namespace cukiln::nvfp4
