// The two GEMMs of a mixture of experts with tokens in bf16 (W4A16), for few tokens an expert, by tiles of
// tokens (moe_tiles.cuh).
//
// moe_w4a16_up
//   What: for each position p of a tile of expert e, with the token x of that position's slot,
//     h[r] = weight_decode[e] * sum over k of x(k) * w(e, r, k) + bias[e, r], in float;
//     y[c] = SwiGLU of rows c and width + c (layout 0) or 2 * c and 2 * c + 1 (layout 1) of h, as
//     swiglu.cuh has it, in float, rounded to bf16 once.
//   Shapes: hidden bf16 [tokens, columns]; weights, all experts stacked: data [2 * width, columns / 2],
//     block scales in swizzled atoms; y, by position: bf16 [.., width].
//   Launch: as moe_up of nvfp4_moe_gemm.cu.
//
// moe_w4a16_down
//   What: partial[s, p, r] = weight_decode[e] * sum over the s-th split of K of y(p, k) * w(e, r, k), plus
//     bias[e, r] where s is 0, in float.
//   Shapes, launch: as moe_down of nvfp4_moe_gemm.cu.
//
// Both: products of elements are exact, weights in bf16 without rounding. Limits, alignment, determinism, a
//   bias that is null, CUKILN_MOE_TOKENS: as nvfp4_moe_gemm.cu; hidden and y 16 bytes.
// NaN: a NaN in a token, or the NaN scale in a row of weights, makes what depends on it NaN.
// Source: vLLM, fused MoE and Marlin, for the steps; NVIDIA PTX ISA, mma and cp.async.
#include "moe_few_tokens.cuh"

namespace cukiln {
namespace nvfp4 {

using Gemm = MoeGemm<Bf16Tokens>;

// Occupancies. These kernels need more registers than those of nvfp4_moe_gemm.cu.
constexpr u32 kUpBlocksPerSm = kMoeTokens == 8 ? 4 : 3;
constexpr u32 kDownBlocksPerSm = kMoeTokens == 32 ? 3 : 4;

}  // namespace nvfp4
}  // namespace cukiln

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::Gemm::kThreads,
                                             cukiln::nvfp4::kUpBlocksPerSm)
    moe_w4a16_up(cukiln::bf16* y, const cukiln::nvfp4::MoeTile* tiles, const cukiln::u32* tile_count,
                 const cukiln::u32* slots, const cukiln::bf16* hidden, const cukiln::u8* weight_data,
                 const cukiln::u8* weight_scales, const float* weight_decode, const cukiln::bf16* bias,
                 cukiln::u32 topk, cukiln::u32 columns, cukiln::u32 width, cukiln::u32 layout,
                 float limit, float alpha, float beta) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  __shared__ uint4 shared[Gemm::kSharedBytes / 16];
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const MoeTile tile = tiles[blockIdx.y];
  if (blockIdx.y >= *tile_count) return;
  moe_up_tile<Gemm>(shared, tile,
                    {slots, {hidden}, weight_data, weight_scales, weight_decode, bias, topk, columns,
                     width, layout, limit, alpha, beta},
                    [&](u32 position, u32 column, const float (&value)[4]) {
                      store_bf16(y, position, column, width, value);
                    });
}
static_assert(cukiln::kIsSame<decltype(moe_w4a16_up), cukiln::signatures::MoeW4a16Up>);

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::Gemm::kThreads,
                                             cukiln::nvfp4::kDownBlocksPerSm)
    moe_w4a16_down(float* partial, const cukiln::nvfp4::MoeTile* tiles, const cukiln::u32* tile_count,
                   const cukiln::bf16* y, const cukiln::u8* weight_data,
                   const cukiln::u8* weight_scales, const float* weight_decode,
                   const cukiln::bf16* bias, cukiln::u32 slot_count, cukiln::u32 columns,
                   cukiln::u32 width, cukiln::u32 splits) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  __shared__ uint4 shared[Gemm::kSharedBytes / 16];
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const MoeTile tile = tiles[blockIdx.y];
  if (blockIdx.y >= *tile_count) return;
  moe_down_tile<Gemm>(shared, tile,
                      {partial, {y}, weight_data, weight_scales, weight_decode, bias, slot_count,
                       columns, width, splits});
}
static_assert(cukiln::kIsSame<decltype(moe_w4a16_down), cukiln::signatures::MoeW4a16Down>);
