// The decode kernels of nvfp4_gemm, for m <= CUKILN_GEMM_TOKENS, on sm_90a and on targets without kernels
// of their own. Name: tokens x row tiles of 8. The launcher's table (sm90_plan.hpp) has the same tiles and
// shared memory.
#pragma once

#include "gemm_sm90_decode.cuh"
#include "gemm_signatures.cuh"

#define CUKILN_GEMM_DECODE(kTokens, kRowTiles, kBlocksPerSm, kShared)                             \
  extern "C" __global__ void __launch_bounds__(                                                   \
      cukiln::nvfp4::DecodeGemm<kTokens, kRowTiles, kBlocksPerSm>::kThreads, kBlocksPerSm)        \
      nvfp4_gemm_decode_##kTokens##x##kRowTiles(                                                  \
          cukiln::bf16* output, const cukiln::u8* a_data,                                         \
          const __grid_constant__ cukiln::TensorMap b_data, const cukiln::u8* a_scales,           \
          const cukiln::u8* b_scales, const float* a_global_scale, const float* b_global_scale,   \
          const cukiln::bf16* bias, cukiln::u32 m, cukiln::u32 n, cukiln::u32 k,                  \
          cukiln::u32 constant_b) {                                                               \
    using Gemm = cukiln::nvfp4::DecodeGemm<kTokens, kRowTiles, kBlocksPerSm>;                     \
    static_assert(Gemm::kSharedBytes == kShared, "the launcher's table has another number");      \
    Gemm::run({output, a_data, &b_data, a_scales, b_scales, a_global_scale, b_global_scale, bias, \
               m, n, k, constant_b != 0});                                                        \
  }                                                                                               \
  static_assert(cukiln::kIsSame<decltype(nvfp4_gemm_decode_##kTokens##x##kRowTiles),              \
                                cukiln::signatures::Nvfp4GemmDecode>);

#if CUKILN_GEMM_TOKENS == 8

CUKILN_GEMM_DECODE(8, 2, 2, 33856)
CUKILN_GEMM_DECODE(8, 4, 2, 50240)
CUKILN_GEMM_DECODE(8, 7, 1, 91200)
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
CUKILN_GEMM_DECODE(8, 5, 2, 74816)
CUKILN_GEMM_DECODE(8, 18, 1, 181312)
#endif

#elif CUKILN_GEMM_TOKENS == 16

CUKILN_GEMM_DECODE(16, 2, 2, 33856)
CUKILN_GEMM_DECODE(16, 4, 1, 50240)
CUKILN_GEMM_DECODE(16, 7, 1, 91200)
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
CUKILN_GEMM_DECODE(16, 5, 1, 74816)
CUKILN_GEMM_DECODE(16, 8, 1, 83008)
CUKILN_GEMM_DECODE(16, 10, 1, 115776)
CUKILN_GEMM_DECODE(16, 14, 1, 148544)
CUKILN_GEMM_DECODE(16, 18, 1, 181312)
#endif

#elif CUKILN_GEMM_TOKENS == 32

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
CUKILN_GEMM_DECODE(32, 4, 1, 50240)
CUKILN_GEMM_DECODE(32, 5, 1, 74816)
CUKILN_GEMM_DECODE(32, 7, 1, 91200)
CUKILN_GEMM_DECODE(32, 8, 1, 83008)
CUKILN_GEMM_DECODE(32, 10, 1, 115776)
#endif

#else
#error "CUKILN_GEMM_TOKENS: 8, 16 or 32 is expected"
#endif
