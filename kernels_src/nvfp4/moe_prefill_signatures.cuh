// Parameters of the kernels of nvfp4_moe_prefill.cu and nvfp4_moe_w4a16_prefill.cu; moe_signatures.cuh has
// those of the other kernels of a mixture of experts. Included after the header that declares TensorMap:
// machine.cuh, or a host's.
#pragma once

#include "types.cuh"

namespace cukiln {
namespace nvfp4 {
struct MoeTile;
}  // namespace nvfp4

namespace signatures {

using nvfp4::MoeTile;

using MoeExpand = void(
    u32* output,           // out, fp16 [positions, ceil(columns / 128) * 128]
    const u8* data,
    const u8* scales,      // linear
    const u32* slots,      // or null: rows in their own order
    const u32* row_count,  // positions: tile_count + 1
    u32 topk,
    u32 columns);

using MoePrefillUp = void(
    u8* data,                         // out, of y, or without global_scale bf16 y
    u8* scales,                       // out, of y, linear
    const MoeTile* tiles,
    const u32* tile_count,
    TensorMap tokens,                 // `moe_expand`'s output
    const float* token_global_scale,  // {encode, decode} of x
    TensorMap weights,                // data of all experts
    const u8* weight_scales,
    const float* weight_decode,       // [experts]
    const bf16* bias,                 // [experts, 2 * width], or null
    const float* global_scale,        // {encode, decode} of y, or null
    u32 columns,                      // of hidden
    u32 width,                        // multiple of 64
    u32 layout,                       // 0 halves, 1 pairs
    float limit,                      // > 0, inf for none
    float alpha,
    float beta);

using MoePrefillDown = void(
    bf16* output,                     // out, [positions, columns]
    const MoeTile* tiles,
    const u32* tile_count,
    TensorMap tokens,                 // `moe_expand`'s output
    const float* token_global_scale,  // {encode, decode} of y, or null
    const float* row_decode,          // [positions] of y, or null
    TensorMap weights,                // data of all experts
    const u8* weight_scales,
    const float* weight_decode,       // [experts]
    const bf16* bias,                 // [experts, columns], or null
    u32 columns,                      // of the output
    u32 width);                       // multiple of 64

using MoeW4a16Gather = void(
    bf16* output,           // out, [positions, ceil(columns / 128) * 128], K permuted
    const bf16* hidden,     // [tokens, columns]
    const u32* slots,
    const u32* row_count,   // positions: tile_count + 1
    u32 topk,
    u32 columns);

using MoeW4a16PrefillUp = void(
    bf16* y,                     // out, [positions, ceil(width / 128) * 128], K permuted
    const MoeTile* tiles,
    const u32* tile_count,
    TensorMap tokens,            // `moe_w4a16_gather`'s output
    TensorMap weights,           // data of all experts
    const u8* weight_scales,
    const float* weight_decode,  // [experts]
    const bf16* bias,            // [experts, 2 * width], or null
    u32 columns,                 // of hidden
    u32 width,                   // multiple of 64
    u32 layout,                  // 0 halves, 1 pairs
    float limit,                 // > 0, inf for none
    float alpha,
    float beta);

using MoeW4a16PrefillDown = void(
    bf16* output,                // out, [positions, columns]
    const MoeTile* tiles,
    const u32* tile_count,
    TensorMap tokens,            // y of `moe_w4a16_prefill_up`
    TensorMap weights,           // data of all experts
    const u8* weight_scales,
    const float* weight_decode,  // [experts]
    const bf16* bias,            // [experts, columns], or null
    u32 columns,                 // of the output
    u32 width);                  // multiple of 64

}  // namespace signatures
}  // namespace cukiln
