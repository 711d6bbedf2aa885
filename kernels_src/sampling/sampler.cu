// sampler: draws one token for each row of logits, and computes the logarithm of its probability.
//
// What: with w_i = exp((x_i - max x) / temperature), draws token i of the kept set with probability
//   w_i / (sum of kept w). Kept are the tokens that pass every active filter:
//     top-k  fewer than top_k tokens have a larger logit
//     top-p  the tokens with a larger logit weigh less than top_p * (weight of the base set)
//     min-p  w_i >= min_p, that is p_i >= min_p * max p
//   The base set of top-p is the top-k set (order kTopKFirst 0: renormalised after top-k) or all
//   tokens (kJoint 1). Ties at a threshold are all kept; the most likely tokens always are.
//   temperature <= 0 or NaN, or top_k 1: greedy, the largest logit, lowest index among equals.
//   log_probabilities, where not null: the natural logarithm of the probability that the token was
//   drawn with, w / (sum of kept w); of a greedy row, of the token's probability under the plain
//   softmax, at temperature 1. Absolute error below 1e-5; with top-p, a token at the
//   threshold may be kept or not where the weights above it are within 1e-5 of the limit.
// Shapes: logits [rows, vocabulary], row_stride in elements, f32; bf16 with
//   -DCUKILN_LOGITS_BF16, f16 with -DCUKILN_LOGITS_F16. tokens int32 [rows], log_probabilities f32
//   [rows] or null. temperature f32, top_k int32, top_p f32, min_p f32: [rows] each, or null for
//   1, off, off, off. Off are top_k <= 0 or >= vocabulary, top_p >= 1 or NaN, min_p <= 0 or NaN.
// Alignment: logits: that of an element; rows aligned to four logits are read by vectors, with the same
//   result.
// Limits: 1 <= vocabulary <= 2^22 = 4194304. Weights are taken in units of 2^-40: a token less likely than
//   the best by more than that may never be drawn.
// NaN and inf: a NaN logit counts as -inf. +inf logits share the whole probability. In a row of only -inf
//   and NaN all tokens are equally likely.
// Launch: block (256, 1, 1), grid (8 * rows, 1, 1); clusters of 8 are an attribute of the kernel. No
//   dynamic shared memory.
// Workspace: state, 24 bytes on 8: {u64 seed, u64 offset, u32 ticket, u32 unused}, with ticket
//   zeroed once by the caller. A row's random words are Philox4x32-10 with key = seed and
//   counter = {offset, row}, as from curand_init(seed, row, 4 * offset); where top-p refuses what they draw,
//   the next ones' fourth counter word is 1, 2, ... The last thread block to
//   finish adds 1 to offset and zeroes the ticket, so a replayed graph draws anew. One state a
//   stream: launches that share one must not overlap.
//   row_seeds, where not null, 16 bytes for each row: {u64 seed, u64 offset}, which take the place of state:
//   key = seed and counter = {offset, 0}, so a row draws the same wherever it is in a batch. The kernel adds
//   1 to each offset.
// Determinism: seed, offset, row index (without row_seeds), logits and parameters decide the token. Sums are
//   of integers, or of floats in an order that the vocabulary decides, so no result depends on the order of
//   threads, nor on the number of rows.
// How: one pass over memory finds each thread's largest logit and, relative to it, the sum of its tokens'
//   weights; so a draw from the whole row needs no more than the tokens of the thread that it meets.
//   Top-k up to 2048: if n threads have a logit >= b, at least n tokens do; so the n-th largest of these
//   maxima bounds the top-k set from below, tightly, at the cost of a few barriers. Only batches that reach
//   the bound are read again; rank 0 of the cluster sorts those candidates, filters and draws.
//   Top-p alone: tokens are drawn from the whole row, four at a time, until one is in the nucleus. The weights
//   of batches with a larger logit bound the weight above each, which tells most; else one more pass adds up
//   the weight above two. Nine of ten draws are, with top-p 0.9. What is refused bounds the nucleus from below.
//   A larger top-k, and the weight of the nucleus for a log-probability: samples that the first pass kept tell within which interval the
//   threshold lies. A second pass adds up what is above and stages what is inside the interval; a histogram
//   of the staged tokens finds the bin of the threshold, and the few tokens of that bin the threshold itself.
//   Where the samples misled, the pass is repeated with the rest of the row, so the threshold is exact.
// Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (2011), for Philox;
//   Holtzman et al., The Curious Case of Neural Text Degeneration (2020), for top-p;
//   Nguyen et al., Turning Up the Heat: Min-p Sampling (2024).
#include "sampler_draws.cuh"
#include "sampler_signature.cuh"
#include "sampler_summary.cuh"

