// The kernels of nvfp4_gemm for few tokens, of sm_90a and of whatever has no kernels of its own. The
// launcher's table names the same tiles and shared memory.
#pragma once

#include "gemm_sm90_decode.cuh"

#define CUKILN_GEMM_DECODE(kTokens, kUnits, kResident, kShared)                                   \
  extern "C" __global__ void __launch_bounds__(288, kResident)                                    \
      nvfp4_gemm_decode_##kTokens##x##kUnits(                                                     \
          cukiln::u16* output, const cukiln::u8* tokens,                                          \
          const __grid_constant__ cukiln::TensorMap codes, const cukiln::u8* a_scales,            \
          const cukiln::u8* b_scales, const float* a_gsa, const float* b_gsa,                     \
          const cukiln::u16* bias, cukiln::u32 m, cukiln::u32 n, cukiln::u32 k,                   \
          cukiln::u32 constant_b) {                                                               \
    using Gemm = cukiln::nvfp4::DecodeGemm<kTokens, kUnits>;                                      \
    static_assert(Gemm::kThreads == 288, "the launch bounds have another number");                \
    static_assert(Gemm::kSharedBytes == kShared, "the launcher's table has another number");      \
    Gemm::run(output, tokens, &codes, a_scales, b_scales, a_gsa, b_gsa, bias, m, n, k, constant_b != 0); \
  }

CUKILN_GEMM_DECODE(8, 2, 2, 33856)
CUKILN_GEMM_DECODE(8, 4, 2, 50240)
CUKILN_GEMM_DECODE(8, 7, 1, 91200)
CUKILN_GEMM_DECODE(16, 2, 2, 33856)
CUKILN_GEMM_DECODE(16, 4, 2, 50240)
CUKILN_GEMM_DECODE(16, 7, 1, 91200)

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

CUKILN_GEMM_DECODE(16, 18, 1, 181312)

#endif
