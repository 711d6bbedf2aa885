// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/result.hpp"
#include "nvfp4/host/moe_plan.hpp"
#include "nvfp4/host/sm100_plan.hpp"

#include <cukiln/nvfp4/moe.hpp>

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

/// The kernel of the first grouped GEMM. The numbers are those of GateUpTile in
/// gemm_sm100_tile.cuh; the emulator's tests compare them.
inline constexpr Sm100Kernel kMoeGroupedUp = {
    "nvfp4_moe_grouped_up", "moe_grouped_up", 256, 1, false, 229480};
/// The kernel of the first GEMM with a dynamic scale of each row.
inline constexpr Sm100Kernel kMoeGroupedUpDynamic = {
    "nvfp4_moe_grouped_up", "moe_grouped_up_dynamic", 256, 1, false, 229480};
inline constexpr std::uint32_t kMoeGroupedUpBox = 128;  // of a tile's two boxes of weights, in rows

/// Its launch; there is no map of its output. `weights`: of all experts, 2 * width rows for each.
inline Sm100Plan plan_moe_grouped_up(const Sm100Kernel& kernel, const QuantizedMatrix& rows,
                                     const QuantizedMatrix& weights, std::int64_t width,
                                     std::uint32_t num_sms) noexcept {
  Sm100Plan plan = plan_sm100(kernel, rows, weights, nullptr, 2 * width, num_sms);
  plan.columns.box[1] = kMoeGroupedUpBox;
  plan.column_scales.box[2] = 1;
  return plan;
}

/// Calls the steps of a launch whose GEMMs are grouped, one after the other: `run.route(grid,
/// arguments of moe_route_rows…)`, `run.up(plan, data, scales, arguments of plan.kernel that follow
/// its maps…)`, `run.gemm(output, a, b, row_experts, options)`, `run.combine(grid, arguments of
/// moe_combine_rows…)`. Tests run the same steps on a CPU.
template <class Run>
Result<void> run_moe_grouped(const MoePlan& plan, const MoeCall& call, std::uint32_t num_sms,
                             Run&& run) noexcept {
  const MoeShape& shape = call.shape;
  const MoeLayer& layer = call.layer;
  const auto tokens = static_cast<std::uint32_t>(shape.tokens);
  const auto topk = static_cast<std::uint32_t>(shape.topk);
  const auto hidden = static_cast<std::uint32_t>(shape.hidden);
  const auto width = static_cast<std::uint32_t>(shape.width);
  const auto layout = static_cast<std::uint32_t>(layer.layout);
  const SwiGlu& activation = layer.activation;
  const bool dynamic = shape.dynamic_activation_scale;
  const std::int64_t rows = plan.max_tiles * kMoeGroupRows;
  const auto row_count = static_cast<std::uint32_t>(rows);
  auto* const row_of_slot = call.at<std::int32_t>(plan.position_of_slot);
  auto* const gemm_output = call.at<std::uint16_t>(plan.gemm_output);
  auto* const tile_count = call.at<std::uint32_t>(plan.tile_count);
  auto* const row_experts = call.at<std::int32_t>(plan.row_experts);
  auto* const row_states = dynamic ? call.at<std::uint32_t>(plan.row_states) : nullptr;
  const auto in_workspace = [&](std::size_t data_at, std::size_t scales_at,
                                const GlobalScale* scale, std::int64_t columns) {
    return QuantizedMatrix{call.at<std::uint8_t>(data_at), call.at<std::uint8_t>(scales_at), scale,
                           rows, columns};
  };
  const auto of_experts = [](const MoeWeights& weights, const GlobalScale* global_scales) {
    return QuantizedMatrix{weights.data, weights.scales, global_scales,
                           weights.experts * weights.rows, weights.columns};
  };

  CUKILN_CHECK(run.route(
      MoeGrid{std::min(tokens, 2 * num_sms)}, call.at<std::uint8_t>(plan.row_data),
      call.at<std::uint8_t>(plan.row_scales), row_experts, tile_count, row_of_slot,
      call.at<float>(plan.down_global_scales), row_states,
      call.input.hidden.data_as<const std::uint16_t>(), &call.input.hidden_scale->encode,
      call.input.topk_ids.data_as<const std::int32_t>(),
      layer.expert_map.data_as<const std::int32_t>(), layer.down.decode, tokens, topk, hidden,
      static_cast<std::uint32_t>(shape.global_experts), static_cast<std::uint32_t>(shape.experts)));
  // The decode scales of the weights are read from the layer.
  const Sm100Plan up = plan_moe_grouped_up(
      dynamic ? kMoeGroupedUpDynamic : kMoeGroupedUp,
      in_workspace(plan.row_data, plan.row_scales, call.input.hidden_scale, shape.hidden),
      of_experts(layer.up, nullptr), shape.width, num_sms);
  const float* const token_scale = &call.input.hidden_scale->encode;
  auto* const data = call.at<std::uint8_t>(plan.activation_data);
  auto* const scales = call.at<std::uint8_t>(plan.activation_scales);
  auto* const row_scales = call.at<GlobalScale>(plan.activation_row_scales);
  CUKILN_CHECK(run.up(up, data, scales, token_scale, layer.up.decode, layer.up.bias,
                      dynamic ? nullptr : &layer.activation_scale->encode, row_experts, tile_count,
                      row_count, hidden, width, layout, activation.limit, activation.alpha,
                      activation.beta, dynamic ? &row_scales->encode : nullptr,
                      dynamic ? call.at<std::uint16_t>(plan.wide_scales) : nullptr, row_states));
  GroupedGemmOptions options;
  if (layer.down.bias != nullptr) {
    options.bias = MatrixView(DataType::bf16, layer.down.bias, shape.experts, shape.hidden);
  }
  options.a_scale_per_row = dynamic;
  options.group_count = tile_count;
  CUKILN_CHECK(run.gemm(MutableMatrixView(DataType::bf16, gemm_output, rows, shape.hidden),
                        in_workspace(plan.activation_data, plan.activation_scales,
                                     dynamic ? row_scales : layer.activation_scale, shape.width),
                        of_experts(layer.down, call.at<GlobalScale>(plan.down_global_scales)),
                        VectorView(DataType::i32, row_experts, plan.max_tiles), options));
  return run.combine(MoeGrid{tokens, ceil_div(hidden, 2048)}, call.output, gemm_output,
                     call.input.topk_weights.data_as<const float>(), row_of_slot, topk, hidden);
}

}  // namespace cukiln::nvfp4
