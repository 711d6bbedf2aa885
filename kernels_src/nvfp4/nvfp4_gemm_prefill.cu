// The GEMM of nvfp4_gemm.cu for m > 32, on sm_90a.
//
// nvfp4_gemm_expand
//   What: dequantises A, packed data and swizzled block scales, to fp16, exactly, times 2^-14; K permuted
//     to the order of the MMA's lanes (gemm_sm90_dequantize.cuh) and zero-padded to a multiple of 128.
//   Shapes: output fp16 [m, k rounded up to 128].
//   Launch: block (256, 1, 1), any grid.
//
// nvfp4_gemm_prefill_TOKENSxROWS
//   What, limits, NaN: as nvfp4_gemm.cu; A as nvfp4_gemm_expand wrote it.
//   Shapes: tokens: tensor map of nvfp4_gemm_expand's output, box {64, TOKENS}, 128-byte swizzle; b_data:
//     tensor map of B's packed data, uint8 {k / 2, n}, box {64, ROWS}, no swizzle.
//   Launch: block (384, 1, 1). Any grid, persistent; or tiles * S blocks in clusters of S = 2 to 4 that
//     split K. Dynamic shared memory: the last number of each line below.
//
// CUKILN_GEMM_TOKENS: 128, the kernels with up to so many rows of A in a tile, and nvfp4_gemm_expand; or 256,
//   the others. With targets other than sm_90a there is nvfp4_gemm_expand alone.
// Alignment, determinism: as nvfp4_gemm.cu. Source: NVIDIA PTX ISA, wgmma and cp.async.bulk.
#include "gemm_sm90_prefill.cuh"
#include "gemm_signatures.cuh"

#ifndef CUKILN_GEMM_TOKENS
#define CUKILN_GEMM_TOKENS 128
#endif

#if CUKILN_GEMM_TOKENS == 128

extern "C" __global__ void __launch_bounds__(256)
    nvfp4_gemm_expand(cukiln::u32* output, const cukiln::u8* a_data, const cukiln::u8* a_scales,
                      cukiln::u32 m, cukiln::u32 k) {
  cukiln::nvfp4::expand_tokens(output, a_data, a_scales, m, k);
}
static_assert(cukiln::kIsSame<decltype(nvfp4_gemm_expand), cukiln::signatures::Nvfp4GemmExpand>);

#endif

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define CUKILN_GEMM_PREFILL(kTokens, kRows, kStages, kBlocksPerSm, kShared)                       \
  extern "C" __global__ void __launch_bounds__(384, kBlocksPerSm)                                 \
      nvfp4_gemm_prefill_##kTokens##x##kRows(                                                     \
          cukiln::bf16* output, const __grid_constant__ cukiln::TensorMap tokens,                 \
          const __grid_constant__ cukiln::TensorMap b_data, const cukiln::u8* b_scales,           \
          const float* a_global_scale, const float* b_global_scale, const cukiln::bf16* bias,     \
          cukiln::u32 m, cukiln::u32 n, cukiln::u32 k, cukiln::u32 output_stride) {               \
    using Gemm = cukiln::nvfp4::PrefillGemm<kTokens, kRows, kStages, kBlocksPerSm>;               \
    static_assert(Gemm::kSharedBytes == kShared, "the launcher's table has another number");      \
    Gemm::run({output, &tokens, &b_data, b_scales, a_global_scale, b_global_scale, bias, m, n,    \
               k, output_stride, nullptr, 0});                                                    \
  }                                                                                               \
  static_assert(cukiln::kIsSame<decltype(nvfp4_gemm_prefill_##kTokens##x##kRows),                 \
                                cukiln::signatures::Nvfp4GemmPrefill>);

#if CUKILN_GEMM_TOKENS == 128
CUKILN_GEMM_PREFILL(32, 128, 5, 2, 97392)
CUKILN_GEMM_PREFILL(64, 128, 4, 2, 112736)
CUKILN_GEMM_PREFILL(128, 128, 4, 1, 178272)
CUKILN_GEMM_PREFILL(128, 256, 4, 1, 223328)
#elif CUKILN_GEMM_TOKENS == 256
CUKILN_GEMM_PREFILL(256, 128, 3, 1, 229968)
#else
#error "CUKILN_GEMM_TOKENS: 128 or 256 is expected"
#endif

#endif
