// The steps of a mixture of experts for few tokens an expert, by tiles of tokens (moe_tiles.cuh): what the
// kernels of nvfp4_moe_gemm.cu and nvfp4_moe_w4a16.cu have in common.
#pragma once

#include "cluster.cuh"
#include "dependent_launch.cuh"
#include "moe_signatures.cuh"
#include "moe_skinny.cuh"
#include "moe_tiles.cuh"
#include "swiglu.cuh"

#ifndef CUKILN_MOE_TOKENS
#define CUKILN_MOE_TOKENS 8
#endif

namespace cukiln {
namespace nvfp4 {

constexpr u32 kMoeTokens = CUKILN_MOE_TOKENS;
static_assert(kMoeTokens == 8 || kMoeTokens == 16 || kMoeTokens == 32, "CUKILN_MOE_TOKENS is 8, 16 or 32");

// Tokens: Nvfp4Tokens or Bf16Tokens. The ring's slots and the groups of K in a panel are those that were the
// fastest on an H200.
template <class Tokens>
using MoeGemm = SkinnyGemm<Tokens, kMoeTokens, kMoeTokens == 32 ? 2 : 3, 64 / kMoeTokens>;

// Gate and up of four columns of one token.
struct GateUpColumns {
  float gate[4];
  float up[4];
};

// `first` and `second`: with kHalves gate and up, with kPairs gate and up of the first two and of the last two
// columns.
__device__ __forceinline__ GateUpColumns gate_up_columns(const float (&first)[4], const float (&second)[4],
                                                         bool in_pairs) {
  return {{first[0], in_pairs ? first[2] : first[1], in_pairs ? second[0] : first[2],
           in_pairs ? second[2] : first[3]},
          {in_pairs ? first[1] : second[0], in_pairs ? first[3] : second[1],
           in_pairs ? second[1] : second[2], second[3]}};
}

// Adds the sums of all splits for the lane's four columns of a token. `sums`: address of the token's sums in
// this CTA; those of the other CTAs of the cluster are at the same address.
__device__ __forceinline__ GateUpColumns add_splits(u32 sums, u32 lane, u32 splits, bool in_pairs) {
  const u32 low_at = sums + (in_pairs ? lane % 16 * 32 : lane * 16);
  const u32 high_at = in_pairs ? low_at + 16 : low_at;
  float first[4] = {};
  float second[4] = {};
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
  return gate_up_columns(first, second, in_pairs);
}

__device__ __forceinline__ const bf16* bias_of_expert(const bf16* bias, u32 expert, u32 rows) {
  return bias == nullptr ? nullptr : bias + static_cast<u64>(expert) * rows;
}

// The biases of four rows of weights, or what stands for none.
struct FourBiases {
  float value[4];

