// Parameters of the quantisers: for the kernels, for host code that launches them, and for the tables of
// quantize.md, which scripts/kernel-tables writes from the comments.
#pragma once

#include "types.cuh"

namespace cukiln {
namespace signatures {

using AmaxGsa = void(
    float* global_scale,  // out, {encode, decode}
    const bf16* input,    // [rows, columns]
    u32 rows,
    u32 columns,
    i64 row_stride,
    u32* workspace,       // one u32 for each thread block; zero before the first launch, left zero by every
                          // launch; not shared by streams
    float divisor);       // encode = divisor / amax; 1 to 2688, which TransformerEngine's formula has

using AmaxGsaByRow = void(
    float* global_scale,  // out, {encode, decode}
    float* row_amax,      // out, [rows]; NaN for a row that contains a NaN
    const bf16* input,    // [rows, columns]
    u32 rows,
    u32 columns,
    i64 row_stride,
    u32* workspace,       // as of `amax_gsa`
    float divisor);       // as of `amax_gsa`

using QuantizeNvfp4 = void(
    u8* data,            // out, 8-byte aligned
    u8* scales,          // out
    const bf16* input,   // [rows, columns], rows 16-byte aligned
    float encode_scale,  // positive, finite
    u32 rows,
    u32 columns,         // multiple of 16
    i64 row_stride);     // multiple of 8

using QuantizeNvfp4FromBuffer = void(
    u8* data,                   // out, 8-byte aligned
    u8* scales,                 // out
    const bf16* input,          // [rows, columns], rows 16-byte aligned
    const float* global_scale,  // {encode, decode}
    u32 rows,
    u32 columns,                // multiple of 16
    i64 row_stride);            // multiple of 8

using DeinterleaveQuantizeFromBuffer = void(
    u8* data,                   // out, 8-byte aligned
    u8* scales,                 // out
    const bf16* input,          // [rows, 2 * columns], rows 16-byte aligned
    const float* global_scale,  // {encode, decode}
    u32 rows,
    u32 columns,                // of one matrix; multiple of 16
    i64 row_stride);            // multiple of 8

using SwigluQuantizeFromBuffer = void(
    u8* data,                   // out, 8-byte aligned
    u8* scales,                 // out
    const bf16* input,          // [rows, 2 * columns], rows 16-byte aligned
    const float* global_scale,  // {encode, decode}, of SwiGLU(gate, up)
    u32 rows,
    u32 columns,                // of one matrix; multiple of 16
    i64 row_stride,             // multiple of 8
    u32 layout,                 // 0 halves, 1 pairs
    float limit,                // > 0, inf for none
    float alpha,
    float beta);

using SwigluAmaxGsa = void(
    float* global_scale,  // out, {encode, decode}
    const bf16* input,    // [rows, 2 * columns], rows 16-byte aligned
    u32 rows,
    u32 columns,          // of one matrix; multiple of 16
    i64 row_stride,       // multiple of 8
    u32 layout,           // 0 halves, 1 pairs
    float limit,          // > 0, inf for none
    float alpha,
    float beta,
    u32* workspace,       // as of `amax_gsa`
    float divisor);       // as of `amax_gsa`

}  // namespace signatures
}  // namespace cukiln
