// The two GEMMs of a mixture of experts, for few tokens an expert, by tiles of tokens (moe_tiles.cuh).
//
// moe_up
//   What: for each position p of a tile of expert e, with the token x of that position's slot,
//     h[r] = token_decode * weight_decode[e] * sum over k of x(k) * w(e, r, k), in float;
//     y[c] = SwiGLU of rows c and width + c (layout 0) or 2 * c and 2 * c + 1 (layout 1) of h, as
//     swiglu.cuh has it, in float, rounded to bf16 once; then quantised with global_scale.
//   Shapes: tokens: packed data [.., columns / 2], linear scales [.., columns / 16]; weights, all experts
//     stacked: data [2 * width, columns / 2], block scales in swizzled atoms; outputs, by position: data
//     [.., width / 2], linear scales [.., width / 16].
//   Limits: columns and width multiples of 32.
//   Launch: clusters of 2 * S thread blocks, split-K with S = 1, 2 or 4; grid (2 * S * ceil(width / 128),
//     maximum number of tiles, 1).
//
// moe_down
//   What: partial[s, p, r] = token_decode * weight_decode[e] * sum over the s-th split of K of
//     x(k) * w(e, r, k), in float, x row p of what moe_up made.
//   Shapes: weights: data [columns, width / 2] an expert; partial float [splits, slot_count, columns].
//   Launch: grid (splits * ceil(columns / 128), maximum number of tiles, 1), no cluster.
//
// Both: block (128, 1, 1), no dynamic shared memory; thread blocks beyond *tile_count exit immediately.
//   token_decode is the decode scale of token_global_scale.
//   CUKILN_MOE_TOKENS = 8, 16 or 32 is the largest tile, and must equal moe_route's tile_tokens.
// Alignment: data and scales 16 bytes.
// NaN: a NaN scale, of a token or of a row of weights, makes what depends on it NaN.
// Determinism: the order of sums depends on shapes and splits only.
// Source: vLLM, fused MoE, for the steps; NVIDIA PTX ISA, mma and cp.async.
#include "async_copy.cuh"
#include "cluster.cuh"
#include "moe_signatures.cuh"
#include "moe_skinny.cuh"
#include "moe_tiles.cuh"
#include "swiglu.cuh"

#ifndef CUKILN_MOE_TOKENS
#define CUKILN_MOE_TOKENS 8
#endif

namespace cukiln {
namespace nvfp4 {

template <u32 kTokens>
struct MoeGemm;

// SkinnyGemm<tokens, slots of the ring, groups of K in a panel>, and occupancies of moe_up and moe_down,
// which needs fewer registers. The fastest on an H200.
template <>
struct MoeGemm<8> : SkinnyGemm<8, 3, 8> {
  static constexpr u32 kUpBlocksPerSm = 5;
  static constexpr u32 kDownBlocksPerSm = 5;
};
template <>
struct MoeGemm<16> : SkinnyGemm<16, 3, 4> {
  static constexpr u32 kUpBlocksPerSm = 4;
  static constexpr u32 kDownBlocksPerSm = 4;
};
template <>
struct MoeGemm<32> : SkinnyGemm<32, 2, 2> {
  static constexpr u32 kUpBlocksPerSm = 3;
  static constexpr u32 kDownBlocksPerSm = 4;
};

using Gemm = MoeGemm<CUKILN_MOE_TOKENS>;

// Gate and up of four columns of one token.
struct GateUpColumns {
  float gate[4];
  float up[4];
};

// Adds the sums of all splits for the lane's four columns of a token. `sums`: address of the token's sums in
// this CTA; those of the other CTAs of the cluster are at the same address.
__device__ __forceinline__ GateUpColumns add_splits(u32 sums, u32 lane, u32 splits, bool in_pairs) {
  const u32 low_at = sums + (in_pairs ? lane % 16 * 32 : lane * 16);
  const u32 high_at = in_pairs ? low_at + 16 : low_at;
  float first[4] = {};   // kHalves: gate; kPairs: gate and up of the first two columns
  float second[4] = {};  // kHalves: up; kPairs: gate and up of the last two
  for (u32 s = 0; s < splits; ++s) {
    const float4 low = load_dsmem(low_at, 2 * s + (in_pairs ? lane / 16 : 0));
    const float4 high = load_dsmem(high_at, 2 * s + (in_pairs ? lane / 16 : 1));
    first[0] += low.x;
    first[1] += low.y;
    first[2] += low.z;
    first[3] += low.w;
    second[0] += high.x;
    second[1] += high.y;
    second[2] += high.z;
    second[3] += high.w;
  }
  return {{first[0], in_pairs ? first[2] : first[1], in_pairs ? second[0] : first[2],
           in_pairs ? second[2] : first[3]},
          {in_pairs ? first[1] : second[0], in_pairs ? first[3] : second[1],
           in_pairs ? second[1] : second[2], second[3]}};
}

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
                                             cukiln::nvfp4::Gemm::kUpBlocksPerSm)
    moe_up(cukiln::u8* data, cukiln::u8* scales, const cukiln::nvfp4::MoeTile* tiles,
           const cukiln::u32* tile_count, const cukiln::u32* slots,
           const cukiln::u8* token_data, const cukiln::u8* token_scales,
           const float* token_global_scale, const cukiln::u8* weight_data,
           const cukiln::u8* weight_scales, const float* weight_decode, const float* global_scale,
           cukiln::u32 topk, cukiln::u32 columns, cukiln::u32 width, cukiln::u32 layout, float limit,
           float alpha, float beta) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  __shared__ uint4 shared[Gemm::kSharedBytes / 16];
  const MoeTile tile = tiles[blockIdx.y];
  if (blockIdx.y >= *tile_count) return;
  const float token_scale = token_global_scale[kDecode] * kTwoTo14;
  const float weight_scale = weight_decode[tile.expert] * kTwoTo14;
  const float scale_factor = block_scale_factor(global_scale[kEncode]);
  const float decode = global_scale[kDecode];

