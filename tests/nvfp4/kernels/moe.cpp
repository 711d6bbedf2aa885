// SPDX-License-Identifier: Apache-2.0
// The kernels of a mixture of experts in W4A16, but for those with wgmma, as a host library, which
// moe_test.py calls.

#include "device.hpp"  // first

#include "nvfp4_moe_combine.cu"
#include "nvfp4_moe_route.cu"
#undef __shared__
#define __shared__ SHARED_IN_CLUSTER
#include "nvfp4_moe_w4a16.cu"
#include "nvfp4_moe_w4a16_prefill.cu"

namespace {

// Shared memory begins as bytes that are no sensible number.
void launch(Index grid, unsigned threads, unsigned cluster, const std::function<void()>& kernel) {
  device::shared_variables = __start_shared_memory;
  device::shared_memory.assign(
      static_cast<std::size_t>(__stop_shared_memory - __start_shared_memory), '\xFF');
  ptx::copies.clear();
  ptx::mma_count.clear();
  device::launch(grid, threads, kernel, cluster);
}

}  // namespace

extern "C" {

using namespace cukiln;  // NOLINT: the file is a C interface

void run_route(u32 sorters, nvfp4::MoeTile* tiles, u32* tile_count, u32* slots, int* positions,
               const int* ids, const int* expert_map, u32 tokens, u32 topk, u32 global_experts,
               u32 experts) {
  launch({sorters, 1}, 256, 1, [=] {
    moe_route(tiles, tile_count, slots, positions, nullptr, nullptr, nullptr, nullptr, ids,
              expert_map, tokens, topk, 0, global_experts, experts, CUKILN_MOE_TOKENS, sorters);
  });
}

void run_up(u32 tiles_given, u32 splits, u16* y, const nvfp4::MoeTile* tiles, const u32* tile_count,
            const u32* slots, const u16* hidden, const u8* data, const u8* scales,
            const float* decode, const u16* bias, u32 topk, u32 columns, u32 width, u32 layout,
            float limit, float alpha, float beta) {
  launch({(width + 127) / 128 * 2 * splits, tiles_given}, 128, 2 * splits, [=] {
    moe_w4a16_up(y, tiles, tile_count, slots, hidden, data, scales, decode, bias, topk, columns,
                 width, layout, limit, alpha, beta);
  });
}

void run_down(u32 tiles_given, u32 splits, float* partial, const nvfp4::MoeTile* tiles,
              const u32* tile_count, const u16* y, const u8* data, const u8* scales,
              const float* decode, const u16* bias, u32 slots, u32 columns, u32 width) {
  launch({(columns + 127) / 128 * splits, tiles_given}, 128, 1, [=] {
    moe_w4a16_down(partial, tiles, tile_count, y, data, scales, decode, bias, slots, columns, width,
                   splits);
  });
}

void run_combine(u32 tokens, u16* output, const float* partial, const float* weights,
                 const int* positions, u32 topk, u32 columns, u32 splits) {
  launch({tokens, (columns + 1023) / 1024}, 256, 1,
         [=] { moe_combine(output, partial, weights, positions, topk, columns, splits); });
}

void run_quantize_rows(u32 blocks, u8* data, u8* scales, float* row_decode, const u16* values,
                       const u32* row_count, u32 columns) {
  launch({blocks, 1}, 128, 1,
         [=] { moe_quantize_rows(data, scales, row_decode, values, row_count, columns); });
}

void run_gather(u32 blocks, u16* output, const u16* hidden, const u32* slots, const u32* row_count,
                u32 topk, u32 columns) {
  launch({blocks, 1}, 256, 1,
         [=] { moe_w4a16_gather(output, hidden, slots, row_count, topk, columns); });
}
}
