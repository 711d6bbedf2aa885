// Parameters of the kernels of a mixture of experts by grouped GEMMs, as moe_signatures.cuh. Included after
// the header that declares TensorMap.
#pragma once

#include "types.cuh"

namespace cukiln {
namespace signatures {

// moe_grouped_up, moe_grouped_up_dynamic
using MoeGroupedUp = void(
    u8* data,                         // out, of y
    u8* scales,                       // out, of y, swizzled
    TensorMap rows,                   // data of A: uint8 {columns / 2, rows}, box {128, 128}, 128-byte swizzle
    TensorMap weights,                // likewise, of all experts: experts * 2 * width rows
    TensorMap row_scales,             // uint16 {256, ceil(columns / 64), rows / 128}, box {256, 4, 1}, no swizzle
    TensorMap weight_scales,          // likewise, of all experts
    const float* token_global_scale,  // {encode, decode} of x
    const float* weight_decode,       // [experts]
    const bf16* bias,                 // [experts, 2 * width], or null
    const float* global_scale,        // {encode, decode} of y; `_dynamic`: not read
    const int* row_experts,           // [rows / 128]
    const u32* row_tile_count,        // of 128 rows: later ones are not computed
    u32 row_count,                    // of A
    u32 columns,                      // of A; multiple of 32
    u32 width,                        // multiple of 64
    u32 layout,                       // 0 halves, 1 pairs
    float limit,                      // > 0, inf for none
    float alpha,
    float beta,
    float* row_scales_of_y,           // `_dynamic` alone, as what follows: out, {encode, decode} by row
    u16* wide_scales,                 // [rows * width / 16], not read by others
    u32* row_states);                 // as `moe_route_rows` leaves them

}  // namespace signatures
}  // namespace cukiln
