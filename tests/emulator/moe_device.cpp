// SPDX-License-Identifier: Apache-2.0
// The kernels of a mixture of experts without tensor cores as a host library: moe_test.py compiles
// it with what device_source.py made of the sources, and moe_cases.cpp opens it.

#include "device.hpp"  // first

#include "../emulator/moe_device.hpp"
#include "nvfp4_moe_combine.cu"
#include "nvfp4_moe_grouped.cu"
#include "nvfp4_moe_route.cu"

using namespace cukiln;

extern "C" {

moe_device::Route run_route;
moe_device::Gather run_gather;
moe_device::Activate run_activate;
moe_device::Combine run_combine;

void run_route(u32 grid, void* tiles, u32* tile_count, u32* slots, int* positions, u8* codes,
               u8* scales, const u16* hidden, const float* gsa, const int* topk_ids,
               const int* expert_map, u32 tokens, u32 topk, u32 columns, u32 global_experts,
               u32 experts, u32 tile_tokens) {
  device::launch(grid, 256, [=] {
    moe_route(static_cast<nvfp4::MoeTile*>(tiles), tile_count, slots, positions, codes, scales,
              hidden, gsa, topk_ids, expert_map, tokens, topk, columns, global_experts, experts,
              tile_tokens);
  });
}

void run_gather(u32 grid_x, u32 grid_y, u8* codes, u8* scales, int* row_experts, int* rows,
                float* up_gsa, float* down_gsa, const void* tiles, const u32* tile_count,
                const u32* slots, const u8* token_codes, const u8* token_scales,
                const float* up_decode, const float* down_decode, u32 topk, u32 columns) {
  device::launch({grid_x, grid_y}, 256, [=] {
    moe_gather(codes, scales, row_experts, rows, up_gsa, down_gsa,
               static_cast<const nvfp4::MoeTile*>(tiles), tile_count, slots, token_codes,
               token_scales, up_decode, down_decode, topk, columns);
  });
}

void run_activate(u32 grid, u8* codes, u8* scales, const u16* products, const u32* tile_count,
                  const float* gsa, u32 width, u32 layout, float limit, float alpha, float beta) {
  device::launch(grid, 512, [=] {
    moe_activate(codes, scales, products, tile_count, gsa, width, layout, limit, alpha, beta);
  });
}

void run_combine(u32 grid_x, u32 grid_y, u16* output, const u16* products,
                 const float* topk_weights, const int* rows, u32 topk, u32 columns) {
  device::launch({grid_x, grid_y}, 256,
                 [=] { moe_combine_rows(output, products, topk_weights, rows, topk, columns); });
}
}
