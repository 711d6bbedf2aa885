// Parameters of the kernels of a mixture of experts: for the kernels, for host code that launches them, and
// for the tables of moe.md, which scripts/kernel-tables writes from the comments.
#pragma once

#include "types.cuh"

namespace cukiln {
namespace nvfp4 {
struct MoeTile;
}  // namespace nvfp4

namespace signatures {

using nvfp4::MoeTile;

using MoeRoute = void(
    MoeTile* tiles,             // out
    u32* tile_count,            // out, {tiles, positions}
    u32* slots,                 // out, by position
    int* positions,             // out, by slot, or -1
    u8* data,                   // out, of x
    u8* scales,                 // out, of x, linear
    const bf16* hidden,         // [tokens, columns]
    const float* global_scale,  // {encode, decode} of x
    const int* topk_ids,        // [tokens, topk]
    const int* expert_map,      // [global_experts], or null
    u32 tokens,
    u32 topk,
    u32 columns,                // of hidden
    u32 global_experts,
    u32 experts,                // at most 1024
    u32 tile_tokens,            // T
    u32 sorters);               // thread blocks that sort

using MoeQuantizeRows = void(
    u8* data,              // out, [rows, columns / 2]
    u8* scales,            // out, linear
    float* row_decode,     // out, [rows]
    const bf16* values,    // [rows, columns]
    const u32* row_count,  // positions: tile_count + 1
    u32 columns);          // multiple of 16

using MoeUp = void(
    u8* data,                         // out, of y, or without global_scale bf16 y
    u8* scales,                       // out, of y, linear
    const MoeTile* tiles,
    const u32* tile_count,
    const u32* slots,
    const u8* token_data,             // of x
    const u8* token_scales,           // of x, linear
    const float* token_global_scale,  // {encode, decode} of x
    const u8* weight_data,            // [experts, 2 * width, columns]
    const u8* weight_scales,
    const float* weight_decode,       // [experts]
    const bf16* bias,                 // [experts, 2 * width], or null
    const float* global_scale,        // {encode, decode} of y, or null
    u32 topk,
    u32 columns,                      // of hidden
    u32 width,
    u32 layout,                       // 0 halves, 1 pairs
    float limit,                      // > 0, inf for none
    float alpha,
    float beta);

using MoeDown = void(
    float* partial,                   // out, [splits, slot_count, columns]
    const MoeTile* tiles,
    const u32* tile_count,
    const u8* token_data,             // of y
    const u8* token_scales,           // of y, linear
    const float* token_global_scale,  // {encode, decode} of y, or null
    const float* row_decode,          // [positions] of y, or null
    const u8* weight_data,            // [experts, columns, width]
    const u8* weight_scales,
    const float* weight_decode,       // [experts]
    const bf16* bias,                 // [experts, columns], or null
    u32 slot_count,                   // tokens * topk
    u32 columns,                      // of the output
    u32 width,
    u32 splits);                      // of K

using MoeW4a16Up = void(
    bf16* y,                     // out
    const MoeTile* tiles,
    const u32* tile_count,
    const u32* slots,
    const bf16* hidden,          // [tokens, columns]
    const u8* weight_data,       // [experts, 2 * width, columns]
    const u8* weight_scales,
    const float* weight_decode,  // [experts]
    const bf16* bias,            // [experts, 2 * width], or null
    u32 topk,
    u32 columns,                 // of hidden
    u32 width,
    u32 layout,                  // 0 halves, 1 pairs
    float limit,                 // > 0, inf for none
    float alpha,
    float beta);

using MoeW4a16Down = void(
    float* partial,              // out, [splits, slot_count, columns]
    const MoeTile* tiles,
    const u32* tile_count,
    const bf16* y,
    const u8* weight_data,       // [experts, columns, width]
    const u8* weight_scales,
    const float* weight_decode,  // [experts]
    const bf16* bias,            // [experts, columns], or null
    u32 slot_count,              // tokens * topk
    u32 columns,                 // of the output
    u32 width,
    u32 splits);                 // of K

using MoeCombine = void(
    bf16* output,               // out, [tokens, columns]
    const float* partial,       // [splits, tokens * topk, columns]
    const float* topk_weights,  // [tokens, topk]
    const int* positions,       // by slot
    u32 topk,
    u32 columns,                // multiple of 4
    u32 splits);

using MoeRouteRows = void(
    u8* data,                   // out, of rows
    u8* scales,                 // out, of rows, swizzled
    int* row_experts,           // out, by tile
    u32* tile_count,            // out
    int* rows,                  // out, by slot, or -1
    float* down_global_scales,  // out, {-, decode} by expert
    u32* row_states,            // out, zeros, {column tiles, largest wide scale} by row, or null
    const bf16* hidden,         // [tokens, columns]
    const float* global_scale,  // {encode, decode} of x
    const int* topk_ids,        // [tokens, topk]
    const int* expert_map,      // [global_experts], or null
    const float* down_decode,   // [experts]
    u32 tokens,
    u32 topk,
    u32 columns,                // of hidden; multiple of 64
    u32 global_experts,
    u32 experts);               // at most 1024

using MoeCombineRows = void(
    bf16* output,               // out, [tokens, columns]
    const bf16* gemm_output,    // [rows, columns]
    const float* topk_weights,  // [tokens, topk]
    const int* rows,            // by slot, or -1
    u32 topk,
    u32 columns);               // multiple of 8

}  // namespace signatures
}  // namespace cukiln
