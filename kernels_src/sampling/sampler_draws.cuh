// The two ways to draw: from candidates, the row's best tokens, which rank 0 sorts; or from the whole row,
// thread by thread, after the filters' thresholds were found.
#pragma once

#include "sampler_summary.cuh"

namespace cukiln {
namespace sampling {

// Sorts candidates[0, count), descending: up to one a thread by counting the larger ones of each; more by a
// bitonic sort, in which every comparison puts the larger first, so that the elements missing to a power of
// two need no padding.
__device__ __forceinline__ void sort_candidates(u32 count) {
  if (count <= kThreads) {
    const u64 own = threadIdx.x < count ? shared.candidates[threadIdx.x] : 0;
    u32 larger = 0;
#pragma unroll 4
    for (u32 i = 0; i < count; ++i) larger += shared.candidates[i] > own;
    __syncthreads();
    if (threadIdx.x < count) shared.candidates[larger] = own;
    __syncthreads();
    return;
  }
#pragma unroll 1
  for (u32 length = 2; length < 2 * count; length *= 2) {
#pragma unroll 1
    for (u32 step = length / 2; step > 0; step /= 2) {
      const u32 flip = step == length / 2 ? length - 1 : step;
#pragma unroll 1
      for (u32 pair = threadIdx.x; pair < min(count, kCandidates / 2); pair += kThreads) {
        const u32 first = 2 * pair - (pair & (step - 1));
        const u32 second = first ^ flip;
        const u64 a = shared.candidates[first];
        const u64 b = shared.candidates[second];
        if (second < count && a < b) {
          shared.candidates[first] = b;
          shared.candidates[second] = a;
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
  return static_cast<u32>(shared.candidates[i] >> 32);
}

// Top-p as a limit on the weight above a token; at least 1, so that the best tokens stay.
__device__ __forceinline__ u64 weight_limit(u64 base) {
  return max(__umul64hi(shared.filters.top_p, base), u64{1});
}

// Candidates are sorted best first, so what every filter keeps is a prefix: returns the number with this
// key or a better one and less than `limit` weight before them.
__device__ __noinline__ u32 count_candidates(u32 count, u32 lowest, u64 limit) {
  u32 number = 0;
#pragma unroll 1
  for (u32 base = 0; base < count; base += kThreads) {
    const u32 i = base + threadIdx.x;
    number += __syncthreads_count(i < count && candidate_key(i) >= lowest && shared.staged[i] < limit);
  }
  return number;
}

// Sorts, filters and draws, in rank 0 only, from candidates that contain the kept set. `total` is the row's
// weight where top-p needs it, and becomes that of the kept set. Returns the token, key << 32 | index, in one
// thread and 0 in the others.
__device__ __forceinline__ u64 draw_from_candidates(u32 count, u64* total) {
  sort_candidates(count);
  u64 weight = 0;
#pragma unroll 1
  for (u32 first = 0; first <= count; first += kThreads) {
    const u32 i = first + threadIdx.x;
    const Sum sum = block_sum(i < count ? weight_of(row, candidate_key(i)) : 0);
    if (i <= count) shared.staged[i] = weight + sum.before;
    weight += sum.total;
  }
  __syncthreads();
  // Fewer candidates than top_k: the missing tokens weigh nothing.
  u32 lowest = shared.filters.top_k <= count ? candidate_key(shared.filters.top_k - 1) : 1;
  if (shared.filters.by_top_p) {
    if (!shared.filters.base_is_row) *total = shared.staged[count_candidates(count, lowest, ~u64{0})];
    lowest = candidate_key(count_candidates(count, lowest, weight_limit(*total)) - 1);
  }
  lowest = max(lowest, shared.filters.min_p_key);
  *total = shared.staged[count_candidates(count, lowest, ~u64{0})];
  const u64 target = __umul64hi(shared.random_bits[0], *total);
  const u64 drawn = shared.candidates[count_candidates(count, lowest, target + 1) - 1];
  return threadIdx.x == 0 ? drawn ^ 0xFFFFFFFFu : 0;
}

// Draws from the tokens with keys >= `lowest`, which contain the top-k set. Returns false, without a draw,
// if they are too many.
__device__ __forceinline__ bool draw_from_best(u32 lowest, u64* total, u64* drawn) {
  stage_row(lowest);
  __syncthreads();
  const u32 own_count = shared.staged_count;
  const Sum sum = cluster_sum(threadIdx.x == kThreads - 1 ? own_count : 0);
  if (sum.total > kCandidates) return false;
#pragma unroll 1
  for (u32 i = threadIdx.x; i < own_count; i += kThreads) {
    in_rank(shared.candidates, 0)[sum.before + i] = shared.staged[i];
  }
  cluster_arrive();
  cluster_wait();
  if (row.rank == 0) {
    *drawn = draw_from_candidates(static_cast<u32>(sum.total), total);
  }
  return true;
}

// Draws the token at `target` of this thread's tokens with keys >= `lowest`, which weigh `own`, in the one
// thread of a warp in which it is less than that. Returns it, key << 32 | index, in one lane, 0 in the others.
__device__ __forceinline__ u64 draw_in_warp(u64 own, u64 target, u32 lowest) {
  const u32 reader = __ballot_sync(~0u, target < own);
  if (reader == 0) return 0;
  const u32 lane = __ffs(static_cast<int>(reader)) - 1;
  return find_token(threadIdx.x / 32 * 32 + lane, lowest, __shfl_sync(~0u, target, lane));
}

// The same of a thread block's tokens, thread by thread. If the target lies before a thread's tokens, the
// unsigned difference wraps to a huge number.
__device__ __noinline__ u64 draw_in_block(u64 own, u64 target, u32 lowest) {
  const Sum sum = block_sum(own);
  return draw_in_warp(own, min(target, sum.total - 1) - sum.before, lowest);
}

// The same of the row's tokens, thread block by thread block. `total` becomes their weight.
__device__ __forceinline__ u64 draw_from_row(u64 own, u32 lowest, u64* total) {
  const Sum sum = cluster_sum(own);
  *total = sum.total;
  return draw_in_warp(own, __umul64hi(shared.random_bits[0], sum.total) - sum.before, lowest);
}

// Estimates, from the samples, between which keys the threshold lies below which tokens of a weight of `tail`
// lie; `gap`: within which distance of the largest logit it does. Each thread block estimates by its own
// samples, and the estimates span the interval, so its width follows their variance.
__device__ __forceinline__ Interval estimate_threshold(u64 tail, float gap) {
  u32* const counts = reinterpret_cast<u32*>(histogram());
  counts[threadIdx.x] = 0;
  // If all samples weigh less than the tail.
  if (threadIdx.x == 0) shared.own_estimate = {row.largest, row.largest};
  __syncthreads();
  const Row local = row;
  const float bins_a_logit = mul_rn(kSampleBins, reciprocal(gap));
  float rest = 0.0f;  // weight of the tokens of the last bin, which are most
  u32 count = 0;
#pragma unroll
  for (u32 i = 0; i < kSamples; ++i) {
    const float logit = samples()[i * kThreads + threadIdx.x];
    const float bin = mul_rn(sub_rn(local.max, logit), bins_a_logit);
    count += logit == logit;
    if (bin < kSampleBins - 1.0f) {
      atomicAdd(counts + static_cast<u32>(bin), 1u);
    } else if (logit == logit) {
      rest = add_rn(rest, weight_of_logit(local, logit));
    }
  }
  // At most 2^11 samples, each of at most 2^40.
  const u64 both = block_sum(in_units(rest) | u64{count} << 52).total;
  const u64 unlikely = both & ((u64{1} << 52) - 1);
  const float width = mul_rn(gap, 1.0f / kSampleBins);
  const u32 bin = kSampleBins - 1 - threadIdx.x;  // the least likely tokens first
  const float middle = sub_rn(local.max, mul_rn(static_cast<float>(bin) + 0.5f, width));
  const u64 weight = threadIdx.x == 0 ? unlikely : counts[bin] * in_units(weight_of_logit(local, middle));
  const Sum sum = block_sum(weight);
  const float share = mul_rn(to_f32_rn(both >> 52), reciprocal(to_f32_rn(local.vocabulary)));
  const float expected = mul_rn(to_f32_rn(tail), share);
  const u64 least = to_u64_rz(mul_rn(expected, 1 - kSampleMargin));
  const u64 most = to_u64_rz(mul_rn(expected, 1 + kSampleMargin));
  if (sum.before <= least && least < sum.before + weight) {
    const float logit = sub_rn(local.max, mul_rn(static_cast<float>(bin + 1), width));
    shared.own_estimate.low = threadIdx.x == 0 ? kLowestKey : key_of(logit);
  }
  if (sum.before <= most && most < sum.before + weight) {
    shared.own_estimate.high = min(local.largest, key_of(sub_rn(local.max, mul_rn(static_cast<float>(bin), width))));
  }
  __syncthreads();
  if (threadIdx.x < kClusterBlocks) *in_rank(shared.estimates + local.rank, threadIdx.x) = shared.own_estimate;
  cluster_arrive();
  cluster_wait();
  Interval all = shared.estimates[0];
#pragma unroll
  for (u32 rank = 1; rank < kClusterBlocks; ++rank) {
    all = {min(all.low, shared.estimates[rank].low), max(all.high, shared.estimates[rank].high)};
  }
  return {all.low, max(all.low, all.high)};
}

// Zeroes the histogram, and if asked for, the list of staged tokens.
__device__ __forceinline__ void clear_histogram(bool with_list) {
#pragma unroll
  for (u32 bin = threadIdx.x; bin < kBins; bin += kThreads) histogram()[bin] = 0;
  if (with_list && threadIdx.x == 0) shared.staged_count = 0;
  __syncthreads();
}

// Adds the tokens inside the interval to the histogram: the staged ones, if none is missing.
__device__ __forceinline__ void count_tokens(Interval interval, u32 shift) {
  if (shared.staged_count > kCandidates) {
    scan_row(kCount, interval, shift);
    return;
  }
#pragma unroll 1
  for (u32 i = threadIdx.x; i < shared.staged_count; i += kThreads) {
    const u32 key = static_cast<u32>(shared.staged[i] >> 32);
    if (key < interval.low || key > interval.high) continue;
    add_packed(histogram() + ((key - interval.low) >> shift), weight_of(row, key));
  }
  __syncthreads();
#pragma unroll
  for (u32 bin = threadIdx.x; bin < kBins; bin += kThreads) histogram()[bin] = unpack(histogram()[bin]);
}

// Adds up the thread blocks' histograms, which are complete: each bin in one thread block, which gives the
// sum to all.
__device__ __forceinline__ void share_histograms() {
  constexpr u32 kBlockBins = kBins / kClusterBlocks;
  constexpr u32 kBinThreads = kThreads / kBlockBins;
  const u32 bin = row.rank * kBlockBins + threadIdx.x / kBinThreads;
  u64 weight = 0;
#pragma unroll
  for (u32 i = 0; i < kClusterBlocks / kBinThreads; ++i) {
    weight += in_rank(histogram(), threadIdx.x % kBinThreads + i * kBinThreads)[bin];
  }
#pragma unroll
  for (u32 lane = kBinThreads / 2; lane > 0; lane /= 2) weight += __shfl_xor_sync(~0u, weight, lane);
#pragma unroll
  for (u32 i = 0; i < kClusterBlocks / kBinThreads; ++i) {
    in_rank(cluster_histogram(), threadIdx.x % kBinThreads + i * kBinThreads)[bin] = weight;
  }
  cluster_arrive();
  cluster_wait();
}

// Finds the bin, the most likely tokens first, in which the weight reaches `limit`, beginning with `above`.
// Returns the weight of all bins.
__device__ __forceinline__ u64 find_crossing(u64 above, u64 limit) {
  const u32 bin = kBins - 2 - 2 * threadIdx.x;
  const u64 first = cluster_histogram()[bin + 1];
  const u64 second = cluster_histogram()[bin];
  const Sum sum = block_sum(first + second);
  const u64 before = above + sum.before;
  if (before < limit && before + first >= limit) shared.crossing = {before, bin + 1};
  if (before + first < limit && before + first + second >= limit) shared.crossing = {before + first, bin};
  __syncthreads();
  return sum.total;
}

// Passes this thread block's staged tokens inside the interval on to all thread blocks, and the weight of
// those above. Returns whether every thread block could.
__device__ __forceinline__ bool share_tokens(Interval interval, u64 own_above) {
  if (threadIdx.x == 0) {
    shared.share_count = 0;
    shared.share_keys = {~0u, 0};
  }
  __syncthreads();
#pragma unroll 1
  for (u32 i = threadIdx.x; i < min(shared.staged_count, kCandidates); i += kThreads) {
    const u32 key = static_cast<u32>(shared.staged[i] >> 32);
    if (key < interval.low) continue;
    if (key > interval.high) {
      own_above += weight_of(row, key);
      continue;
    }
    const u32 place = atomicAdd(&shared.share_count, 1u);
    atomicMin(&shared.share_keys.low, key);
    atomicMax(&shared.share_keys.high, key);
    if (place >= kGathered) continue;
#pragma unroll 1
    for (u32 rank = 0; rank < kClusterBlocks; ++rank) in_rank(shared.shares + row.rank, rank)->keys[place] = key;
  }
  const u64 above = block_sum(own_above).total;
  if (threadIdx.x < kClusterBlocks) {
    Share* const to = in_rank(shared.shares + row.rank, threadIdx.x);
    const bool are_equal = shared.share_count > kGathered && shared.share_keys.low == shared.share_keys.high;
    to->above = above;
    to->count = shared.staged_count > kCandidates ? ~0u : are_equal ? 1 : shared.share_count;
    to->times = are_equal ? shared.share_count : 1;
  }
  cluster_arrive();
  cluster_wait();
  bool complete = true;
#pragma unroll
  for (u32 rank = 0; rank < kClusterBlocks; ++rank) complete &= shared.shares[rank].count <= kGathered;
  return complete;
}

// Makes the threshold among the shared tokens search.floor, and says what each thread block keeps. A warp does
// this for one thread block, a lane for one token.
__device__ __forceinline__ void resolve_shares() {
  const Share* const own = shared.shares + threadIdx.x / 32;
  const bool holds = threadIdx.x % 32 < own->count;
  const u32 key = holds ? own->keys[threadIdx.x % 32] : 0;
  const u64 weight = holds ? weight_of(row, key) * own->times : 0;
  shared.share_weights[threadIdx.x] = weight;
  __syncthreads();
  u64 above = shared.search.above;
  u64 equal = 0;
#pragma unroll 1
  for (u32 rank = 0; rank < kClusterBlocks; ++rank) {
    const u32 count = shared.shares[rank].count;
#pragma unroll 4
    for (u32 i = 0; i < count; ++i) {
      const u32 other = shared.shares[rank].keys[i];
      const u64 of_other = shared.share_weights[rank * kGathered + i];
      above += other > key ? of_other : 0;
      equal += other == key ? of_other : 0;
    }
  }
  if (holds && above < shared.search.limit && above + equal >= shared.search.limit) shared.search.floor = key;
  __syncthreads();
  const u64 kept = warp_inclusive_sum(key >= shared.search.floor ? weight : 0);
  if (threadIdx.x % 32 == 31) shared.kept_weights[threadIdx.x / 32] = own->above + kept;
  __syncthreads();
}

__device__ __forceinline__ u32 shift_of(Interval interval) {
  const u32 width = interval.high - interval.low;
  return width < kBins ? 0 : 32 - __clz(static_cast<int>(width / kBins));
}

enum Found : u32 { kNothing, kThreshold, kThresholdAndShares };

// Divides search.within, or takes the row's other keys where the threshold is not there. Tokens in an interval
// that was read from the row are staged, so that further steps need not read it again. `own_above` becomes
// the weight of this thread's tokens above the staged ones, search.floor the threshold that was found.
__device__ __forceinline__ Found divide(u32 own_largest, u64* own_above) {
  __syncthreads();
  const bool is_staged = shared.search.refines && shared.staged_count <= kCandidates;
  __syncthreads();
  clear_histogram(!is_staged);
  if (!is_staged) {
    *own_above = own_largest >= shared.search.within.low ? scan_row(kStage, shared.search.within, 0) : 0;
    __syncthreads();
  }
  count_tokens(shared.search.within, shift_of(shared.search.within));
  const u64 larger = cluster_sum(*own_above).total;
  if (threadIdx.x == 0 && !shared.search.refines) shared.search.above = larger;
  share_histograms();
  const u64 inside = find_crossing(shared.search.above, shared.search.limit);
  const Search last = shared.search;
  __syncthreads();
  if (last.above >= last.limit || last.above + inside < last.limit) {
    const bool is_above = last.above >= last.limit;
    if (!is_above && last.within.low <= last.floor) return kThreshold;
    if (threadIdx.x == 0) {
      shared.search.refines = false;
      shared.search.within = is_above ? Interval{last.within.high + 1, row.largest}
                               : Interval{last.floor, last.within.low - 1};
    }
    return kNothing;
  }
  const u32 shift = shift_of(last.within);
  const u32 low = last.within.low + (shared.crossing.bin << shift);
  const Interval bin = {low, min(last.within.high, low + (1u << shift) - 1)};
  if (threadIdx.x == 0) {
    shared.search.refines = true;
    shared.search.within = bin;
    shared.search.above = shared.crossing.above;
    if (shift == 0) shared.search.floor = low;
  }
  __syncthreads();
  if (shift == 0) return kThreshold;
  const bool is_shared = share_tokens(bin, *own_above);
  if (!is_shared) return kNothing;
  resolve_shares();
  return kThresholdAndShares;
}

// The weight of each thread's tokens with keys >= `lowest`. Threads without such tokens do not read.
__device__ __forceinline__ u64 weigh_own(u32 own_largest, u32 lowest) {
  return own_largest >= lowest ? weigh_row(lowest) : 0;
}

// In the place of the histograms: a thread's weight above a proposal.
__device__ __forceinline__ u64* own_above(u32 k) { return histogram() + k * kThreads + threadIdx.x; }
static_assert(kProposals * kThreads <= 2 * kBins);

// Random bits for the next proposals, of which the first has this number.
__device__ __noinline__ void draw_random_bits(u32 number) {
  if (threadIdx.x >= kProposals) return;
  shared.random_bits[threadIdx.x] =
      philox(shared.row_seed.seed, shared.row_seed.offset, shared.random_row, number + threadIdx.x);
}

// Gives the weights above proposals `first` and the next to the cluster. A thread that has tokens above one gets at
// least a unit, so that the thread block has some where the sum of its threads' weights is not 0.
__device__ __forceinline__ void share_above(const Above& own, u32 buffer, u32 first) {
#pragma unroll
  for (u32 k = 0; k < kWeighed; ++k) {
    float sum = own.each[k];
    *own_above(first + k) = in_units(sum) + (sum > 0.0f ? 1 : 0);
#pragma unroll
    for (u32 lane = 16; lane > 0; lane /= 2) sum = add_rn(sum, __shfl_xor_sync(~0u, sum, lane));
    if (threadIdx.x % 32 == 0) shared.warp_weights_above[threadIdx.x / 32][k] = sum;
  }
  __syncthreads();
  if (threadIdx.x < kWeighed * kClusterBlocks) {
    const u32 k = threadIdx.x % kWeighed;
    float sum = 0.0f;
#pragma unroll
    for (u32 warp = 0; warp < kThreads / 32; ++warp) sum = add_rn(sum, shared.warp_weights_above[warp][k]);
    send(&shared.weights_above[buffer][row.rank][first + k], in_units(sum), &shared.weights_arrived,
         threadIdx.x / kWeighed);
  }
  if (threadIdx.x == 0) expect_bytes(&shared.weights_arrived, kWeighed * kClusterBlocks * sizeof(u64));
}

// Whether no filter but top-p, and min-p, is on.
__device__ __forceinline__ bool only_top_p() { return shared.filters.by_top_p && !shared.filters.by_top_k; }

__device__ __forceinline__ bool by_proposals() { return only_top_p() && !is_infinite(row.max); }

// Whether the first pass kept the weight of every batch.
__device__ __forceinline__ bool keeps_batches() {
  return row.vocabulary <= kMaxima * kBatch * kGroup * kRowThreads;
}

// The bin of a logit that is not above `largest`. The last bin is that of all less likely ones.
__device__ __forceinline__ u32 batch_bin(const Row& of, float largest, float logit) {
  const float quarters = mul_rn(mul_rn(sub_rn(logit, largest), of.exponent_factor), 4.0f);
  return min(to_u32_rz(quarters), kBatchBins - 1);
}

__device__ __forceinline__ void clear_batches() {
  if (threadIdx.x < kBatchBins / 2) shared.own_batches[threadIdx.x] = 0;
}

// Adds up the weights of this thread block's batches by their largest logit, each rounded up, after
// share_summary and while other thread blocks are waited for.
__device__ __forceinline__ void count_batches(const Bounds& own) {
  if (!keeps_batches()) return;
  const Row local = row;
  const float largest = reference_of(own.largest);
  const float unit = mul_rn(1073741824.0f, reciprocal(own.sum));
  float reference = -kLargestFloat;
  u32 place = threadIdx.x;
#pragma unroll 4
  for (u32 group = first_group(threadIdx.x, local.rank); group * kGroup < local.vocabulary;
       group += kBatch * kRowThreads) {
    const float of_batch = maxima()[place];
    const float weight = batch_weights()[place];
    place += kThreads;
    reference = max_f32(reference, of_batch);
    const u32 bin = batch_bin(local, largest, of_batch);
    if (bin == kBatchBins - 1) continue;
    const float factor = exp2_approx(mul_rn(sub_rn(largest, reference), local.exponent_factor));
    atomicAdd(reinterpret_cast<u32*>(shared.own_batches) + bin,
              to_u32_rz(mul_rn(mul_rn(weight, factor), unit)) + 1);
  }
}

// Whether less than top_p of the row's weight lies above the token even if batches with a larger logit had no
// others. Rounding cannot make it so. All warps of the cluster get the same answer.
__device__ __forceinline__ bool is_surely_kept(u32 key) {
  constexpr u32 kLanes = 32 / kClusterBlocks;  // for each thread block
  constexpr u32 kLoads = kBatchBins / 4 / kLanes;
  const Row local = row;
  const u32 rank = threadIdx.x % 32 / kLanes;
  const Bounds of = row.bounds[rank];
  const float largest = reference_of(of.largest);
  const float logit = logit_of(key);
  const bool is_below = logit < largest;
  const u32 bin = is_below ? batch_bin(local, largest, logit) : 0;
  const uint4* const counts = reinterpret_cast<const uint4*>(shared.batches[rank]);
  u32 share = 0;
#pragma unroll
  for (u32 i = 0; i < kLoads; ++i) {
    const u32 place = threadIdx.x % kLanes + i * kLanes;
    const uint4 four = counts[place];
    if (4 * place <= bin) share += four.x;
    if (4 * place + 1 <= bin) share += four.y;
    if (4 * place + 2 <= bin) share += four.z;
    if (4 * place + 3 <= bin) share += four.w;
  }
  float above = is_below ? mul_rn(to_f32_rn(share), rescale(of.sum, local.max, largest)) : 0.0f;
#pragma unroll
  for (u32 lane = 16; lane > 0; lane /= 2) above = add_rn(above, __shfl_xor_sync(~0u, above, lane));
  const float limit = mul_rn(to_f32_rn(shared.nucleus_limit), 1.0f / 1024);  // in units of 2^-30
  const bool is_known = __ballot_sync(~0u, bin == kBatchBins - 1) == 0;
  return is_known && mul_rn(above, 1.0001f) < limit && key >= shared.filters.min_p_key;
}

// Adds 1 to the offset if this is the last of the grid's rows. Called by one thread of each row, after every
// thread block of the row has read the state.
__device__ __noinline__ void advance_offset() {
  const u64 offset = shared.row_seed.offset + 1;
  if (shared.seed_of_row) {
    shared.seed_of_row->offset = offset;
    return;
  }
  const u32 last = gridDim.x / kClusterBlocks - 1;
  __threadfence();
  if (atomicInc(&shared.state_of_rows->ticket, last) == last) shared.state_of_rows->offset = offset;
}

// Whether the random bits hit this thread block, if each weighs as much as block_sums says; `target`: where.
__device__ __forceinline__ bool is_own_target(u64 random, u64* target) {
  const u64* const weights = row.block_sums[row.last_round];
  u64 total = 0;
  u64 before = 0;
#pragma unroll
  for (u32 rank = 0; rank < kClusterBlocks; ++rank) {
    before += rank < row.rank ? weights[rank] : 0;
    total += weights[rank];
  }
  *target = __umul64hi(random, total) - before;
  return *target < weights[row.rank];
}

// Draws the proposals of this thread block, each by a warp, and gives them to the cluster. `own` is the weight of this
// thread's tokens with keys >= `lowest`, and each thread block weighs as much as block_sums says.
__device__ __noinline__ void draw_proposals(u64 own, u32 lowest, u32 buffer) {
  const u64 inclusive = warp_inclusive_sum(own);
  if (threadIdx.x % 32 == 31) row.warp_sums[threadIdx.x / 32] = inclusive;
  if (threadIdx.x < kProposals) {
    const u64* const weights = row.block_sums[row.last_round];
    u64 total = 0;
    u64 before = 0;
#pragma unroll
    for (u32 rank = 0; rank < kClusterBlocks; ++rank) {
      if (rank == row.rank) before = total;
      total += weights[rank];
    }
    const u64 target = __umul64hi(shared.random_bits[threadIdx.x], total) - before;
    shared.own_targets[threadIdx.x] = target < weights[row.rank] ? target : ~u64{0};
  }
  __syncthreads();
  u64 total = 0;
  u64 before = inclusive - own;
#pragma unroll
  for (u32 warp = 0; warp < kThreads / 32; ++warp) {
    if (warp < threadIdx.x / 32) before += row.warp_sums[warp];
    total += row.warp_sums[warp];
  }
  u32 are_own = 0;
#pragma unroll
  for (u32 k = 0; k < kProposals; ++k) {
    const u64 target = shared.own_targets[k];
    if (target == ~u64{0}) continue;
    are_own |= 1u << k;
    const u64 of_thread = min(target, total - 1) - before;
    if (of_thread < own) {
      shared.readers[k] = threadIdx.x;
      shared.reader_targets[k] = of_thread;
    }
  }
  __syncthreads();
  const u32 k = threadIdx.x / 32;
  if ((are_own >> k & 1) == 0) return;
  const u64 drawn = find_token(shared.readers[k], lowest, shared.reader_targets[k]);
  const u32 holder = __ffs(static_cast<int>(__ballot_sync(~0u, drawn != 0))) - 1;
  const u64 token = __shfl_sync(~0u, drawn, holder);
  if (threadIdx.x % 32 < kClusterBlocks) {
    send(&shared.proposals[buffer][k], token, &shared.proposals_arrived, threadIdx.x % 32);
  }
}

// How many proposals come before the first one that is surely kept.
__device__ __noinline__ u32 count_unsure(u32 buffer) {
  if (!keeps_batches()) return kProposals;
  const u32 warp = threadIdx.x / 32;
  if (warp < kProposals) {
    const bool is_kept = is_surely_kept(static_cast<u32>(shared.proposals[buffer][warp] >> 32));
    if (threadIdx.x % 32 == 0) shared.are_surely_kept[warp] = is_kept;
  }
  __syncthreads();
  u32 count = 0;
  while (count < kProposals && !shared.are_surely_kept[count]) ++count;
  return count;
}

// Prepares the next proposals, of which the first has this number, from the tokens above proposal `refused`. Returns
// their weight in this thread.
__device__ __noinline__ u64 start_round(u32 buffer, u32 refused, u32 number) {
  const u64 own = *own_above(refused);
  if (threadIdx.x < kClusterBlocks) {
    row.block_sums[row.last_round][threadIdx.x] = shared.weights_above[buffer][threadIdx.x][refused];
  }
  draw_random_bits(number);
  __syncthreads();
  return own;
}

// Draws tokens from the whole row, of which each thread block weighs as much as block_sums says, until one is
// in the kept set of top-p and min-p: it is if the weight above it and its own key allow it. So no threshold
// is needed: what a proposal needs is a sum over the row. Keys up to a refused proposal's are outside of the
// kept set too, and are not drawn from again. `own` is the weight of this thread's tokens. The token becomes
// `proposed`. Where batches tell that a proposal is kept, it needs no sum. Advances the offset.
__device__ __noinline__ void draw_by_proposals(u64 own) {
  u32 lowest = kLowestKey;
  static_assert(kThreads / 32 == kClusterBlocks && kBatchBins / 2 == 32);
  static_assert(kProposals / kWeighed % 2 == 0);  // so that the phases of a round begin with an even one
  send(&shared.batches[row.rank][threadIdx.x % 32], shared.own_batches[threadIdx.x % 32], &shared.proposals_arrived,
       threadIdx.x / 32);
#pragma unroll 1
  for (u32 number = 0;; number += kProposals) {
    const u32 buffer = number / kProposals % 2;
    if (threadIdx.x == 0) {
      expect_bytes(&shared.proposals_arrived, sizeof(shared.proposals[0]) + (number == 0 ? sizeof(shared.batches) : 0));
    }
    draw_proposals(own, lowest, buffer);
    if (number == 0 && threadIdx.x == 0 && row.rank == kClusterBlocks - 1) advance_offset();
    wait_for(&shared.proposals_arrived, buffer);
    const u32 unsure = count_unsure(buffer);
#pragma unroll 1
    for (u32 first = 0; first < unsure; first += kWeighed) {
      share_above(weigh_above(shared.proposals[buffer] + first, unsure - first), buffer, first);
      wait_for(&shared.weights_arrived, first / kWeighed % 2);
#pragma unroll 1
      for (u32 k = first; k < min(first + kWeighed, unsure); ++k) {
        const u32 key = static_cast<u32>(shared.proposals[buffer][k] >> 32);
        u64 above = 0;
#pragma unroll
        for (u32 rank = 0; rank < kClusterBlocks; ++rank) above += shared.weights_above[buffer][rank][k];
        if (above < shared.nucleus_limit && key >= shared.filters.min_p_key) {
          if (threadIdx.x == 0) shared.proposed = shared.proposals[buffer][k];
          return;
        }
      }
    }
    if (unsure < kProposals) {
      if (threadIdx.x == 0) shared.proposed = shared.proposals[buffer][unsure];
      return;
    }
    u32 refused = 0;  // the one with the largest logit
#pragma unroll 1
    for (u32 k = 0; k < kProposals; ++k) {
      const u32 key = static_cast<u32>(shared.proposals[buffer][k] >> 32);
      if (key < lowest) continue;
      lowest = key + 1;
      refused = k;
    }
    own = start_round(buffer, refused, number + kProposals);
  }
}

// The weight of each thread's tokens with keys >= `lowest`, from the staged tokens and that of those above.
__device__ __forceinline__ u64 weigh_staged(u64 own_above, u32 lowest) {
  histogram()[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll 1
  for (u32 i = threadIdx.x; i < shared.staged_count; i += kThreads) {
    const u32 key = static_cast<u32>(shared.staged[i] >> 32);
    if (key < lowest) continue;
    add_packed(histogram() + reader_of(~static_cast<u32>(shared.staged[i]) / kGroup), weight_of(row, key));
  }
  __syncthreads();
  return own_above + unpack(histogram()[threadIdx.x]);
}

// Begins the search for a filter's threshold, not below `floor`, which is search.floor. The tokens from which
// the filter takes its share weigh `base`.
__device__ __forceinline__ void start_search(u32 floor, bool counts, u64 base, bool has_samples) {
  const u64 limit = counts ? u64{shared.filters.top_k} << 40 : weight_limit(base);
  Interval within = {floor, row.largest};
  if (has_samples && row.vocabulary >= kSamples * kRowThreads) {
    const u64 tail = base > limit ? base - limit : 0;
    // Tokens that are less likely than 1 / vocabulary of the tail are together less likely than it.
    const float bits = 42.0f + log2_approx(to_f32_rn(row.vocabulary)) -
                       log2_approx(to_f32_rn(max(tail, u64{1})));
    within = estimate_threshold(tail, mul_rn(counts ? 41.0f : min_f32(41.0f, bits), reciprocal(-row.scale)));
  }
  if (threadIdx.x == 0) {
    shared.search.within = within;
    shared.search.refines = false;
    shared.search.limit = limit;
  }
}

// Draws from the tokens with keys >= `lowest`, which are shared.
__device__ __forceinline__ u64 draw_from_shares(u64 own_above, u32 lowest, u64* total) {
  *total = 0;
#pragma unroll
  for (u32 rank = 0; rank < kClusterBlocks; ++rank) *total += shared.kept_weights[rank];
  u64 target = __umul64hi(shared.random_bits[0], *total);
#pragma unroll 1
  for (u32 rank = 0; rank < row.rank; ++rank) target -= shared.kept_weights[rank];
  if (target >= shared.kept_weights[row.rank]) return 0;
  return draw_in_block(weigh_staged(own_above, lowest), target, lowest);
}

// Where top-k or top-p may keep more tokens than are sorted: finds the threshold of each, and draws from the
// whole row. `total` becomes the weight of the kept set. Returns the token as draw_from_row does.
__device__ __forceinline__ u64 draw_by_thresholds(u32 own_largest, bool has_samples, u64* total) {
  u64 own_above = 0;
  Found found = kNothing;
  if (threadIdx.x == 0) shared.search.floor = kLowestKey;
#pragma unroll 1
  for (u32 filter = 0; filter < 2; ++filter) {  // top-k, which is top-p with equal weights; then top-p
    if (!(filter == 0 ? shared.filters.by_top_k : shared.filters.by_top_p)) continue;
    __syncthreads();
    if (threadIdx.x == 0) row.exponent_factor = filter == 0 ? 0.0f : row.scale;
    __syncthreads();
    u64 base = filter == 0 ? u64{row.vocabulary} << 40 : shared.row_weight;
    if (filter == 1 && !shared.filters.base_is_row) {
      base = cluster_sum(weigh_own(own_largest, shared.search.floor)).total;
    }
    start_search(shared.search.floor, filter == 0, base, has_samples);
    has_samples = false;  // staged tokens take their place
    do {
      found = divide(own_largest, &own_above);
    } while (found == kNothing);
  }
  __syncthreads();
  if (threadIdx.x == 0) row.exponent_factor = row.scale;
  __syncthreads();
  const u32 lowest = max(shared.search.floor, shared.filters.min_p_key);
  if (shared.filters.by_top_p && lowest == shared.search.floor && found == kThresholdAndShares) {
    return draw_from_shares(own_above, lowest, total);
  }
  return draw_from_row(weigh_own(own_largest, lowest), lowest, total);
}

}  // namespace sampling
}  // namespace cukiln
