// moe_grouped_up, moe_grouped_up_dynamic: the first GEMM of a mixture of experts by groups of 128 rows, with
// SwiGLU and quantisation.
//
// What: row tile t, rows 128 * t to 128 * t + 127 of A, t < *row_tile_count, belongs to expert
//     e = row_experts[t]:
//     h[i, r] = bf16(token_decode * weight_decode[e] * sum over k of a(i, k) * w(e, r, k) + bias[e, r]),
//     y[i, c] = bf16(SwiGLU of columns c and width + c (layout 0) or 2 * c and 2 * c + 1 (layout 1) of h),
//   quantised with global_scale: the same bytes as nvfp4_gemm_grouped_* followed by
//   swiglu_quantize_from_buffer. moe_grouped_up_dynamic: quantised with a global scale of each row, a power of
//   two that it finds (row_scales.cuh). The other row tiles are neither computed nor written.
// Shapes: A [rows, columns] and the weights [experts * 2 * width, columns] as the quantisers write them; data
//   [rows, width / 2], scales in swizzled atoms (scale_layout.cuh); row_scales_of_y [rows]. row_states [rows, 2]
//   are zeros, which the kernel changes.
// Alignment: 16 bytes for data, scales and bias, which may be null: none; 8 for wide_scales.
// Limits: columns a multiple of 32, width of 64.
// NaN: a NaN scale of a row of A makes that row's scales NaN; one of a row of weights, its block of columns.
// CUKILN_NVFP4_FAST: as quantize_tiles.cuh; nothing of moe_grouped_up_dynamic.
// Determinism: bytes do not depend on which thread block completes a row; atomics count, or take a maximum.
// Targets: those with tcgen05's block-scaled MMA; for others the module is empty.
// Launch: block (192, 1, 1), grid min(tiles, num_sms) where ceil(width / 128) tiles are side by side, 229,480
//   bytes of dynamic shared memory; no cluster. src/nvfp4/host/moe_grouped.hpp makes the maps.
// Source: NVIDIA PTX ISA, tcgen05 and cp.async.bulk.
#include "block_scaled_mma.cuh"

#ifdef CUKILN_BLOCK_SCALED_MMA
#include "gemm_sm100_gate_up.cuh"
#include "moe_grouped_signatures.cuh"

// The last arguments are the problem's own.
#define CUKILN_MOE_GROUPED_UP(kName, Problem, ...)                                                \
  extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kSm100Threads, 1)                   \
      kName(cukiln::u8* data, cukiln::u8* scales, const __grid_constant__ cukiln::TensorMap rows, \
            const __grid_constant__ cukiln::TensorMap weights,                                    \
            const __grid_constant__ cukiln::TensorMap row_scales,                                 \
            const __grid_constant__ cukiln::TensorMap weight_scales,                              \
            const float* token_global_scale, const float* weight_decode,                          \
            const cukiln::bf16* bias, const float* global_scale, const int* row_experts,          \
            const cukiln::u32* row_tile_count, cukiln::u32 row_count, cukiln::u32 columns,        \
            cukiln::u32 width, cukiln::u32 layout, float limit, float alpha, float beta,          \
            float* row_scales_of_y, cukiln::u16* wide_scales, cukiln::u32* row_states) {          \
    using namespace cukiln::nvfp4;                                                                \
    const Problem problem{                                                                        \
        {{rows, weights, row_scales, weight_scales, rows /* none */, token_global_scale, nullptr, \
          bias, row_count, 2 * width, columns, row_experts, kOneScale, 0, row_tile_count},        \
         data,                                                                                    \
         scales,                                                                                  \
         weight_decode,                                                                           \
         width,                                                                                   \
         layout,                                                                                  \
         SwiGlu::of(limit, alpha, beta)},                                                         \
        __VA_ARGS__};                                                                             \
    gemm_sm100<GateUpTile>(problem);                                                              \
  }                                                                                               \
  static_assert(cukiln::kIsSame<decltype(kName), cukiln::signatures::MoeGroupedUp>);

CUKILN_MOE_GROUPED_UP(moe_grouped_up, FixedScaleProblem, global_scale)
CUKILN_MOE_GROUPED_UP(moe_grouped_up_dynamic, RowScaleProblem, reinterpret_cast<uint2*>(wide_scales),
                      row_states, row_scales_of_y)
#endif
