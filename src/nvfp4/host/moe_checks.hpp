// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "nvfp4/host/gemm_checks.hpp"
#include "nvfp4/host/moe_plan.hpp"

#include <cukiln/nvfp4/moe.hpp>

namespace cukiln::nvfp4 {

/// Checks what every launch, and workspace_bytes, expect of a shape.
inline Result<void> check_moe_shape(const MoeShape& shape) noexcept {
  if (shape.tokens < 0 || shape.tokens > INT32_MAX) {
    return kernels::refuse("tokens is {}; expected 0 to {}", shape.tokens, INT32_MAX);
  }
  if (shape.hidden <= 0 || shape.hidden > INT32_MAX || shape.hidden % 32 != 0) {
    return kernels::refuse("hidden is {}; expected a positive multiple of 32", shape.hidden);
  }
  if (shape.width <= 0 || shape.width > INT32_MAX || shape.width % 32 != 0) {
    return kernels::refuse("width is {}; expected a positive multiple of 32", shape.width);
  }
  if (shape.experts < 1 || shape.experts > kMoeMaxExperts) {
    return kernels::refuse("experts is {}; expected 1 to {}", shape.experts, kMoeMaxExperts);
  }
  if (shape.experts * std::max(2 * shape.width, shape.hidden) > INT32_MAX) {
    return kernels::refuse("{} experts with {} and {} rows of weights; expected at most {} in all",
                           shape.experts, 2 * shape.width, shape.hidden, INT32_MAX);
  }
  if (shape.global_experts < 0 || shape.global_experts > INT32_MAX) {
    return kernels::refuse("global_experts is {}; expected 0 to {}", shape.global_experts,
                           INT32_MAX);
  }
  if (shape.topk < 1 || shape.topk > kMoeMaxTopk) {
    return kernels::refuse("topk is {}; expected 1 to {}", shape.topk, kMoeMaxTopk);
  }
  if (shape.tokens * shape.topk > kMoeMaxSlots) {
    return kernels::refuse(
        "{} tokens with {} experts each; expected at most {} in all: launch parts of the tokens",
        shape.tokens, shape.topk, kMoeMaxSlots);
  }
  return {};
}

inline Result<void> check_weights(const char* name, const MoeWeights& weights, std::int64_t experts,
                                  std::int64_t rows, std::int64_t columns) noexcept {
  if (weights.experts != experts || weights.rows != rows || weights.columns != columns) {
    return kernels::refuse("{} is [{}, {}, {}]; expected [{}, {}, {}]", name, weights.experts,
                           weights.rows, weights.columns, experts, rows, columns);
  }
  CUKILN_CHECK(kernels::check_pointer(name, "data", weights.data, 16));
  CUKILN_CHECK(kernels::check_pointer(name, "scales", weights.scales, 16));
  CUKILN_CHECK(kernels::check_pointer(name, "decode", weights.decode, 4));
  return weights.bias == nullptr ? Result<void>()
                                 : kernels::check_pointer(name, "bias", weights.bias, 16);
}

inline Result<void> check_layer(const MoeLayer& layer, const MoeShape& shape) noexcept {
  CUKILN_CHECK(check_weights("layer.up", layer.up, shape.experts, 2 * shape.width, shape.hidden));
  CUKILN_CHECK(check_weights("layer.down", layer.down, shape.experts, shape.hidden, shape.width));
  if (!shape.w4a16 && !shape.dynamic_activation_scale) {
    CUKILN_CHECK(kernels::check_pointer("layer", "activation_scale", layer.activation_scale,
                                        alignof(GlobalScale)));
  }
  return kernels::check_optional_vector("layer.expert_map", layer.expert_map, DataType::i32,
                                        shape.global_experts, 4);
}

inline Result<void> check_moe_input(const MutableMatrixView& output, const MoeInput& input,
                                    const MoeShape& shape) noexcept {
  const std::int64_t tokens = shape.tokens;
  CUKILN_CHECK(
      kernels::check_dense_matrix("output", output, DataType::bf16, tokens, shape.hidden, 16));
  CUKILN_CHECK(kernels::check_dense_matrix("input.hidden", input.hidden, DataType::bf16, tokens,
                                           shape.hidden, 16));
  if (!shape.w4a16) {
    CUKILN_CHECK(
        kernels::check_pointer("input", "hidden_scale", input.hidden_scale, alignof(GlobalScale)));
  }
  CUKILN_CHECK(kernels::check_dense_matrix("input.topk_ids", input.topk_ids, DataType::i32, tokens,
                                           shape.topk, 4));
  return kernels::check_dense_matrix("input.topk_weights", input.topk_weights, DataType::f32,
                                     tokens, shape.topk, 4);
}

}  // namespace cukiln::nvfp4
