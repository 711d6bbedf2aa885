// top_log_probabilities: for each row of logits, the `count` largest log-probabilities with their tokens, and
// the log-probability of a given token.
//
// What: with z = logits / temperature, the log-probability of token i is z_i - log(sum over j of exp(z_j)):
//   the plain softmax of the whole row, before any filter. Without `temperature` it is that of the logits
//   as they are. top_log_probabilities descend; among equal logits the lower index comes first.
//   A temperature <= 0 or NaN, which is greedy to the sampler, counts as 1.
// Shapes: logits [rows, vocabulary], row_stride in elements, f32; bf16 with -DCUKILN_LOGITS_BF16, f16 with
//   -DCUKILN_LOGITS_F16. top_tokens int32 and top_log_probabilities f32 [rows, count]; tokens int32 and
//   token_log_probabilities f32 [rows], or both null. temperature f32 [rows], or null for 1.
// Alignment: logits: that of an element; rows aligned to four logits are read by vectors, with the same
//   result.
// Limits: 1 <= vocabulary <= 2^22 = 4194304; count <= 32 and count <= vocabulary. Absolute error below 1e-5
//   where the log-probability is above -32; a unit in the last place or two more below.
// NaN and inf: a NaN logit counts as -inf, whose log-probability is -inf. +inf logits share the whole
//   probability. In a row of only -inf and NaN all tokens are equally likely. A token outside the vocabulary
//   has NaN.
// Launch: block (256, 1, 1), grid (8 * rows, 1, 1); clusters of 8 are an attribute of the kernel. No
//   dynamic shared memory, no workspace.
// Determinism: as in sampler; logits and temperature decide every bit, in a batch of any size.
// How: the sampler's first pass finds each thread's largest logit and the weight of the row. If n threads have
//   a logit >= b, at least n tokens do, so only threads that reach such a bound are looked at again. Each
//   warp takes their tokens best first: the thread that has the best one gives it away, and the warp
//   reads that thread's logits once more for the next. So a warp has at most `count` tokens, a thread block
//   keeps the best of its eight warps', and the first thread block of the cluster the best of all.
// Source: none beside the definition of the softmax.
#include "sampler_signature.cuh"
#include "sampler_summary.cuh"

namespace cukiln {
namespace sampling {

constexpr u32 kLargestCount = 32;  // a lane keeps a token of its warp
static_assert(kLargestCount * kThreads / 32 == kThreads && kLargestCount * kClusterBlocks == kThreads);

__device__ __forceinline__ u64 warp_max(u64 value) {
  const u32 high = static_cast<u32>(value >> 32);
  const u32 largest = __reduce_max_sync(~0u, high);
  const u32 low = high == largest ? static_cast<u32>(value) : 0;
  return u64{largest} << 32 | __reduce_max_sync(~0u, low);
}

// Finds, among the tokens that `thread` of this thread block reads, the best below `below` with a key >= `lowest`:
// key << 32 | ~index, or 0 if there is none. All lanes of a warp call this, with the same arguments.
__device__ __noinline__ u64 best_token(u32 thread, u32 lowest, u64 below) {
  const Row local = row;
  u64 best = 0;
#pragma unroll 1
  for (u32 first = first_group(thread, local.rank); first * kGroup < local.vocabulary;
       first += 32 * kRowThreads) {
    const u32 group = first + threadIdx.x % 32 * kRowThreads;
    const Keys keys = keys_at(local, read_group(local, group), group);
#pragma unroll
    for (u32 i = 0; i < kGroup; ++i) {
      const u64 token = u64{keys.each[i]} << 32 | (~(group * kGroup + i) & 0xFFFFFFFFu);
      if (keys.each[i] >= lowest && token < below) best = max(best, token);
    }
  }
  return warp_max(best);
}

// The best tokens of this warp with keys >= `lowest`, at most `count`: one in each lane, 0 where there is none.
__device__ __forceinline__ u64 best_of_warp(u32 own_largest, u32 lowest, u32 count) {
  const u32 lane = threadIdx.x % 32;
  u64 next = 0;  // this thread's best token that is not taken yet
#pragma unroll 1
  for (u32 left = __ballot_sync(~0u, own_largest >= lowest); left != 0; left &= left - 1) {
    const u32 reader = __ffs(static_cast<int>(left)) - 1;
    const u64 token = best_token(threadIdx.x - lane + reader, lowest, ~u64{0});
    if (lane == reader) next = token;
  }
  u64 taken = 0;
#pragma unroll 1
  for (u32 i = 0; i < count; ++i) {
    const u64 best = warp_max(next);
    if (best == 0) break;
    if (lane == i) taken = best;
    const u32 reader = __ffs(static_cast<int>(__ballot_sync(~0u, next == best))) - 1;
    const u64 token = best_token(threadIdx.x - lane + reader, lowest, best);
    if (lane == reader) next = token;
  }
  return taken;
}

// How many of the tokens, one of each thread, are better than this thread's.
__device__ __forceinline__ u32 count_better(const u64* tokens, u64 own) {
  u32 better = 0;
#pragma unroll 8
  for (u32 i = 0; i < kThreads; ++i) better += tokens[i] > own;
  return better;
}

}  // namespace sampling
}  // namespace cukiln

