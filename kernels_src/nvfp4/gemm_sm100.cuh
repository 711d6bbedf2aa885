// The kernels of nvfp4_gemm for targets with tcgen05, in two modules: those with swapped operands are in that
// for 16 tokens. The launcher's table (sm100_plan.hpp) lists the same tiles.
#pragma once

#include "gemm_sm100_roles.cuh"
#include "gemm_sm100_swapped.cuh"
#include "gemm_signatures.cuh"

#define CUKILN_SM100_PARAMETERS                                                              \
  const __grid_constant__ cukiln::TensorMap rows,                                            \
      const __grid_constant__ cukiln::TensorMap columns,                                     \
      const __grid_constant__ cukiln::TensorMap row_scales,                                  \
      const __grid_constant__ cukiln::TensorMap column_scales,                               \
      const __grid_constant__ cukiln::TensorMap output, const float *a_global_scale,         \
      const float *b_global_scale, const cukiln::bf16 *bias, cukiln::u32 m, cukiln::u32 n,   \
      cukiln::u32 k
#define CUKILN_SM100_KERNEL(name, cluster, ...)                                              \
  extern "C" __global__ void cluster __launch_bounds__(cukiln::nvfp4::kSm100Threads, 1)      \
      name(CUKILN_SM100_PARAMETERS, cukiln::u32 constant_b) {                                \
    cukiln::nvfp4::gemm_sm100<cukiln::nvfp4::Sm100Tile<__VA_ARGS__>>(                        \
        {rows, columns, row_scales, column_scales, output, a_global_scale, b_global_scale,   \
         bias, m, n, k, nullptr, 0, constant_b, nullptr});                                   \
  }                                                                                          \
  static_assert(cukiln::kIsSame<decltype(name), cukiln::signatures::Nvfp4Gemm>);
#define CUKILN_SM100_SWAPPED_KERNEL(name, ...)                                               \
  extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kSm100Threads, 1)              \
      name(const __grid_constant__ cukiln::TensorMap rows,                                   \
           const __grid_constant__ cukiln::TensorMap columns,                                \
           const __grid_constant__ cukiln::TensorMap row_scales,                             \
           const __grid_constant__ cukiln::TensorMap column_scales, cukiln::bf16* output,    \
           const float* a_global_scale, const float* b_global_scale,                         \
           const cukiln::bf16* bias, cukiln::u32 m, cukiln::u32 n, cukiln::u32 k,            \
           cukiln::u32 constant_b) {                                                         \
    cukiln::nvfp4::gemm_sm100_swapped<cukiln::nvfp4::Sm100Tile<__VA_ARGS__>>(                \
        {rows, columns, row_scales, column_scales, rows, a_global_scale, b_global_scale,     \
         bias, m, n, k, nullptr, 0, constant_b, nullptr, output});                           \
  }                                                                                          \
  static_assert(cukiln::kIsSame<decltype(name), cukiln::signatures::Nvfp4GemmSwapped>);
#define CUKILN_SM100_GROUPED_KERNEL(name, ...)                                               \
  extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::kSm100Threads, 1)              \
      name(CUKILN_SM100_PARAMETERS, const int* experts, cukiln::u32 a_scales,                \
           const cukiln::u32* row_tile_count) {                                              \
    cukiln::nvfp4::gemm_sm100<cukiln::nvfp4::Sm100Tile<__VA_ARGS__, true>>(                  \
        {rows, columns, row_scales, column_scales, output, a_global_scale, b_global_scale,   \
         bias, m, n, k, experts, a_scales, 0, row_tile_count});                              \
  }                                                                                          \
  static_assert(cukiln::kIsSame<decltype(name), cukiln::signatures::Nvfp4GemmGrouped>);

//   name, columns, CTAs, swapped, grouped, tiles that share rows, rows, tiles that share columns
#if CUKILN_GEMM_TOKENS == 8 || defined(CUKILN_MACHINE)
CUKILN_SM100_KERNEL(nvfp4_gemm_128x128, , 128, 1, false, false)
CUKILN_SM100_KERNEL(nvfp4_gemm_128x256, , 256, 1, false, false)
CUKILN_SM100_KERNEL(nvfp4_gemm_256x256, __cluster_dims__(2, 1, 1), 256, 2, false, false)
CUKILN_SM100_KERNEL(nvfp4_gemm_256x128, __cluster_dims__(2, 1, 1), 128, 2, false, false)
CUKILN_SM100_KERNEL(nvfp4_gemm_256x256_x2, __cluster_dims__(4, 1, 1), 256, 2, false, false, 2)
CUKILN_SM100_KERNEL(nvfp4_gemm_256x192_x2, __cluster_dims__(4, 1, 1), 192, 2, false, false, 2)
CUKILN_SM100_KERNEL(nvfp4_gemm_256x128_x2, __cluster_dims__(4, 1, 1), 128, 2, false, false, 2)
CUKILN_SM100_KERNEL(nvfp4_gemm_256x256_x4, __cluster_dims__(8, 1, 1), 256, 2, false, false, 2, 128, 2)
CUKILN_SM100_KERNEL(nvfp4_gemm_256x192_x4, __cluster_dims__(8, 1, 1), 192, 2, false, false, 2, 128, 2)
CUKILN_SM100_GROUPED_KERNEL(nvfp4_gemm_grouped_128x128, 128, 1, false)
CUKILN_SM100_GROUPED_KERNEL(nvfp4_gemm_grouped_128x256, 256, 1, false)
#endif
#if CUKILN_GEMM_TOKENS == 16 || defined(CUKILN_MACHINE)
CUKILN_SM100_SWAPPED_KERNEL(nvfp4_gemm_swapped_16, 16, 1, true, false)
CUKILN_SM100_SWAPPED_KERNEL(nvfp4_gemm_swapped_32, 32, 1, true, false)
CUKILN_SM100_SWAPPED_KERNEL(nvfp4_gemm_swapped_64, 64, 1, true, false)
CUKILN_SM100_SWAPPED_KERNEL(nvfp4_gemm_swapped_128, 128, 1, true, false)
CUKILN_SM100_SWAPPED_KERNEL(nvfp4_gemm_swapped_256, 256, 1, true, false)
CUKILN_SM100_SWAPPED_KERNEL(nvfp4_gemm_swapped_64_half, 64, 1, true, false, 1, 64)
#endif

#undef CUKILN_SM100_GROUPED_KERNEL
#undef CUKILN_SM100_SWAPPED_KERNEL
#undef CUKILN_SM100_KERNEL
#undef CUKILN_SM100_PARAMETERS