namespace cukiln {
namespace sampling {

struct RowParameters {
  float temperature;
  int top_k;
  float top_p;
  float min_p;
};

// Sets the shared filters, but for min_p_key.
__device__ __forceinline__ void set_filters(const RowParameters& parameters, u32 vocabulary, u32 order) {
  Filters& filters = shared.filters;
  filters.by_top_k = parameters.top_k > 0 && static_cast<u32>(parameters.top_k) < vocabulary;
  filters.top_k = filters.by_top_k ? parameters.top_k : kFilterOff;
  filters.by_top_p = parameters.top_p < 1.0f;
  filters.top_p = to_u64_rz(mul_rn(parameters.top_p, 18446744073709551616.0f));
  filters.base_is_row = filters.by_top_p && !(filters.by_top_k && order == kTopKFirst);
  filters.is_greedy = is_greedy(parameters.temperature);
  filters.by_best = !filters.is_greedy && filters.by_top_k && filters.top_k <= kCandidates;
  filters.by_threshold = !filters.is_greedy && (filters.by_top_k || filters.by_top_p);
}

// The weight of this thread's tokens, by the first pass; at least a unit if they have any.
__device__ __forceinline__ u64 own_weight(const Summary& summary) {
  const float sum = rescale(summary.sum, row.max, summary.reference);
  return in_units(sum) + (sum > 0.0f ? 1 : 0);
}

// The key of a token that weighs exp(gap).
__device__ __forceinline__ u32 key_at(float gap) {
  return key_of(add_rn(row.max, mul_rn(gap, row.temperature)));
}

__device__ __forceinline__ u32 min_p_key() {
  if (!(row.min_p > 0.0f)) return kLowestKey;
  return min(key_at(mul_rn(log2_approx(row.min_p), kLog2)), row.largest);
}

}  // namespace sampling
}  // namespace cukiln