extern "C" __global__ void __cluster_dims__(cukiln::sampling::kClusterBlocks, 1, 1)
    __launch_bounds__(cukiln::sampling::kThreads, 4)
        top_log_probabilities(int* top_tokens, float* top_log_probabilities, float* token_log_probabilities,
                              const cukiln::sampling::Logit* logits, cukiln::sampling::u32 vocabulary,
                              cukiln::sampling::i64 row_stride, cukiln::sampling::u32 count,
                              const float* temperature, const int* tokens) {
  using namespace cukiln::sampling;
  __shared__ u64 from_warps[kThreads];   // key << 32 | ~index, as in best_token; 0: none
  __shared__ u64 from_blocks[kThreads];  // in rank 0
  const u32 row_index = blockIdx.x / kClusterBlocks;
  const u32 rank = blockIdx.x % kClusterBlocks;
  if (threadIdx.x == 0) {
    init_exchanges();
    start_row(logits + row_index * row_stride, vocabulary, rank, temperature ? temperature[row_index] : 1.0f);
  }
  from_blocks[threadIdx.x] = 0;
  // DSMEM of a thread block may be written only once that block runs, and its barriers are initialised.
  cluster_arrive();
  cluster_wait();
  __syncthreads();

  const Summary summary = summarize_row<false>(true);
  const u32 own_largest = key_of(summary.largest);
  const u32 bound = block_nth_largest(own_largest, (count + kClusterBlocks - 1) / kClusterBlocks);
  const RowSummary all = reduce_in_cluster(summary, own_largest, bound, true);
  if (threadIdx.x == 0) {
    row.largest = all.largest;
    row.max = logit_of(all.largest);
  }
  __syncthreads();
  const u64 total = is_infinite(row.max) ? weigh_infinite_row() : all.weight;

  u64 own = best_of_warp(own_largest, max(all.lowest, kLowestKey), count);
  from_warps[threadIdx.x] = own;
  __syncthreads();
  u32 place = count_better(from_warps, own);
  if (own != 0 && place < count) *in_rank(from_blocks + rank * kLargestCount + place, 0) = own;
  cluster_arrive();
  cluster_wait();
  if (rank != 0) return;
  own = from_blocks[threadIdx.x];
  place = count_better(from_blocks, own);
  if (own != 0 && place < count) {
    top_tokens[row_index * u64{count} + place] = static_cast<int>(~static_cast<u32>(own));
    top_log_probabilities[row_index * u64{count} + place] = log_probability(static_cast<u32>(own >> 32), total);
  }
  if (threadIdx.x == 0 && token_log_probabilities) {
    const u32 token = static_cast<u32>(tokens[row_index]);
    const u32 key = key_of(float_of(read_bits(row.logits, vocabulary, token)));
    token_log_probabilities[row_index] = token < vocabulary ? log_probability(key, total) : not_a_number();
  }
}
static_assert(cukiln::sampling::kIsSame<decltype(top_log_probabilities),
                                        cukiln::signatures::TopLogProbabilities<cukiln::sampling::Logit>>);
