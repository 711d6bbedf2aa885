// The GEMM of nvfp4_w4a16_gemm.cu for many rows of A, on sm_90a.
//
// w4a16_gemm_arrange
//   What: copies A, K permuted to the order of the MMA's lanes (gemm_sm90_dequantize.cuh) and zero-padded to
//     a multiple of 128.
//   Shapes: A bf16 [m, k], rows `a_stride` elements apart; output bf16 [m, k rounded up to 128].
//   Launch: block (256, 1, 1), any grid.
//
// w4a16_gemm_prefill_TOKENSxROWS
//   What, limits, NaN: as nvfp4_w4a16_gemm.cu; A as w4a16_gemm_arrange wrote it, the kernel before in the stream.
//   Shapes: tokens: tensor map of w4a16_gemm_arrange's output, box {64, TOKENS}, 128-byte swizzle; b_data:
//     tensor map of B's packed data, uint8 {k / 2, n}, box {64, ROWS}, no swizzle.
//   Launch: block (384, 1, 1). Any grid, persistent; or tiles * S blocks in clusters of S = 2 or 4 that
//     split K. Dynamic shared memory: the last number of each line below.
//
// With other targets the module has w4a16_gemm_arrange alone.
// Alignment, determinism: as nvfp4_w4a16_gemm.cu. Source: NVIDIA PTX ISA, wgmma and cp.async.bulk.
#include "gemm_sm90_prefill.cuh"
#include "gemm_signatures.cuh"

extern "C" __global__ void __launch_bounds__(256)
    w4a16_gemm_arrange(cukiln::bf16* output, const cukiln::bf16* a, cukiln::u64 a_stride,
                       cukiln::u32 m, cukiln::u32 k) {
  cukiln::nvfp4::arrange_tokens(reinterpret_cast<uint4*>(output), a, a_stride, m, k);
}
static_assert(cukiln::kIsSame<decltype(w4a16_gemm_arrange), cukiln::signatures::W4a16GemmArrange>);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define CUKILN_W4A16_PREFILL(kTokens, kRows, kStages, kBlocksPerSm, kShared)                      \
  extern "C" __global__ void __launch_bounds__(384, kBlocksPerSm)                                 \
      w4a16_gemm_prefill_##kTokens##x##kRows(                                                     \
          cukiln::bf16* output, const __grid_constant__ cukiln::TensorMap tokens,                 \
          const __grid_constant__ cukiln::TensorMap b_data, const cukiln::u8* b_scales,           \
          const float* b_global_scale, const cukiln::bf16* bias, cukiln::u32 m, cukiln::u32 n,    \
          cukiln::u32 k) {                                                                        \
    using Gemm = cukiln::nvfp4::PrefillGemm<kTokens, kRows, kStages, kBlocksPerSm,                \
                                            cukiln::nvfp4::Bf16>;                                 \
    static_assert(Gemm::kSharedBytes == kShared, "the launcher's table has another number");      \
    Gemm::run({output, &tokens, &b_data, b_scales, nullptr, b_global_scale, bias, m, n, k});      \
  }                                                                                               \
  static_assert(cukiln::kIsSame<decltype(w4a16_gemm_prefill_##kTokens##x##kRows),                 \
                                cukiln::signatures::W4a16GemmPrefill>);

CUKILN_W4A16_PREFILL(64, 128, 4, 2, 112704)
CUKILN_W4A16_PREFILL(64, 256, 6, 1, 227424)
CUKILN_W4A16_PREFILL(128, 128, 4, 1, 178240)
CUKILN_W4A16_PREFILL(128, 256, 4, 1, 223296)

#endif
