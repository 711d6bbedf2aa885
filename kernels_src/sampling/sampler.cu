// sampler: draws one token for each row of logits, and computes the logarithm of its probability.
//
// What: with w_i = exp((x_i - max x) / temperature), draws token i of the kept set with probability
//   w_i / (sum of kept w). Kept are the tokens that pass every active filter:
//     top-k  fewer than top_k tokens have a larger logit
//     top-p  the tokens with a larger logit weigh less than top_p * (weight of the base set)
//     min-p  w_i >= min_p, that is p_i >= min_p * max p
//   The base set of top-p is the top-k set (order kTopKFirst 0: renormalised after top-k) or all
//   tokens (kJoint 1). Ties at a threshold are all kept; the most likely tokens always are.
//   temperature <= 0 or NaN: the largest logit, lowest index among equals.
//   log_probabilities, where not null: the natural logarithm of the probability that the token was
//   drawn with, w / (sum of kept w); of a greedy row, of the token's probability under the plain
//   softmax, at temperature 1. Absolute error below 1e-5.
// Shapes: logits [rows, vocabulary], row_stride in elements, f32; bf16 with
//   -DCUKILN_LOGITS_BF16, f16 with -DCUKILN_LOGITS_F16. tokens int32 [rows], log_probabilities f32
//   [rows] or null. temperature f32, top_k int32, top_p f32, min_p f32: [rows] each, or null for
//   1, off, off, off. Off are top_k <= 0 or >= vocabulary, top_p >= 1 or NaN, min_p <= 0 or NaN.
// Alignment: logits: that of an element; rows aligned to four logits are read by vectors, with the same
//   result.
// Limits: 1 <= vocabulary <= 2^22 = 4194304. Weights are integers in units of 2^-40: a token less
//   likely than the best by more than that is never drawn.
// NaN and inf: a NaN logit counts as -inf. +inf logits share the whole probability. In a row of only -inf
//   and NaN all tokens are equally likely.
// Launch: block (256, 1, 1), grid (8 * rows, 1, 1); clusters of 8 are an attribute of the kernel. No
//   dynamic shared memory.
// Workspace: state, 24 bytes on 8: {u64 seed, u64 offset, u32 ticket, u32 unused}, with ticket
//   zeroed once by the caller. A row's random words are Philox4x32-10 with key = seed and
//   counter = {offset, row}, as from curand_init(seed, row, 4 * offset). The last thread block to
//   finish adds 1 to offset and zeroes the ticket, so a replayed graph draws anew. One state a
//   stream: launches that share one must not overlap.
// Determinism: seed, offset, row index, logits and parameters decide the token. Counts and weights
//   are integers, so no result depends on the order of threads, nor on the number of rows.
// How: one pass over memory finds each thread's largest logit. If n threads have a logit >= b, at least n
//   tokens do; so the n-th largest of these maxima bounds the top-k set from below, tightly, at the cost of
//   a few barriers. Only threads that reach the bound read their logits again; rank 0 of the cluster sorts
//   those candidates, filters and draws. Where candidates are too many, thresholds are bisected over the
//   logits' bit patterns, one pass a step, and one more pass draws.
// Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (2011), for Philox;
//   Holtzman et al., The Curious Case of Neural Text Degeneration (2020), for top-p;
//   Nguyen et al., Turning Up the Heat: Min-p Sampling (2024).
#include "sampler_draws.cuh"
#include "sampler_signature.cuh"

namespace cukiln {
namespace sampling {

struct RowParameters {
  float temperature;
  int top_k;
  float top_p;
  float min_p;

  __device__ __forceinline__ bool greedy() const {
    return __float_as_uint(temperature) - 1 >= 0x7F800000u;  // also NaN
  }
};

__device__ __forceinline__ Filters filters_of(const RowParameters& parameters, u32 vocabulary, u32 order) {
  Filters filters;
  filters.by_top_k = parameters.top_k > 0 && static_cast<u32>(parameters.top_k) < vocabulary;
  filters.top_k = filters.by_top_k ? parameters.top_k : kFilterOff;
  filters.by_top_p = parameters.top_p < 1.0f;
  filters.top_p = to_u64_rz(mul_rn(parameters.top_p, 18446744073709551616.0f));
  filters.base_is_row = filters.by_top_p && !(filters.by_top_k && order == kTopKFirst);
  return filters;
}

// Initialises the shared state, in one thread.
__device__ __forceinline__ void start_row(const Logit* logits, u32 vocabulary, u32 rank) {
  row.logits = logits;
  row.vocabulary = vocabulary;
  row.rank = rank;
  last_round = 0;
  row_largest = 0;
  row_lowest = kFilterOff;
  staged_count = 0;
}

// Makes `largest` and `lowest` of all thread blocks' threads row_largest and row_lowest in each of them.
__device__ __forceinline__ void reduce_in_cluster(u32 largest, u32 lowest) {
  cluster_wait();  // every thread block runs
  if (threadIdx.x % 32 < kClusterBlocks) {
    atomicMax(in_rank(&row_largest, threadIdx.x % 32), largest);
    atomicMin(in_rank(&row_lowest, threadIdx.x % 32), lowest);
  }
  cluster_arrive();
  cluster_wait();
}

// Adds 1 to the offset if this is the last of `rows` rows. Called by one thread of each row, after every
// thread block of the row has read the state.
__device__ __forceinline__ void advance_offset(PhiloxState* state, u64 offset, u32 rows) {
  __threadfence();
  if (atomicInc(&state->ticket, rows - 1) == rows - 1) state->offset = offset + 1;
}

// Sets what weights are computed from, in one thread.
__device__ __forceinline__ void set_temperature(u32 largest, float temperature) {
  // At least 2^-126, so that an infinite gap times it stays infinite.
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(temperature));
  row.max = logit_of(largest);
  row.exponent_factor = mul_rn(max_f32(inverse, 1.17549435e-38f), -1.44269504088896340736f);
}

// The key of a token that weighs exp(gap).
__device__ __forceinline__ u32 key_at(float gap, float temperature) {
  float logit;
  asm("add.rn.f32 %0, %1, %2;" : "=f"(logit) : "f"(row.max), "f"(mul_rn(gap, temperature)));
  return key_of(logit);
}

__device__ __forceinline__ u32 min_p_key(const RowParameters& parameters, u32 largest) {
  if (!(parameters.min_p > 0.0f)) return 1;
  float log2_share;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2_share) : "f"(parameters.min_p));
  return min(key_at(mul_rn(log2_share, kLog2), parameters.temperature), largest);
}

