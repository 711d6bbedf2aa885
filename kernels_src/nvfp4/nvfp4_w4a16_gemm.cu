// w4a16_gemm_decode: D = A * B^T of a bf16 and an NVFP4 matrix for few rows of A, with bf16 output.
//
// What: D[i, j] = bf16(decode * sum over k of a(i, k) * b(j, k) + bias[j]); b are E2M1 values times their
//   block scales, exact in bf16; decode is the decode scale of B. Products are exact, sums in float.
// Shapes: A bf16 [m, k], rows `a_stride` elements apart; B [n, k] as the quantisers write it: packed E2M1
//   data, dense; block scales in swizzled atoms (scale_layout.cuh); global scale {encode, decode}. bias bf16
//   [n], or null. D bf16 [m, n], dense.
// Alignment: rows of A, data, scales, bias and D 16 bytes.
// Limits: k a multiple of 32, n of 8.
// NaN: a NaN scale makes its column of D NaN. Padding of scales may hold anything.
// CUKILN_GEMM_TOKENS: 8 or 16, the rows of A that a block takes. For larger m sm_90a has
//   nvfp4_w4a16_gemm_skinny.cu and nvfp4_w4a16_gemm_prefill.cu.
// Launch: which kernel for which shape, grid and shared memory: the launcher
//   src/nvfp4/host/w4a16_gemm.cpp.
// Source: NVIDIA PTX ISA, mma and cp.async.bulk.
#include "gemm_sm90_decode.cuh"
#include "gemm_signatures.cuh"

#ifndef CUKILN_GEMM_TOKENS
#define CUKILN_GEMM_TOKENS 8
#endif

#define CUKILN_W4A16_DECODE(kTokens, kRowTiles, kBlocksPerSm, kShared)                            \
  extern "C" __global__ void __launch_bounds__(                                                   \
      cukiln::nvfp4::DecodeGemm<kTokens, kRowTiles, kBlocksPerSm>::kThreads, kBlocksPerSm)        \
      w4a16_gemm_decode_##kTokens##x##kRowTiles(                                                  \
          cukiln::bf16* output, const cukiln::bf16* a, cukiln::u64 a_stride,                      \
          const __grid_constant__ cukiln::TensorMap b_data, const cukiln::u8* b_scales,           \
          const float* b_global_scale, const cukiln::bf16* bias, cukiln::u32 m, cukiln::u32 n,    \
          cukiln::u32 k, cukiln::u32 constant_b) {                                                \
    using Gemm =                                                                                  \
        cukiln::nvfp4::DecodeGemm<kTokens, kRowTiles, kBlocksPerSm, cukiln::nvfp4::Bf16>;         \
    static_assert(Gemm::kSharedBytes == kShared, "the launcher's table has another number");      \
    Gemm::run({output, reinterpret_cast<const cukiln::u8*>(a), &b_data, nullptr, b_scales,        \
               nullptr, b_global_scale, bias, m, n, k, constant_b != 0, a_stride});               \
  }                                                                                               \
  static_assert(cukiln::kIsSame<decltype(w4a16_gemm_decode_##kTokens##x##kRowTiles),              \
                                cukiln::signatures::W4a16GemmDecode>);

#if CUKILN_GEMM_TOKENS == 8

CUKILN_W4A16_DECODE(8, 2, 2, 33856)
CUKILN_W4A16_DECODE(8, 4, 2, 50240)
CUKILN_W4A16_DECODE(8, 7, 1, 91200)
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
CUKILN_W4A16_DECODE(8, 5, 2, 74816)
CUKILN_W4A16_DECODE(8, 18, 1, 181312)
#endif

#elif CUKILN_GEMM_TOKENS == 16

CUKILN_W4A16_DECODE(16, 2, 2, 33856)
CUKILN_W4A16_DECODE(16, 4, 1, 50240)
CUKILN_W4A16_DECODE(16, 7, 1, 91200)
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
CUKILN_W4A16_DECODE(16, 5, 1, 74816)
CUKILN_W4A16_DECODE(16, 8, 1, 83008)
CUKILN_W4A16_DECODE(16, 10, 1, 115776)
#endif

#else
#error "CUKILN_GEMM_TOKENS: 8 or 16 is expected"
#endif