  __device__ __forceinline__ FourBiases(const bf16* bias, u32 row) {
    uint2 pairs = {kNoBias, kNoBias};
    if (bias != nullptr) pairs = *reinterpret_cast<const uint2*>(bias + row);
    value[0] = low_bf16(pairs.x);
    value[1] = high_bf16(pairs.x);
    value[2] = low_bf16(pairs.y);
    value[3] = high_bf16(pairs.y);
  }
};

// The biases of four columns, from `column` on; none beyond the last. `bias`: of the expert.
__device__ __forceinline__ GateUpColumns gate_up_biases(const bf16* bias, u32 column, u32 width,
                                                        bool in_pairs) {
  if (column >= width) bias = nullptr;
  const u32 row = in_pairs ? 2 * column : column;
  return gate_up_columns(FourBiases(bias, row).value, FourBiases(bias, row + (in_pairs ? 4 : width)).value,
                         in_pairs);
}

// Stores four columns of y in bf16, [positions, width].
__device__ __forceinline__ void store_bf16(bf16* y, u32 position, u32 column, u32 width,
                                           const float (&value)[4]) {
  if (column >= width) return;
  const u64 at = static_cast<u64>(position) * width + column;
  *reinterpret_cast<uint2*>(y + at) = {pack_bf16x2(value[0], value[1]), pack_bf16x2(value[2], value[3])};
}

template <class Gemm>
struct UpProblem {
  const u32* slots;
  typename Gemm::TokenMatrix tokens;
  const u8* weight_data;
  const u8* weight_scales;
  const float* weight_decode;
  const bf16* bias;
  u32 topk;
  u32 columns;
  u32 width;
  u32 layout;
  float limit;
  float alpha;
  float beta;
};

// Computes SwiGLU for 128 columns of a tile. store(position, column, value) stores four columns of one
// token; four consecutive lanes have a block of 16. `shared`: Gemm::kSharedBytes.
template <class Gemm, class Store>
__device__ __forceinline__ void moe_up_tile(uint4* shared, const MoeTile& tile, const UpProblem<Gemm>& p,
                                            const Store& store) {
  const auto scaled = Gemm::TokenFormat::alpha(p.tokens, p.weight_decode[tile.expert]);

  // In a cluster blocks 2 * s and 2 * s + 1 compute split s of K, each for half of the 256 rows that make
  // 128 columns of the result: gate and up (kHalves), or the first and the last 64 pairs of rows (kPairs).
  const u32 rank = block_rank_in_cluster();
  const u32 splits = cluster_size() / 2;
  const u32 half = rank & 1;
  const u32 split = rank / 2;
  const u32 first_column = blockIdx.x / (2 * splits) * 128;
  const u32 groups = (p.columns + kGroupK - 1) / kGroupK;
  const bool in_pairs = p.layout == kPairs;
  const WeightRows rows{
      p.weight_data + static_cast<u64>(tile.expert) * p.width * p.columns,
      p.weight_scales + tile.expert * padded_scale_bytes(2 * p.width, p.columns),
      in_pairs ? 2 * first_column + 128 * half : half * p.width + first_column,
      in_pairs ? 2 * p.width : (half + 1) * p.width};
  Gemm::run(shared, rows, p.tokens, tile.count,
            [&](u32 i) { return p.slots[tile.first + i] / p.topk; }, p.columns, groups * split / splits,
            groups * (split + 1) / splits);

  // A warp computes 128 columns of one token, a lane four of them; four lanes share a block of 16.
  const SwiGlu activate = SwiGlu::of(p.limit, p.alpha, p.beta);
  const u32 lane = threadIdx.x & 31;
  const u32 column = first_column + lane * 4;
  const GateUpColumns biases = gate_up_biases(bias_of_expert(p.bias, tile.expert, 2 * p.width), column,
                                              p.width, in_pairs);
  cluster_sync();
  constexpr u32 kWarps = Gemm::kThreads / 32;
  for (u32 token = threadIdx.x / 32 * 2 * splits + rank; token < tile.count;
       token += kWarps * 2 * splits) {
    const GateUpColumns sums = add_splits(shared_address(shared) + token * Gemm::kPitch * 4, lane, splits,
                                          in_pairs);
    float value[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      value[i] = activate(scaled(sums.gate[i], biases.gate[i]), scaled(sums.up[i], biases.up[i]));
    }
    store(tile.first + token, column, value);
  }
  cluster_sync();  // no CTA exits while others read its shared memory
}

template <class Gemm>
struct DownProblem {
  float* partial;
  typename Gemm::TokenMatrix tokens;
  const u8* weight_data;
  const u8* weight_scales;
  const float* weight_decode;
  const bf16* bias;
  u32 slot_count;
  u32 columns;
  u32 width;
  u32 splits;
};

// Computes 128 columns of a tile's results for one split of K. `shared`: Gemm::kSharedBytes.
template <class Gemm>
__device__ __forceinline__ void moe_down_tile(uint4* shared, const MoeTile& tile,
                                              const DownProblem<Gemm>& p) {
  const float* const sums = reinterpret_cast<const float*>(shared);
  const auto alpha = Gemm::TokenFormat::alpha(p.tokens, p.weight_decode[tile.expert]);

  const u32 split = blockIdx.x % p.splits;
  const u32 first_row = blockIdx.x / p.splits * 128;
  const u32 groups = (p.width + kGroupK - 1) / kGroupK;
  const WeightRows rows{p.weight_data + static_cast<u64>(tile.expert) * p.columns * (p.width / 2),
                        p.weight_scales + tile.expert * padded_scale_bytes(p.columns, p.width), first_row,
                        p.columns};
  Gemm::run(shared, rows, p.tokens, tile.count, [&](u32 i) { return tile.first + i; }, p.width,
            groups * split / p.splits, groups * (split + 1) / p.splits);

  float* const to = p.partial + (static_cast<u64>(split) * p.slot_count + tile.first) * p.columns;
  const bf16* const biases = split == 0 ? bias_of_expert(p.bias, tile.expert, p.columns) : nullptr;
  for (u32 i = threadIdx.x; i < tile.count * 32; i += Gemm::kThreads) {
    const u32 token = i / 32;
    const u32 row = first_row + i % 32 * 4;
    if (row >= p.columns) continue;
    const FourBiases bias(biases, row);
    const auto scaled = Gemm::TokenFormat::alpha_of_row(alpha, p.tokens, tile.first + token);
    float4 value = *reinterpret_cast<const float4*>(sums + token * Gemm::kPitch + i % 32 * 4);
    value.x = scaled(value.x, bias.value[0]);
    value.y = scaled(value.y, bias.value[1]);
    value.z = scaled(value.z, bias.value[2]);
    value.w = scaled(value.w, bias.value[3]);
    *reinterpret_cast<float4*>(to + static_cast<u64>(token) * p.columns + row) = value;
  }
}

}  // namespace nvfp4
}  // namespace cukiln