// The logarithm of weight / total.
__device__ __forceinline__ float log_probability(u32 key, u64 total) {
  float kept, difference;
  asm("cvt.rn.f32.u64 %0, %1;" : "=f"(kept) : "l"(total));
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(kept) : "f"(mul_rn(kept, 1 / kWeightOne)));
  asm("sub.rn.f32 %0, %1, %2;" : "=f"(difference) : "f"(log2_weight(row, key)), "f"(kept));
  return mul_rn(difference, kLog2);
}

}  // namespace sampling
}  // namespace cukiln

extern "C" __global__ void __cluster_dims__(cukiln::sampling::kClusterBlocks, 1, 1)
    __launch_bounds__(cukiln::sampling::kThreads, 4)
        sampler(int* tokens, float* log_probabilities, const cukiln::sampling::Logit* logits,
                cukiln::sampling::u32 vocabulary, cukiln::sampling::i64 row_stride,
                const float* temperature, const int* top_k, const float* top_p, const float* min_p,
                cukiln::sampling::u32 order, cukiln::sampling::PhiloxState* state) {
  using namespace cukiln::sampling;
  const u32 row_index = blockIdx.x / kClusterBlocks;
  const u32 rank = blockIdx.x % kClusterBlocks;
  logits += row_index * row_stride;
  u64 offset = 0;
  u64 seed = 0;
  if (threadIdx.x == 0) {
    offset = state->offset;
    seed = state->seed;
    start_row(logits, vocabulary, rank);
    // In greedy rows several threads may find a token: atomicMin keeps the lowest index.
    if (rank == 0) tokens[row_index] = 0x7FFFFFFF;
  }
  // DSMEM of a thread block may be written only once that block runs: reduce_in_cluster waits.
  cluster_arrive();

  const RowParameters parameters{temperature ? temperature[row_index] : 1.0f,
                                 top_k ? top_k[row_index] : 0, top_p ? top_p[row_index] : 1.0f,
                                 min_p ? min_p[row_index] : 0.0f};
  const bool greedy = parameters.greedy();
  Filters filters = filters_of(parameters, vocabulary, order);
  const bool by_best = !greedy && (filters.by_top_k || filters.by_top_p);

  __syncthreads();
  const u32 own_largest = static_cast<u32>(scan_row(kLargest, 0, 0));
  if (threadIdx.x == 0) random_bits = philox(seed, offset, row_index);
  const u32 warp_largest = __reduce_max_sync(~0u, own_largest);
  u32 lowest = 0;
  if (by_best) {
    const u32 wanted = filters.by_top_k ? filters.top_k : kNucleus;
    lowest = block_nth_largest(own_largest, (wanted + kClusterBlocks - 1) / kClusterBlocks);
  }
  reduce_in_cluster(warp_largest, lowest);
  const u32 largest = row_largest;
  lowest = max(row_lowest, 1);
  if (threadIdx.x == 0) {
    if (rank == 0) advance_offset(state, offset, gridDim.x / kClusterBlocks);
    set_temperature(largest, greedy ? 1.0f : parameters.temperature);
  }
  __syncthreads();
  lowest = max(lowest, key_at(-28.5f, parameters.temperature));  // less than 2^-41
  filters.min_p_key = min_p_key(parameters, largest);

  u64 drawn = 0;  // key << 32 | index
  u64 total = 0;  // weight of what the draw is from
  if (greedy ? log_probabilities != nullptr : filters.base_is_row) total = weigh_row(1).total;
  if (greedy) {
    if (own_largest == largest) drawn = scan_row(kFind, largest, 0);
  } else if (!by_best || !draw_from_best(filters, lowest, own_largest >= lowest, &total, &drawn)) {
    drawn = draw_by_bisection(filters, largest, &total);
  }
  if (drawn == 0) return;
  atomicMin(tokens + row_index, static_cast<int>(drawn));
  if (log_probabilities) {
    log_probabilities[row_index] = log_probability(static_cast<u32>(drawn >> 32), total);
  }
}
static_assert(cukiln::sampling::kIsSame<decltype(sampler),
                                        cukiln::signatures::Sampler<cukiln::sampling::Logit>>);
