// The two ways to draw: from candidates, the row's best tokens, which rank 0 sorts, without further passes
// over the row; or by bisecting the filters' thresholds, a pass a step, where candidates are too many.
#pragma once

#include "sampler_passes.cuh"

namespace cukiln {
namespace sampling {

// Bitonic sort of candidates[0, count), descending. Every comparison puts the larger first, so the elements
// missing to a power of two need no padding.
__device__ __forceinline__ void sort_candidates(u32 count) {
#pragma unroll 1
  for (u32 length = 2; length < 2 * count; length *= 2) {
#pragma unroll 1
    for (u32 step = length / 2; step > 0; step /= 2) {
      const u32 flip = step == length / 2 ? length - 1 : step;
#pragma unroll 1
      for (u32 pair = threadIdx.x; pair < min(count, kCandidates / 2); pair += kThreads) {
        const u32 first = 2 * pair - (pair & (step - 1));
        const u32 second = first ^ flip;
        const u64 a = candidates[first];
        const u64 b = candidates[second];
        if (second < count && a < b) {
          candidates[first] = b;
          candidates[second] = a;
        }
      }
      // Up to step 32 each warp works on its own elements.
      if (step > 32 || (step == 1 && length >= 64)) {
        __syncthreads();
      } else {
        __syncwarp();
      }
    }
  }
  __syncthreads();
}

__device__ __forceinline__ u32 candidate_key(u32 i) {
  return static_cast<u32>(candidates[i] >> 32);
}

// Top-p as a limit on the weight above a token; at least 1, so that the best tokens stay.
__device__ __forceinline__ u64 weight_limit(const Filters& filters, u64 base) {
  return max(__umul64hi(filters.top_p, base), u64{1});
}

// Candidates are sorted best first, so what every filter keeps is a prefix: returns the number with this
// key or a better one and less than `limit` weight before them.
__device__ __noinline__ u32 count_candidates(u32 count, u32 lowest, u64 limit) {
  u32 number = 0;
#pragma unroll 1
  for (u32 base = 0; base < count; base += kThreads) {
    const u32 i = base + threadIdx.x;
    number += __syncthreads_count(i < count && candidate_key(i) >= lowest && staged[i] < limit);
  }
  return number;
}

// Sorts, filters and draws, in rank 0 only, from candidates that contain the kept set. `total` is the row's
// weight where top-p needs it, and becomes the weight of the kept set. Returns the token, key << 32 |
// index, in one thread and 0 in the others.
__device__ __forceinline__ u64 draw_from_candidates(const Filters& filters, u32 count, u64* total) {
  sort_candidates(count);
  u64 weight = 0;
#pragma unroll 1
  for (u32 first = 0; first <= count; first += kThreads) {
    const u32 i = first + threadIdx.x;
    const Sum sum = block_sum(i < count ? weight_of(row, candidate_key(i)) : 0);
    if (i <= count) staged[i] = weight + sum.before;
    weight += sum.total;
  }
  __syncthreads();
  // Fewer candidates than top_k: the missing tokens weigh nothing.
  u32 lowest = filters.top_k <= count ? candidate_key(filters.top_k - 1) : 1;
  if (filters.by_top_p) {
    if (!filters.base_is_row) *total = staged[count_candidates(count, lowest, ~u64{0})];
    lowest = candidate_key(count_candidates(count, lowest, weight_limit(filters, *total)) - 1);
  }
  lowest = max(lowest, filters.min_p_key);
  *total = staged[count_candidates(count, lowest, ~u64{0})];
  const u64 target = __umul64hi(random_bits, *total);
  const u64 drawn = candidates[count_candidates(count, lowest, target + 1) - 1];
  return threadIdx.x == 0 ? drawn ^ 0xFFFFFFFFu : 0;
}

// Draws from the tokens with keys >= `lowest`, which contain the top-k set. Returns false, without a draw,
// if they are too many or tokens below may be kept.
__device__ __forceinline__ bool draw_from_best(const Filters& filters, u32 lowest, bool holds_some,
                                               u64* total, u64* drawn) {
  const u64 weight = holds_some ? scan_row(kStage, lowest, 0) : 0;
  if (!filters.by_top_k && cluster_sum(weight).total < weight_limit(filters, *total)) return false;
  __syncthreads();
  const u32 own_count = staged_count;
  const Sum sum = cluster_sum(threadIdx.x == kThreads - 1 ? own_count : 0);
  if (sum.total > kCandidates) return false;
#pragma unroll 1
  for (u32 i = threadIdx.x; i < own_count; i += kThreads) {
    in_rank(candidates, 0)[sum.before + i] = staged[i];
  }
  cluster_arrive();
  cluster_wait();
  if (row.rank == 0) {
    *drawn = draw_from_candidates(filters, static_cast<u32>(sum.total), total);
  }
  return true;
}

// Bisects the threshold of each active filter and draws from the whole row. `total`: as in
// draw_from_candidates. Returns the token, key << 32 | index, in one thread of the row and 0 in the others.
__device__ __forceinline__ u64 draw_by_bisection(const Filters& filters, u32 largest, u64* total) {
  u32 lowest = 1;
  const float exponent_factor = row.exponent_factor;
#pragma unroll 1
  for (u32 filter = 0; filter < 2; ++filter) {  // top-k, which is top-p with equal weights; then top-p
    __syncthreads();
    if (threadIdx.x == 0) row.exponent_factor = filter == 0 ? 0.0f : exponent_factor;
    __syncthreads();
    if (!(filter == 0 ? filters.by_top_k : filters.by_top_p)) continue;
    if (filter == 1 && !filters.base_is_row) *total = weigh_row(lowest).total;
    const u64 limit = filter == 0 ? u64{filters.top_k} << 40 : weight_limit(filters, *total);
    // The lowest key with less than `limit` weight above it.
    u32 high = largest;
#pragma unroll 1
    while (lowest < high) {
      const u32 middle = lowest + (high - lowest) / 2;
      if (weigh_row(middle + 1).total < limit) {
        high = middle;
      } else {
        lowest = middle + 1;
      }
    }
  }
  lowest = max(lowest, filters.min_p_key);
  // The draw's order is (thread block, thread, token).
  const Sum sum = weigh_row(lowest);
  *total = sum.total;
  // If the target lies before this thread's tokens, the unsigned difference wraps to a huge number.
  const u64 target = __umul64hi(random_bits, sum.total) - sum.before;
  return target < sum.own ? scan_row(kFind, lowest, target) : 0;
}

}  // namespace sampling
}  // namespace cukiln
