// The two GEMMs of a mixture of experts, for few tokens an expert, by tiles of tokens (moe_tiles.cuh).
//
// moe_up
//   What: for each position p of a tile of expert e, with the token x of that position's slot,
//     h[r] = token_decode * weight_decode[e] * sum over k of x(k) * w(e, r, k) + bias[e, r], in float;
//     y[c] = SwiGLU of rows c and width + c (layout 0) or 2 * c and 2 * c + 1 (layout 1) of h, as
//     swiglu.cuh has it, in float, rounded to bf16 once; then quantised with global_scale, or if that is
//     null stored in `data` as bf16 [.., width], for moe_quantize_rows.
//   Shapes: tokens: packed data [.., columns / 2], linear scales [.., columns / 16]; weights, all experts
//     stacked: data [2 * width, columns / 2], block scales in swizzled atoms; outputs, by position: data
//     [.., width / 2], linear scales [.., width / 16].
//   Limits: columns and width multiples of 32.
//   Launch: clusters of 2 * S thread blocks, split-K with S = 1, 2 or 4; grid (2 * S * ceil(width / 128),
//     maximum number of tiles, 1).
//
// moe_down
//   What: partial[s, p, r] = token_decode * weight_decode[e] * sum over the s-th split of K of
//     x(k) * w(e, r, k), plus bias[e, r] where s is 0, in float, x row p of what moe_up made.
//   Shapes: weights: data [columns, width / 2] an expert; partial float [splits, slot_count, columns].
//   Launch: grid (splits * ceil(columns / 128), maximum number of tiles, 1), no cluster.
//
// Both: block (128, 1, 1), no dynamic shared memory; thread blocks beyond *tile_count exit immediately.
//   token_decode is the decode scale of token_global_scale, or where that is null row_decode[p]. A bias that is
//   null is none.
//   CUKILN_MOE_TOKENS = 8, 16 or 32 is the largest tile, and must equal moe_route's tile_tokens.
// Alignment: data, scales and bias 16 bytes.
// NaN: a NaN scale, of a token or of a row of weights, makes what depends on it NaN.
// Determinism: the order of sums depends on shapes and splits only.
// Source: vLLM, fused MoE, for the steps; NVIDIA PTX ISA, mma and cp.async.
#include "moe_few_tokens.cuh"

namespace cukiln {
namespace nvfp4 {

using Gemm = MoeGemm<Nvfp4Tokens>;

// Occupancies; moe_down needs fewer registers. The fastest on an H200.
constexpr u32 kUpBlocksPerSm = kMoeTokens == 32 ? 3 : 4;
constexpr u32 kDownBlocksPerSm = 4;

// Quantises a block of 16 values, of which four consecutive lanes have four each. Returns its scale byte and
// writes the lane's data.
__device__ __forceinline__ u32 quantize_block_of_lanes(const float (&value)[4], float scale_factor,
                                                       float decode, u16* data) {
  const u32 pairs[4] = {pack_bf16x2(value[0], value[1]), pack_bf16x2(value[2], value[3]), 0, 0};
  const u32 magnitudes = max_magnitude_bf16x2(pairs[0] & 0x7FFF7FFFu, pairs[1]);
  u32 largest = larger_half(magnitudes);
  largest = max(largest, __shfl_xor_sync(~0u, largest, 1));
  largest = max(largest, __shfl_xor_sync(~0u, largest, 2));
  const u32 scale_byte = encode_ue4m3(mul_rn(__uint_as_float(largest), scale_factor));
  const bool representable = scale_byte != 0 && scale_byte != kNanScaleByte;
  *data = static_cast<u16>(
      representable ? encode_e2m1x8(pairs, element_multiplier(scale_byte, decode)) : 0);
  return scale_byte;
}

}  // namespace nvfp4
}  // namespace cukiln

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::Gemm::kThreads,
                                             cukiln::nvfp4::kUpBlocksPerSm)
    moe_up(cukiln::u8* data, cukiln::u8* scales, const cukiln::nvfp4::MoeTile* tiles,
           const cukiln::u32* tile_count, const cukiln::u32* slots,
           const cukiln::u8* token_data, const cukiln::u8* token_scales,
           const float* token_global_scale, const cukiln::u8* weight_data,
           const cukiln::u8* weight_scales, const float* weight_decode, const cukiln::bf16* bias,
           const float* global_scale, cukiln::u32 topk, cukiln::u32 columns, cukiln::u32 width,
           cukiln::u32 layout, float limit, float alpha, float beta) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  __shared__ uint4 shared[Gemm::kSharedBytes / 16];
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const MoeTile tile = tiles[blockIdx.y];
  if (blockIdx.y >= *tile_count) return;
  const bool is_bf16 = global_scale == nullptr;
  const float scale_factor = is_bf16 ? 0.0f : block_scale_factor(global_scale[kEncode]);
  const float decode = is_bf16 ? 0.0f : global_scale[kDecode];
  moe_up_tile<Gemm>(shared, tile,
                    {slots, {token_data, token_scales, token_global_scale, nullptr}, weight_data, weight_scales,
                     weight_decode, bias, topk, columns, width, layout, limit, alpha, beta},
                    [&](u32 position, u32 column, const float (&value)[4]) {
                      if (is_bf16) {
                        return store_bf16(reinterpret_cast<bf16*>(data), position, column, width, value);
                      }
                      u16 four;
                      const u32 scale_byte = quantize_block_of_lanes(value, scale_factor, decode, &four);
                      if (column >= width) return;
                      const u64 at = static_cast<u64>(position) * width + column;
                      *reinterpret_cast<u16*>(data + at / 2) = four;
                      if (threadIdx.x % 4 == 0) scales[at / 16] = static_cast<u8>(scale_byte);
                    });
}
static_assert(cukiln::kIsSame<decltype(moe_up), cukiln::signatures::MoeUp>);

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::Gemm::kThreads,
                                             cukiln::nvfp4::kDownBlocksPerSm)
    moe_down(float* partial, const cukiln::nvfp4::MoeTile* tiles, const cukiln::u32* tile_count,
             const cukiln::u8* token_data, const cukiln::u8* token_scales, const float* token_global_scale,
             const float* row_decode, const cukiln::u8* weight_data, const cukiln::u8* weight_scales,
             const float* weight_decode, const cukiln::bf16* bias, cukiln::u32 slot_count,
             cukiln::u32 columns, cukiln::u32 width, cukiln::u32 splits) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  __shared__ uint4 shared[Gemm::kSharedBytes / 16];
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const MoeTile tile = tiles[blockIdx.y];
  if (blockIdx.y >= *tile_count) return;
  moe_down_tile<Gemm>(shared, tile,
                      {partial, {token_data, token_scales, token_global_scale, row_decode}, weight_data,
                       weight_scales, weight_decode, bias, slot_count, columns, width, splits});
}
static_assert(cukiln::kIsSame<decltype(moe_down), cukiln::signatures::MoeDown>);