  // In a cluster blocks 2 * s and 2 * s + 1 compute split s of K, each for half of the 256 rows that make
  // 128 columns of the result: gate and up (kHalves), or the first and the last 64 pairs of rows (kPairs).
  const u32 rank = block_rank_in_cluster();
  const u32 splits = cluster_size() / 2;
  const u32 half = rank & 1;
  const u32 split = rank / 2;
  const u32 first_column = blockIdx.x / (2 * splits) * 128;
  const u32 groups = (columns + kGroupK - 1) / kGroupK;
  const bool in_pairs = layout == kPairs;
  const WeightRows rows{
      weight_data + static_cast<u64>(tile.expert) * width * columns,
      weight_scales + tile.expert * padded_scale_bytes(2 * width, columns),
      in_pairs ? 2 * first_column + 128 * half : half * width + first_column,
      in_pairs ? 2 * width : (half + 1) * width};
  Gemm::run(shared, rows, {token_data, token_scales}, tile.count,
            [&](u32 i) { return slots[tile.first + i] / topk; }, columns, groups * split / splits,
            groups * (split + 1) / splits);
  cluster_sync();

  // A warp computes 128 columns of one token, a lane four of them; four lanes share a block of 16.
  const SwiGlu activate = SwiGlu::of(limit, alpha, beta);
  const u32 lane = threadIdx.x & 31;
  const u32 column = first_column + lane * 4;
  constexpr u32 kWarps = Gemm::kThreads / 32;
  for (u32 token = threadIdx.x / 32 * 2 * splits + rank; token < tile.count;
       token += kWarps * 2 * splits) {
    const GateUpColumns sums = add_splits(shared_address(shared) + token * Gemm::kPitch * 4, lane, splits,
                                          in_pairs);
    float value[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      value[i] = activate(mul_rn(mul_rn(sums.gate[i], token_scale), weight_scale),
                          mul_rn(mul_rn(sums.up[i], token_scale), weight_scale));
    }
    u16 four;
    const u32 scale_byte = quantize_block_of_lanes(value, scale_factor, decode, &four);
    if (column < width) {
      const u64 at = static_cast<u64>(tile.first + token) * width + column;
      *reinterpret_cast<u16*>(data + at / 2) = four;
      if (lane % 4 == 0) scales[at / 16] = static_cast<u8>(scale_byte);
    }
  }
  cluster_sync();  // no CTA exits while others read its shared memory
}
static_assert(cukiln::kIsSame<decltype(moe_up), cukiln::signatures::MoeUp>);

extern "C" __global__ void __launch_bounds__(cukiln::nvfp4::Gemm::kThreads,
                                             cukiln::nvfp4::Gemm::kDownBlocksPerSm)
    moe_down(float* partial, const cukiln::nvfp4::MoeTile* tiles, const cukiln::u32* tile_count,
             const cukiln::u8* token_data, const cukiln::u8* token_scales, const float* token_global_scale,
             const cukiln::u8* weight_data, const cukiln::u8* weight_scales,
             const float* weight_decode, cukiln::u32 slot_count, cukiln::u32 columns,
             cukiln::u32 width, cukiln::u32 splits) {
  using namespace cukiln;
  using namespace cukiln::nvfp4;
  __shared__ uint4 shared[Gemm::kSharedBytes / 16];
  const float* const sums = reinterpret_cast<const float*>(shared);
  const MoeTile tile = tiles[blockIdx.y];
  if (blockIdx.y >= *tile_count) return;
  const float token_scale = token_global_scale[kDecode] * kTwoTo14;
  const float weight_scale = weight_decode[tile.expert] * kTwoTo14;

  const u32 split = blockIdx.x % splits;
  const u32 first_row = blockIdx.x / splits * 128;
  const u32 groups = (width + kGroupK - 1) / kGroupK;
  const WeightRows rows{weight_data + static_cast<u64>(tile.expert) * columns * (width / 2),
                        weight_scales + tile.expert * padded_scale_bytes(columns, width), first_row,
                        columns};
  Gemm::run(shared, rows, {token_data, token_scales}, tile.count,
            [&](u32 i) { return tile.first + i; }, width, groups * split / splits,
            groups * (split + 1) / splits);

  float* const to = partial + (static_cast<u64>(split) * slot_count + tile.first) * columns;
  for (u32 i = threadIdx.x; i < tile.count * 32; i += Gemm::kThreads) {
    const u32 token = i / 32;
    const u32 row = first_row + i % 32 * 4;
    if (row >= columns) continue;
    float4 value = *reinterpret_cast<const float4*>(sums + token * Gemm::kPitch + i % 32 * 4);
    value.x = mul_rn(mul_rn(value.x, token_scale), weight_scale);
    value.y = mul_rn(mul_rn(value.y, token_scale), weight_scale);
    value.z = mul_rn(mul_rn(value.z, token_scale), weight_scale);
    value.w = mul_rn(mul_rn(value.w, token_scale), weight_scale);
    *reinterpret_cast<float4*>(to + static_cast<u64>(token) * columns + row) = value;
  }
}
static_assert(cukiln::kIsSame<decltype(moe_down), cukiln::signatures::MoeDown>);
