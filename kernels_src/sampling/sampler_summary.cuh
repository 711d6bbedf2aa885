// The first pass over a row by its thread blocks, and what they then know of it: the largest logit and the
// weight of all tokens, so that the probability of each is known.
#pragma once

#include "sampler_passes.cuh"

namespace cukiln {
namespace sampling {

// Also NaN.
__device__ __forceinline__ bool is_greedy(float temperature) {
  return __float_as_uint(temperature) - 1 >= 0x7F800000u;
}

// Initialises the shared state, in one thread. A temperature <= 0 or NaN counts as 1.
__device__ __forceinline__ void start_row(const Logit* logits, u32 vocabulary, u32 rank, float temperature) {
  row.logits = logits;
  row.vocabulary = vocabulary;
  row.whole_groups = whole_groups(logits, vocabulary);
  row.rank = rank;
  row.temperature = is_greedy(temperature) ? 1.0f : temperature;
  // At least 2^-126, so that an infinite gap times it stays infinite; and finite, so that no gap stays none.
  const float inverse = min_f32(max_f32(reciprocal(row.temperature), 1.17549435e-38f), 0.5f * kLargestFloat);
  row.scale = mul_rn(inverse, -1.44269504088896340736f);
  row.exponent_factor = row.scale;
  row.last_round = 0;
}

// In one thread of each thread block, before the barrier of the cluster that precedes share_summary.
__device__ __forceinline__ void init_exchanges() {
  init_exchange(&row.bounds_arrived);
  fence_exchanges();
  expect_bytes(&row.bounds_arrived, sizeof(row.bounds));
}

// What the cluster knows after the first pass: of all thread blocks, the largest key, the least lower bound of
// the top-k set, and the weight of all tokens.
struct RowSummary {
  u32 largest;
  u32 lowest;
  u64 weight;
};

// The sum of weights relative to `largest`, from one relative to `reference`.
__device__ __forceinline__ float rescale(float sum, float largest, float reference) {
  return mul_rn(sum, exp2_approx(mul_rn(sub_rn(largest, reference), row.exponent_factor)));
}

// Combines what the warps of a thread block know. All lanes of a warp call this.
__device__ __forceinline__ Bounds combine_warps() {
  static_assert(kThreads / 32 == kClusterBlocks);
  const Bounds own = row.warp_bounds[threadIdx.x % kClusterBlocks];
  Bounds all = {__reduce_max_sync(~0u, own.largest), __reduce_min_sync(~0u, own.lowest), 0.0f, 0};
  all.sum = rescale(own.sum, reference_of(all.largest), reference_of(own.largest));
#pragma unroll
  for (u32 lane = kClusterBlocks / 2; lane > 0; lane /= 2) {
    all.sum = add_rn(all.sum, __shfl_xor_sync(~0u, all.sum, lane));
  }
  return all;
}

// Combines the threads' summaries, and gives them to the thread blocks of the cluster. Returns those of this one.
__device__ __forceinline__ Bounds share_summary(const Summary& summary, u32 own_largest, u32 lowest) {
  const u32 largest = __reduce_max_sync(~0u, own_largest);
  float sum = rescale(summary.sum, reference_of(largest), summary.reference);
#pragma unroll
  for (u32 lane = 16; lane > 0; lane /= 2) sum = add_rn(sum, __shfl_xor_sync(~0u, sum, lane));
  if (threadIdx.x % 32 == 0) row.warp_bounds[threadIdx.x / 32] = {largest, lowest, sum, 0};
  __syncthreads();
  const Bounds own = combine_warps();
  if (threadIdx.x < kClusterBlocks) send(row.bounds + row.rank, own, &row.bounds_arrived, threadIdx.x);
  return own;
}

// Waits for the summaries of all thread blocks and combines them, their sums of weights only where asked to. All
// lanes of a warp call this.
__device__ __forceinline__ RowSummary combine_summaries(bool weighs) {
  wait_for(&row.bounds_arrived, 0);
  const Bounds of = row.bounds[threadIdx.x % kClusterBlocks];
  RowSummary all = {__reduce_max_sync(~0u, of.largest), __reduce_min_sync(~0u, of.lowest), 0};
  if (!weighs) return all;
  all.weight = in_units(rescale(of.sum, reference_of(all.largest), reference_of(of.largest)));
  if (threadIdx.x < kClusterBlocks) row.block_sums[row.last_round][threadIdx.x] = all.weight;
#pragma unroll
  for (u32 lane = kClusterBlocks / 2; lane > 0; lane /= 2) all.weight += __shfl_xor_sync(~0u, all.weight, lane);
  return all;
}

__device__ __forceinline__ RowSummary reduce_in_cluster(const Summary& summary, u32 own_largest, u32 lowest,
                                                        bool weighs) {
  share_summary(summary, own_largest, lowest);
  return combine_summaries(weighs);
}

// The weight of all tokens of a row whose largest logit is infinite, which are weighed by their keys.
__device__ __forceinline__ u64 weigh_infinite_row() { return cluster_sum(weigh_row(kLowestKey)).total; }

// The logarithm of weight / total.
__device__ __forceinline__ float log_probability(u32 key, u64 total) {
  const float kept = log2_approx(mul_rn(to_f32_rn(total), 1 / kWeightOne));
  return mul_rn(sub_rn(log2_weight(row, key), kept), kLog2);
}

}  // namespace sampling
}  // namespace cukiln
