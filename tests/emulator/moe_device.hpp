// SPDX-License-Identifier: Apache-2.0
#pragma once

// The kernels of a mixture of experts that have no tensor cores, as the library that moe_device.cpp
// makes has them.

#include <cstdint>

namespace moe_device {

using Route = void(std::uint32_t grid, void* tiles, std::uint32_t* tile_count, std::uint32_t* slots,
                   std::int32_t* positions, std::uint8_t* codes, std::uint8_t* scales,
                   const std::uint16_t* hidden, const float* gsa, const std::int32_t* topk_ids,
                   const std::int32_t* expert_map, std::uint32_t tokens, std::uint32_t topk,
                   std::uint32_t columns, std::uint32_t global_experts, std::uint32_t experts,
                   std::uint32_t tile_tokens);
using Gather = void(std::uint32_t grid_x, std::uint32_t grid_y, std::uint8_t* codes,
                    std::uint8_t* scales, std::int32_t* row_experts, std::int32_t* rows,
                    float* up_gsa, float* down_gsa, const void* tiles,
                    const std::uint32_t* tile_count, const std::uint32_t* slots,
                    const std::uint8_t* token_codes, const std::uint8_t* token_scales,
                    const float* up_decode, const float* down_decode, std::uint32_t topk,
                    std::uint32_t columns);
using Activate = void(std::uint32_t grid, std::uint8_t* codes, std::uint8_t* scales,
                      const std::uint16_t* products, const std::uint32_t* tile_count,
                      const float* gsa, std::uint32_t width, std::uint32_t layout, float limit,
                      float alpha, float beta);
using Combine = void(std::uint32_t grid_x, std::uint32_t grid_y, std::uint16_t* output,
                     const std::uint16_t* products, const float* topk_weights,
                     const std::int32_t* rows, std::uint32_t topk, std::uint32_t columns);

}  // namespace moe_device
