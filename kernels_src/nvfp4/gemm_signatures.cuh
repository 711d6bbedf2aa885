// Parameters of the GEMM kernels: for the kernels, for host code that launches them, and for the tables of
// gemm.md, which scripts/kernel-tables writes from the comments. Included after the header that declares
// TensorMap: machine.cuh, or a host's.
#pragma once

#include "types.cuh"

namespace cukiln {
namespace signatures {

// nvfp4_gemm_128x128, _128x256, _256x256, _256x128, _256x*_x2, _256x*_x4
using Nvfp4Gemm = void(
    TensorMap rows,               // data: uint8 {k / 2, rows}, box {128, 128}, of `_x2` and `_x4`
                                  // {128, 64}, 128-byte swizzle
    TensorMap columns,            // likewise, box {128, tile columns / CTAs}, of `_x4` half of that
    TensorMap row_scales,         // uint16 {256, ceil(k / 64), ceil(rows / 128)}, box {256, 4, 1}, of
                                  // `_x2` and `_x4` {256, 2, 1}, no swizzle
    TensorMap column_scales,      // likewise, box {256, 4, ceil(tile columns / 128)}, of pairs
                                  // {256, 4, 1}, of those with 128 columns and of `_x4` {256, 2, 1}
    TensorMap output,             // bf16 {n, m}, box {64, 32}, 128-byte swizzle
    const float* a_global_scale,  // {encode, decode}
    const float* b_global_scale,  // {encode, decode}
    const bf16* bias,             // [n], or null
    u32 m,
    u32 n,                        // multiple of 8
    u32 k,                        // multiple of 32
    u32 constant_b);              // 0 or 1

// nvfp4_gemm_swapped_*
using Nvfp4GemmSwapped = void(
    TensorMap rows,               // of B: as of `nvfp4_gemm_128x128`, of `_half` box {128, 64}
    TensorMap columns,            // of A: likewise, box {128, tile columns}
    TensorMap row_scales,         // as of `nvfp4_gemm_128x128`
    TensorMap column_scales,      // likewise
    bf16* output,                 // out, [m, n]
    const float* a_global_scale,  // {encode, decode}
    const float* b_global_scale,  // {encode, decode}
    const bf16* bias,             // [n], or null
    u32 m,
    u32 n,                        // multiple of 8
    u32 k,                        // multiple of 32
    u32 constant_b);              // 0 or 1

// nvfp4_gemm_grouped_128x128, _128x256
using Nvfp4GemmGrouped = void(
    TensorMap rows,               // as of `nvfp4_gemm_128x128`
    TensorMap columns,            // likewise, of all experts: rows experts * n
    TensorMap row_scales,         // likewise
    TensorMap column_scales,      // likewise, of all experts
    TensorMap output,             // likewise
    const float* a_global_scale,  // {encode, decode}, or [experts] or [m] of them
    const float* b_global_scale,  // [experts] of {encode, decode}
    const bf16* bias,             // [experts, n], or null
    u32 m,
    u32 n,                        // multiple of 128
    u32 k,                        // multiple of 32
    const int* experts,           // [ceil(m / 128)]; negative: not computed
    u32 a_scales,                 // 0: one scale for all rows; 1: one for each expert; 2: one for each row
    const u32* row_tile_count);   // of 128 rows: later ones are not computed; null: ceil(m / 128)

// nvfp4_gemm_decode_*
using Nvfp4GemmDecode = void(
    bf16* output,                 // out, [m, n]
    const u8* a_data,
    TensorMap b_data,             // uint8 {k / 2, n}, box {128, rows}, 128-byte swizzle
    const u8* a_scales,
    const u8* b_scales,
    const float* a_global_scale,  // {encode, decode}
    const float* b_global_scale,  // {encode, decode}
    const bf16* bias,             // [n], or null
    u32 m,
    u32 n,                        // multiple of 8
    u32 k,                        // multiple of 32
    u32 constant_b);              // 0 or 1

// nvfp4_gemm_expand
using Nvfp4GemmExpand = void(
    u32* output,         // out, fp16 [m, ceil(k / 128) * 128]
    const u8* a_data,
    const u8* a_scales,
    u32 m,
    u32 k);              // multiple of 32

// nvfp4_gemm_prefill_*
using Nvfp4GemmPrefill = void(
    bf16* output,                 // out, [m, n]
    TensorMap tokens,             // expand's output: fp16 {ceil(k / 128) * 128, m}, box {64, tokens},
                                  // 128-byte swizzle
    TensorMap b_data,             // uint8 {k / 2, n}, box {64, rows}, no swizzle
    const u8* b_scales,
    const float* a_global_scale,  // {encode, decode}
    const float* b_global_scale,  // {encode, decode}
    const bf16* bias,             // [n], or null
    u32 m,
    u32 n,                        // multiple of 8
    u32 k,                        // multiple of 32
    u32 output_stride);           // elements

// w4a16_gemm_decode_*
using W4a16GemmDecode = void(
    bf16* output,                 // out, [m, n]
    const bf16* a,                // [m, k]
    u64 a_stride,                 // elements from one row to the next
    TensorMap b_data,             // uint8 {k / 2, n}, box {128, rows}, 128-byte swizzle
    const u8* b_scales,
    const float* b_global_scale,  // {encode, decode}
    const bf16* bias,             // [n], or null
    u32 m,
    u32 n,                        // multiple of 8
    u32 k,                        // multiple of 32
    u32 constant_b);              // 0 or 1

// w4a16_gemm_prefill_*
using W4a16GemmPrefill = void(
    bf16* output,                 // out, [m, n]
    TensorMap tokens,             // A: bf16 {k, m}, box {64, tokens}, 128-byte swizzle
    TensorMap b_data,             // uint8 {k / 2, n}, box {64, rows}, 64-byte swizzle
    const u8* b_scales,
    const float* b_global_scale,  // {encode, decode}
    const bf16* bias,             // [n], or null
    u32 m,
    u32 n,                        // multiple of 8
    u32 k,                        // multiple of 32
    u32 output_stride);           // elements

// w4a16_gemm_prefill_*_helped, _helper
using W4a16GemmTail = void(
    bf16* output,                 // out, [m, n]; of helpers not written
    TensorMap tokens,             // as w4a16_gemm_prefill's
    TensorMap b_data,             // likewise
    const u8* b_scales,
    const float* b_global_scale,  // {encode, decode}
    const bf16* bias,             // [n], or null
    u32 m,
    u32 n,                        // multiple of 8
    u32 k,                        // multiple of 32
    u32 output_stride,            // elements
    float* partials,              // [tiles, tokens * rows of a tile]: the helper writes them, the other reads
    u32 tail_k_groups);           // groups of 128 of K of the tail, which the helper multiplies

// w4a16_gemm_skinny_*
using W4a16GemmSkinny = void(
    bf16* output,                 // out, [m, n]
    TensorMap tokens,             // A: bf16 {k, m}, box {64, min(m, tokens)}, 128-byte swizzle
    TensorMap b_data,             // uint8 {k / 2, n}, box {64, 64}, 64-byte swizzle
    const u8* b_scales,
    const float* b_global_scale,  // {encode, decode}
    const bf16* bias,             // [n], or null
    u32 m,
    u32 n,                        // multiple of 8
    u32 k,                        // multiple of 32
    u32 output_stride,            // elements
    u32 constant_b);              // 0 or 1

}  // namespace signatures
}  // namespace cukiln