extern "C" __global__ void __cluster_dims__(cukiln::sampling::kClusterBlocks, 1, 1)
    __launch_bounds__(cukiln::sampling::kThreads, cukiln::sampling::kBlocksPerSm)
        sampler(int* tokens, float* log_probabilities, const cukiln::sampling::Logit* logits,
                cukiln::sampling::u32 vocabulary, cukiln::sampling::i64 row_stride,
                const float* temperature, const int* top_k, const float* top_p, const float* min_p,
                cukiln::sampling::u32 order, cukiln::sampling::PhiloxState* state,
                cukiln::sampling::PhiloxSeed* row_seeds) {
  using namespace cukiln::sampling;
  const u32 row_index = blockIdx.x / kClusterBlocks;
  const u32 rank = blockIdx.x % kClusterBlocks;
  if (threadIdx.x == 0) {
    init_exchange(&shared.proposals_arrived);
    init_exchange(&shared.weights_arrived);
    init_exchanges();
  }
  cluster_arrive_relaxed();
  logits += row_index * row_stride;
  const int own_top_k = top_k ? top_k[row_index] : 0;
  const float own_temperature = temperature ? temperature[row_index] : 1.0f;
  const RowParameters parameters{own_top_k == 1 ? 0.0f : own_temperature, own_top_k,
                                 top_p ? top_p[row_index] : 1.0f, min_p ? min_p[row_index] : 0.0f};
  if (threadIdx.x == 0) {
    shared.row_seed = row_seeds ? row_seeds[row_index] : PhiloxSeed{state->seed, state->offset};
    shared.own_row = row_index;
    shared.random_row = row_seeds ? 0 : row_index;
    shared.seed_of_row = row_seeds ? row_seeds + row_index : nullptr;
    shared.state_of_rows = state;
    start_row(logits, vocabulary, rank, parameters.temperature);
    shared.staged_count = 0;
    row.min_p = parameters.min_p;
    set_filters(parameters, vocabulary, order);
    // In greedy rows several threads may find a token: atomicMin keeps the lowest index.
    if (rank == 0 && shared.filters.is_greedy) tokens[row_index] = 0x7FFFFFFF;
  }
  clear_batches();
  // DSMEM of a thread block may be written only once that block runs, and its barriers are initialised. The wait
  // empties the L1 cache, so it precedes the first pass.
  cluster_wait();
  __syncthreads();

  Filters& filters = shared.filters;
  const bool weighs =
      filters.is_greedy ? log_probabilities != nullptr : filters.base_is_row || !filters.by_threshold;
  const bool has_filters = filters.by_threshold || row.min_p > 0.0f;
  const Summary summary = has_filters ? summarize_row<true>(weighs) : summarize_row<false>(weighs);
  const u32 own_largest = key_of(summary.largest);
  if (!filters.is_greedy) draw_random_bits(0);
  u32 lowest = 0;
  if (filters.by_best) {
    lowest = block_nth_largest(own_largest, (filters.top_k + kClusterBlocks - 1) / kClusterBlocks);
  }
  const Bounds of_block = share_summary(summary, own_largest, lowest);
  if (filters.is_greedy) cluster_arrive();  // orders rank 0's write of the token before the others'
  if (!filters.is_greedy && only_top_p()) count_batches(of_block);
  const RowSummary all = combine_summaries(weighs);
  if (filters.is_greedy) cluster_wait();
  if (threadIdx.x == 0) {
    row.largest = all.largest;
    row.max = logit_of(all.largest);
    filters.min_p_key = min_p_key();
    shared.row_weight = all.weight;
    shared.nucleus_limit = weight_limit(all.weight);
  }
  __syncthreads();
  const bool infinite = is_infinite(row.max);
  if (infinite && weighs) {
    const u64 weight = weigh_infinite_row();
    if (threadIdx.x == 0) shared.row_weight = weight;
    __syncthreads();
  }

  u64 drawn = 0;  // key << 32 | index
  u64 total;      // weight of what the draw is from; read late, since registers are few
  if (filters.is_greedy) {
    total = shared.row_weight;
    for (u32 left = __ballot_sync(~0u, own_largest == row.largest); left != 0; left &= left - 1) {
      const u32 reader = __ffs(static_cast<int>(left)) - 1;
      const u64 found = find_token(threadIdx.x / 32 * 32 + reader, row.largest, 0);
      drawn = drawn == 0 || (found != 0 && found < drawn) ? found : drawn;
    }
  } else if (filters.by_threshold) {
    total = shared.row_weight;
    // Tokens below the second of these weigh less than 2^-41.
    const u32 lowest_best = max(max(all.lowest, kLowestKey), key_at(-28.5f));
    if (!filters.by_best || !draw_from_best(lowest_best, &total, &drawn)) {
      u32 largest = own_largest;
      if (by_proposals()) {
        draw_by_proposals(own_weight(summary));
        largest = kLargestKey;  // no register keeps it meanwhile; passes then tell by batches
      }
      total = shared.row_weight;
      // The logarithm of a proposal's probability needs the weight of the kept set, and so its threshold.
      if (!by_proposals() || log_probabilities) {
        drawn = draw_by_thresholds(largest, !filters.by_best, &total);
      }
      if (by_proposals()) drawn = threadIdx.x == 0 && rank == 0 ? shared.proposed : 0;
    }
  } else if (filters.min_p_key > kLowestKey || infinite) {
    total = shared.row_weight;
    drawn = draw_from_row(weigh_own(own_largest, filters.min_p_key), filters.min_p_key, &total);
  } else {
    total = shared.row_weight;
    u64 target;
    if (is_own_target(shared.random_bits[0], &target)) drawn = draw_in_block(own_weight(summary), target, kLowestKey);
  }
  if (threadIdx.x == 0 && rank == 0 && !(filters.by_threshold && by_proposals())) advance_offset();
  if (drawn == 0) return;
  if (filters.is_greedy) {
    atomicMin(tokens + shared.own_row, static_cast<int>(drawn));
  } else {
    tokens[shared.own_row] = static_cast<int>(drawn);
  }
  if (log_probabilities) {
    log_probabilities[shared.own_row] = log_probability(static_cast<u32>(drawn >> 32), total);
  }
}
static_assert(cukiln::sampling::kIsSame<decltype(sampler),
                                        cukiln::signatures::Sampler<cukiln::sampling::Logit>>);
