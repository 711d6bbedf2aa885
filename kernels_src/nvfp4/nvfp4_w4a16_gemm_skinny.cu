// The GEMM of nvfp4_w4a16_gemm.cu for 17 to 128 rows of A, on sm_90a; other targets have no such kernels.
//
// w4a16_gemm_skinny_TOKENSx64_WARPGROUPS
//   What, limits, NaN: as nvfp4_w4a16_gemm.cu, for up to TOKENS rows of A.
//   Shapes: tokens: tensor map of A, bf16 {k, m}, box {64, min(m, TOKENS)}, 128-byte swizzle; b_data: tensor map
//     of B's packed data, uint8 {k / 2, n}, box {64, 64}, 64-byte swizzle. constant_b: as w4a16_gemm_decode.
//   Launch: 128 threads for the producers and 128 for each consumer warpgroup. Any grid, persistent; or
//     tiles * S blocks in clusters of S = 2 or 4 that split K. Dynamic shared memory: the last number of each
//     line below.
//
// Alignment, determinism: as nvfp4_w4a16_gemm.cu. Source: NVIDIA PTX ISA, wgmma and cp.async.bulk.
#include "gemm_sm90_skinny.cuh"
#include "gemm_signatures.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define CUKILN_W4A16_SKINNY(kTokens, kWarpgroups, kStages, kBlocksPerSm, kShared)                 \
  extern "C" __global__ void __launch_bounds__(                                                   \
      cukiln::nvfp4::SkinnyGemm<kTokens, kWarpgroups, kStages, kBlocksPerSm>::kThreads,           \
      kBlocksPerSm)                                                                               \
      w4a16_gemm_skinny_##kTokens##x64_##kWarpgroups(                                             \
          cukiln::bf16* output, const __grid_constant__ cukiln::TensorMap tokens,                 \
          const __grid_constant__ cukiln::TensorMap b_data, const cukiln::u8* b_scales,           \
          const float* b_global_scale, const cukiln::bf16* bias, cukiln::u32 m, cukiln::u32 n,    \
          cukiln::u32 k, cukiln::u32 output_stride, cukiln::u32 constant_b) {                     \
    using Gemm = cukiln::nvfp4::SkinnyGemm<kTokens, kWarpgroups, kStages, kBlocksPerSm>;          \
    static_assert(Gemm::kSharedBytes == kShared, "the launcher's table has another number");      \
    Gemm::run({output, &tokens, &b_data, b_scales, b_global_scale, bias, m, n, k, output_stride,  \
               constant_b != 0});                                                                 \
  }                                                                                               \
  static_assert(cukiln::kIsSame<decltype(w4a16_gemm_skinny_##kTokens##x64_##kWarpgroups),         \
                                cukiln::signatures::W4a16GemmSkinny>);

CUKILN_W4A16_SKINNY(32, 2, 8, 2, 107664)
CUKILN_W4A16_SKINNY(32, 3, 15, 1, 200960)
CUKILN_W4A16_SKINNY(64, 3, 9, 1, 194720)
CUKILN_W4A16_SKINNY(128, 2, 6, 1, 228464)

#endif
