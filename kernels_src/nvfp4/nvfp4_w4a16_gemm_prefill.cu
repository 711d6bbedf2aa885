// The GEMM of nvfp4_w4a16_gemm.cu for more than 16 rows of A, on sm_90a; other targets have no such kernels.
//
// w4a16_gemm_prefill_TOKENSxROWS
//   What, limits, NaN: as nvfp4_w4a16_gemm.cu.
//   Shapes: tokens: tensor map of A, bf16 {k, m}, box {64, TOKENS}, 128-byte swizzle; b_data: tensor map of
//     B's packed data, uint8 {k / 2, n}, box {64, ROWS}, 64-byte swizzle.
//   Launch: block (384, 1, 1). Any grid, persistent; or tiles * S blocks in clusters of S = 2 to 4 that
//     split K. Dynamic shared memory: the last number of each line below. _pair: clusters of two.
//
// w4a16_gemm_prefill_256x128_helper, then w4a16_gemm_prefill_256x128_helped
//   The same, in clusters of two, with the last tail_k_groups of K multiplied by the helper: at least one
//     group, and not all of them but for two. partials: of any contents; the helper writes it.
//   Launch: the helper with any even grid, in clusters of two; the helped, which may start early, with
//     tiles * 2. Both on as many SMs as they have blocks.
//
// CUKILN_GEMM_TOKENS: 128 or 256, the kernels with a power of two of rows of A in a tile, up to 128, or more;
//   224, the others.
// Alignment, determinism: as nvfp4_w4a16_gemm.cu. Source: NVIDIA PTX ISA, wgmma and cp.async.bulk.
#include "gemm_sm90_prefill.cuh"
#include "gemm_signatures.cuh"

#ifndef CUKILN_GEMM_TOKENS
#define CUKILN_GEMM_TOKENS 128
#endif

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The parameters that all kernels below begin with.
#define CUKILN_W4A16_PARAMETERS                                                                   \
  cukiln::bf16 *output, const __grid_constant__ cukiln::TensorMap tokens,                         \
      const __grid_constant__ cukiln::TensorMap b_data, const cukiln::u8 *b_scales,               \
      const float *b_global_scale, const cukiln::bf16 *bias, cukiln::u32 m, cukiln::u32 n,        \
      cukiln::u32 k, cukiln::u32 output_stride

#define CUKILN_W4A16_PREFILL(kName, kRole, kTokens, kRows, kStages, kBlocksPerSm, kShared)        \
  extern "C" __global__ void __launch_bounds__(384, kBlocksPerSm) kName(CUKILN_W4A16_PARAMETERS) {\
    using Gemm = cukiln::nvfp4::PrefillGemm<kTokens, kRows, kStages, kBlocksPerSm,                \
                                            cukiln::nvfp4::Bf16, cukiln::nvfp4::Role::kRole>;     \
    static_assert(Gemm::kSharedBytes == kShared, "the launcher's table has another number");      \
    Gemm::run({output, &tokens, &b_data, b_scales, nullptr, b_global_scale, bias, m, n, k,        \
               output_stride, nullptr, 0});                                                       \
  }                                                                                               \
  static_assert(cukiln::kIsSame<decltype(kName), cukiln::signatures::W4a16GemmPrefill>);

#if CUKILN_GEMM_TOKENS == 128

CUKILN_W4A16_PREFILL(w4a16_gemm_prefill_32x128, kAny, 32, 128, 5, 2, 97392)
CUKILN_W4A16_PREFILL(w4a16_gemm_prefill_64x128, kAny, 64, 128, 4, 2, 112736)
CUKILN_W4A16_PREFILL(w4a16_gemm_prefill_64x256, kAny, 64, 256, 6, 1, 227456)
CUKILN_W4A16_PREFILL(w4a16_gemm_prefill_128x128, kAny, 128, 128, 4, 1, 178272)
CUKILN_W4A16_PREFILL(w4a16_gemm_prefill_128x128_pair, kPair, 128, 128, 4, 1, 178272)

#elif CUKILN_GEMM_TOKENS == 224

CUKILN_W4A16_PREFILL(w4a16_gemm_prefill_96x128, kAny, 96, 128, 6, 1, 213120)
CUKILN_W4A16_PREFILL(w4a16_gemm_prefill_160x128, kAny, 160, 128, 4, 1, 206432)
CUKILN_W4A16_PREFILL(w4a16_gemm_prefill_192x128, kAny, 192, 128, 3, 1, 180816)
CUKILN_W4A16_PREFILL(w4a16_gemm_prefill_224x128, kAny, 224, 128, 3, 1, 205392)

#elif CUKILN_GEMM_TOKENS == 256

CUKILN_W4A16_PREFILL(w4a16_gemm_prefill_256x128, kAny, 256, 128, 3, 1, 229968)

#define CUKILN_W4A16_HELP(kName, kRole, kTokens, kRows, kStages, kShared)                         \
  extern "C" __global__ void __launch_bounds__(384, 1)                                            \
      kName(CUKILN_W4A16_PARAMETERS, float* partials, cukiln::u32 tail_k_groups) {                \
    using Gemm = cukiln::nvfp4::PrefillGemm<kTokens, kRows, kStages, 1, cukiln::nvfp4::Bf16,      \
                                            cukiln::nvfp4::Role::kRole>;                          \
    static_assert(Gemm::kSharedBytes == kShared, "the launcher's table has another number");      \
    Gemm::run({output, &tokens, &b_data, b_scales, nullptr, b_global_scale, bias, m, n, k,        \
               output_stride, partials, tail_k_groups});                                          \
  }                                                                                               \
  static_assert(cukiln::kIsSame<decltype(kName), cukiln::signatures::W4a16GemmTail>);

CUKILN_W4A16_HELP(w4a16_gemm_prefill_256x128_helped, kHelped, 256, 128, 3, 229968)
CUKILN_W4A16_HELP(w4a16_gemm_prefill_256x128_helper, kHelper, 256, 128, 3, 229968)

#else
#error "CUKILN_GEMM_TOKENS: 128, 224 or 256 is expected"
#endif

#endif
