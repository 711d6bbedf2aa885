// sampler: one token for each row of logits, and the logarithm of its probability.
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
// Shapes: logits [rows, vocabulary], row_stride elements from row to row, f32; bf16 with
//   -DCUKILN_LOGITS_BF16, f16 with -DCUKILN_LOGITS_F16. tokens int32 [rows], log_probabilities f32
//   [rows] or null. temperature f32, top_k int32, top_p f32, min_p f32: [rows] each, or null for
//   1, off, off, off. Off are top_k <= 0 or >= vocabulary, top_p >= 1 or NaN, min_p <= 0 or NaN.
// Alignment: logits by element; rows that lie on four logits are read by vectors, with the same
//   result.
// Limits: 1 <= vocabulary <= 2^22 = 4194304. Weights are integers in units of 2^-40: a token less
//   likely than the best by more than that is never drawn.
// NaN and inf: a NaN logit counts as -inf. +inf logits share the whole probability. In a row of
//   nothing but -inf and NaN all tokens are equal.
// Launch: block (256, 1, 1), grid (8 * rows, 1, 1); the kernel itself asks for clusters of 8 thread
//   blocks. No dynamic shared memory.
// Workspace: state, 24 bytes on 8: {u64 seed, u64 offset, u32 ticket, u32 unused}, with ticket
//   zeroed once by the caller. A row's random words are Philox4x32-10 with key = seed and
//   counter = {offset, row}, as from curand_init(seed, row, 4 * offset). The last thread block to
//   finish adds 1 to offset and zeroes the ticket, so a replayed graph draws anew. One state a
//   stream: launches that share one must not overlap.
// Determinism: seed, offset, row index, logits and parameters decide the token. Counts and weights
//   are integers, so no result depends on the order of threads, nor on the number of rows.
// How: one pass over memory finds the largest logit of every thread. At least n tokens lie at or
//   above a value that n threads reach, so a few barriers find a bound that holds the top-k set and
//   little more, and only the threads that reach it read their logits again. The first thread block
//   sorts what they hand in, filters and draws. Where more may be kept, thresholds are bisected
//   over the logits' bit patterns, one pass a step, and one more pass draws.
// Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (2011), for Philox;
//   Holtzman et al., The Curious Case of Neural Text Degeneration (2020), for top-p;
//   Nguyen et al., Turning Up the Heat: Min-p Sampling (2024).

namespace cukiln {
namespace sampling {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

enum FilterOrder : u32 { kTopKFirst = 0, kJoint = 1 };

struct PhiloxState {
  u64 seed;
  u64 offset;
  u32 ticket;
  u32 unused;
};

#if defined(CUKILN_LOGITS_BF16) || defined(CUKILN_LOGITS_F16)
using Logit = u16;
using Group = uint2;
#else
using Logit = float;
using Group = uint4;
#endif
constexpr u32 kGroup = 4;  // logits that a thread reads at once

constexpr u32 kClusterBlocks = 8;
constexpr u32 kThreads = 256;
constexpr u32 kRowThreads = kClusterBlocks * kThreads;
constexpr u32 kCandidates = 2048;               // that the first thread block sorts, at most
constexpr u32 kNucleus = kCandidates / 2;       // asked for where top-k does not say how many
constexpr float kWeightOne = 1099511627776.0f;  // 2^40
constexpr float kLog2 = 0.693147180559945309f;
constexpr u32 kOff = ~0u;

// What the threads of a thread block know of their row.
struct Row {
  const Logit* logits;
  u32 vocabulary;
  u32 rank;               // of the thread block in its cluster
  float max;
  float exponent_factor;  // -log2(e) / temperature
};

struct Filters {
  u32 top_k;       // kOff: off
  u64 top_p;       // in units of 2^-64
  u32 min_p_key;   // min-p as a lowest key
  bool by_top_k;
  bool by_top_p;
  bool base_is_row;  // of top-p
};

// Of this thread's value, those of all threads before it, and those of all.
struct Sum {
  u64 own;
  u64 before;
  u64 total;
};

__shared__ Row row;
__shared__ u32 row_largest;  // key
__shared__ u32 row_lowest;   // key that holds the top-k set
__shared__ u64 random_bits;
__shared__ u64 warp_sums[kThreads / 32];
__shared__ u64 block_sums[2][kClusterBlocks];  // of the cluster; two rounds in turn
__shared__ u32 last_round;
// A candidate is key << 32 | ~index: in descending order the best come first, and among equals the
// lowest index.
__shared__ u64 staged[kCandidates + 1];  // the thread block's; in rank 0 then weights before each
__shared__ u32 staged_count;
__shared__ u64 candidates[kCandidates];  // the row's, in rank 0

// ---- Arithmetic. It is spelt in PTX, so that compiler flags do not change which token is drawn.

__device__ __forceinline__ float product(float a, float b) {
  float result;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ __forceinline__ u64 truncated(float value) {
  u64 integer;
  asm("cvt.rzi.u64.f32 %0, %1;" : "=l"(integer) : "f"(value));
  return integer;
}

// The other operand where one is NaN.
__device__ __forceinline__ float maximum(float a, float b) {
  float larger;
  asm("max.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

// Unsigned integers above 0 in the order of the logits. NaN counts as -inf, and -0 as +0.
__device__ __forceinline__ u32 key_of(float logit) {
  float normal = maximum(logit, __uint_as_float(0xFF800000u));
  asm("add.rn.f32 %0, %0, 0f00000000;" : "+f"(normal));
  const u32 bits = __float_as_uint(normal);
  return bits ^ (static_cast<u32>(static_cast<int>(bits) >> 31) | 0x80000000u);
}

__device__ __forceinline__ float logit_of(u32 key) {
  return __uint_as_float((key & 0x80000000u) ? key ^ 0x80000000u : ~key);
}

// A weight's logarithm to base 2. A gap of NaN, between equal infinities, is none.
__device__ __forceinline__ float log2_weight(const Row& of, u32 key) {
  float gap, exponent;
  asm("sub.rn.f32 %0, %1, %2;" : "=f"(gap) : "f"(of.max), "f"(logit_of(key)));
  asm("min.f32 %0, %1, 0f00000000;" : "=f"(exponent) : "f"(product(gap, of.exponent_factor)));
  return exponent;
}

// A weight in units of 2^-40.
__device__ __forceinline__ u64 weight_of(const Row& of, u32 key) {
  float weight;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(weight) : "f"(log2_weight(of, key)));
  return truncated(product(weight, kWeightOne));
}

// 64 random bits: the first two words of Philox4x32-10.
__device__ __forceinline__ u64 philox(u64 seed, u64 offset, u32 subsequence) {
  u32 counter[4] = {static_cast<u32>(offset), static_cast<u32>(offset >> 32), subsequence, 0};
  u32 key0 = static_cast<u32>(seed), key1 = static_cast<u32>(seed >> 32);
#pragma unroll 1
  for (int round = 0; round < 10; ++round) {
    const u32 c0 = counter[0], c2 = counter[2];
    counter[0] = __umulhi(0xCD9E8D57u, c2) ^ counter[1] ^ key0;
    counter[1] = 0xCD9E8D57u * c2;
    counter[2] = __umulhi(0xD2511F53u, c0) ^ counter[3] ^ key1;
    counter[3] = 0xD2511F53u * c0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return u64{counter[1]} << 32 | counter[0];
}

// ---- Cooperation. Every thread of the block, or of the cluster, calls these. What is used in
// several places is not inlined, here and below: it would dominate the compile time.

__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// The same variable in another thread block of the cluster.
template <class T>
__device__ __forceinline__ T* in_block(T* variable, u32 rank) {
  u64 address;
  asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(variable), "r"(rank));
  return reinterpret_cast<T*>(address);
}

__device__ __noinline__ Sum block_sum(u64 value) {
  u64 inclusive = value;
#pragma unroll 1
  for (u32 step = 1; step < 32; step *= 2) {
    const u64 lower = __shfl_up_sync(~0u, inclusive, step);
    if (threadIdx.x % 32 >= step) inclusive += lower;
  }
  if (threadIdx.x % 32 == 31) warp_sums[threadIdx.x / 32] = inclusive;
  __syncthreads();
  Sum sum = {value, inclusive - value, 0};
#pragma unroll 1
  for (u32 warp = 0; warp < kThreads / 32; ++warp) {
    const u64 other = warp_sums[warp];
    sum.before += warp < threadIdx.x / 32 ? other : 0;
    sum.total += other;
  }
  __syncthreads();
  return sum;
}

// The same over the cluster: thread blocks in the order of their ranks.
__device__ __noinline__ Sum cluster_sum(u64 value) {
  Sum sum = block_sum(value);
  const u32 round = last_round ^ 1;
  u64* const each = block_sums[round];
  if (threadIdx.x < kClusterBlocks) *in_block(each + row.rank, threadIdx.x) = sum.total;
  cluster_arrive();
  cluster_wait();
  last_round = round;
  sum.total = 0;
#pragma unroll 1
  for (u32 rank = 0; rank < kClusterBlocks; ++rank) {
    if (rank < row.rank) sum.before += each[rank];
    sum.total += each[rank];
  }
  return sum;
}

// The nth largest of the threads' keys, or a little less: the last bits are 0.
__device__ __forceinline__ u32 block_nth_largest(u32 key, u32 nth) {
  u32 found = 0;
#pragma unroll 1
  for (u32 bit = 1u << 31; bit >= 1u << 16; bit /= 2) {
    if (__syncthreads_count(key >= (found | bit)) >= nth) found |= bit;
  }
  return found;
}

// ---- Passes over the row. Its groups of four logits belong to the warps in turn, one of each
// thread block, so that no region of the vocabulary is one thread block's alone.

__device__ __forceinline__ u32 first_group(u32 rank) {
  return (threadIdx.x / 32 * kClusterBlocks + rank) * 32 + threadIdx.x % 32;
}

// The groups that are read by vectors.
__device__ __forceinline__ u32 whole_groups(const Logit* logits, u32 vocabulary) {
  return reinterpret_cast<u64>(logits) % sizeof(Group) == 0 ? vocabulary / kGroup : 0;
}

__device__ __forceinline__ u32 read_bits(const Logit* logits, u32 index) {
  return sizeof(Logit) == 4 ? __ldg(reinterpret_cast<const u32*>(logits) + index)
                            : __ldg(reinterpret_cast<const u16*>(logits) + index);
}

__device__ __forceinline__ Group read_whole(const Logit* logits, u32 group) {
  return __ldg(reinterpret_cast<const Group*>(logits) + group);
}

__device__ __forceinline__ float float_of(u32 bits) {
#if defined(CUKILN_LOGITS_BF16)
  return __uint_as_float(bits << 16);
#elif defined(CUKILN_LOGITS_F16)
  float logit;
  asm("cvt.f32.f16 %0, %1;" : "=f"(logit) : "h"(static_cast<u16>(bits)));
  return logit;
#else
  return __uint_as_float(bits);
#endif
}

__device__ __forceinline__ float4 floats_of(const Group& group) {
#if defined(CUKILN_LOGITS_BF16) || defined(CUKILN_LOGITS_F16)
  return make_float4(float_of(group.x & 0xFFFFu), float_of(group.x >> 16),
                     float_of(group.y & 0xFFFFu), float_of(group.y >> 16));
#else
  return make_float4(float_of(group.x), float_of(group.y), float_of(group.z), float_of(group.w));
#endif
}

__device__ __forceinline__ uint4 keys_of(const Group& group) {
  const float4 x = floats_of(group);
  return make_uint4(key_of(x.x), key_of(x.y), key_of(x.z), key_of(x.w));
}

enum Pass : u32 {
  kLargest,  // the largest key, 0 for none
  kWeigh,    // the weight of the tokens from `lowest` > 0 up
  kStage,    // the same, and makes them candidates
  kFind,     // the token that takes that weight above `target`: key << 32 | index
};

// A pass over this thread's logits.
__device__ __noinline__ u64 measure(Pass pass, u32 lowest, u64 target) {
  const Row local = row;
  const u32 whole = whole_groups(local.logits, local.vocabulary);
  u64 sum = 0;
  u32 group = first_group(local.rank);
  Group next = {};
  if (group < whole) next = read_whole(local.logits, group);
#pragma unroll 1
  for (; group * kGroup < local.vocabulary; group += kRowThreads) {
    uint4 keys = keys_of(next);
    if (group + kRowThreads < whole) next = read_whole(local.logits, group + kRowThreads);
    if (group >= whole) {
#pragma unroll 1
      for (u32 index = group * kGroup; index < (group + 1) * kGroup; ++index) {
        keys = make_uint4(keys.y, keys.z, keys.w, 0);  // beyond the row: less than every key
        if (index < local.vocabulary) keys.w = key_of(float_of(read_bits(local.logits, index)));
      }
    }
    const u32 best = max(max(keys.x, keys.y), max(keys.z, keys.w));
    if (pass == kLargest) {
      sum = max(sum, u64{best});
    } else if (pass == kWeigh) {
      const u32 each[kGroup] = {keys.x, keys.y, keys.z, keys.w};
#pragma unroll
      for (u32 i = 0; i < kGroup; ++i) {
        const u64 weight = weight_of(local, each[i]);
        sum += each[i] >= lowest ? weight : 0;
      }
    } else if (best >= lowest) {
#pragma unroll 1
      for (u32 index = group * kGroup; index < (group + 1) * kGroup; ++index) {
        if (keys.x >= lowest) {
          sum += weight_of(local, keys.x);
          if (pass == kFind) {
            if (sum > target) return u64{keys.x} << 32 | index;
          } else {
            const u32 place = atomicAdd(&staged_count, 1u);
            if (place < kCandidates) staged[place] = u64{keys.x} << 32 | (~index & 0xFFFFFFFFu);
          }
        }
        keys = make_uint4(keys.y, keys.z, keys.w, 0);
      }
    }
  }
  return sum;
}

// The weight of the row's tokens from `lowest` > 0 up.
__device__ __noinline__ Sum weigh(u32 lowest) { return cluster_sum(measure(kWeigh, lowest, 0)); }

// ---- Draws.

// Sorts candidates[0, count), descending: bitonic, where every comparison leaves the larger first,
// so that what is missing to a power of two needs no filling.
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
      // Up to step 32 a warp works on elements of its own.
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

// Top-p as a limit on the weight above a token; at least 1, so that the most likely tokens stay.
__device__ __forceinline__ u64 weight_limit(const Filters& filters, u64 base) {
  return max(__umul64hi(filters.top_p, base), u64{1});
}

// Sorted candidates come best first, so what every filter keeps is a beginning of them: the number
// that have this key or a better one, and less than `limit` weight before them.
__device__ __noinline__ u32 count_candidates(u32 count, u32 lowest, u64 limit) {
  u32 number = 0;
#pragma unroll 1
  for (u32 base = 0; base < count; base += kThreads) {
    const u32 i = base + threadIdx.x;
    number += __syncthreads_count(i < count && candidate_key(i) >= lowest && staged[i] < limit);
  }
  return number;
}

// The work of the cluster's first thread block alone, on candidates that hold the kept set. `total`
// is the row's weight where top-p wants it, then that of the kept set. Returns the token in one
// thread, as key << 32 | index.
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
  // Fewer than top_k: what is missing weighs nothing.
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

// Draws from the tokens from `lowest` up, which hold the top-k set. Returns false, having drawn
// nothing, where they are too many, or tokens below may be kept.
__device__ __forceinline__ bool draw_from_best(const Filters& filters, u32 lowest, bool holds_some,
                                               u64* total, u64* drawn) {
  const u64 weight = holds_some ? measure(kStage, lowest, 0) : 0;
  if (!filters.by_top_k && cluster_sum(weight).total < weight_limit(filters, *total)) return false;
  __syncthreads();
  const u32 own_count = staged_count;
  const Sum sum = cluster_sum(threadIdx.x == kThreads - 1 ? own_count : 0);
  if (sum.total > kCandidates) return false;
#pragma unroll 1
  for (u32 i = threadIdx.x; i < own_count; i += kThreads) {
    in_block(candidates, 0)[sum.before + i] = staged[i];
  }
  cluster_arrive();
  cluster_wait();
  if (row.rank == 0) {
    *drawn = draw_from_candidates(filters, static_cast<u32>(sum.total), total);
  }
  return true;
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
    row.logits = logits;
    row.vocabulary = vocabulary;
    row.rank = rank;
    last_round = 0;
    row_largest = 0;
    row_lowest = kOff;
    staged_count = 0;
    // Where several threads find a token, in greedy rows, the lowest index stays.
    if (rank == 0) tokens[row_index] = 0x7FFFFFFF;
  }
  // A thread block's shared memory may be written from outside only once the thread block runs.
  cluster_arrive();

  const float row_temperature = temperature ? temperature[row_index] : 1.0f;
  const int row_top_k = top_k ? top_k[row_index] : 0;
  const float row_top_p = top_p ? top_p[row_index] : 1.0f;
  const float row_min_p = min_p ? min_p[row_index] : 0.0f;
  const bool greedy = __float_as_uint(row_temperature) - 1 >= 0x7F800000u;  // also NaN
  Filters filters;
  filters.by_top_k = row_top_k > 0 && static_cast<u32>(row_top_k) < vocabulary;
  filters.top_k = filters.by_top_k ? row_top_k : kOff;
  filters.by_top_p = row_top_p < 1.0f;
  filters.top_p = truncated(product(row_top_p, 18446744073709551616.0f));
  filters.base_is_row = filters.by_top_p && !(filters.by_top_k && order == kTopKFirst);

  __syncthreads();
  const u32 own_largest = static_cast<u32>(measure(kLargest, 0, 0));
  const bool by_best = !greedy && (filters.by_top_k || filters.by_top_p);
  if (threadIdx.x == 0) random_bits = philox(seed, offset, row_index);
  const u32 warp_largest = __reduce_max_sync(~0u, own_largest);
  u32 lowest = 0;
  if (by_best) {
    const u32 wanted = filters.by_top_k ? filters.top_k : kNucleus;
    lowest = block_nth_largest(own_largest, (wanted + kClusterBlocks - 1) / kClusterBlocks);
  }
  cluster_wait();
  if (threadIdx.x % 32 < kClusterBlocks) {
    atomicMax(in_block(&row_largest, threadIdx.x % 32), warp_largest);
    atomicMin(in_block(&row_lowest, threadIdx.x % 32), lowest);
  }
  cluster_arrive();
  cluster_wait();
  const u32 largest = row_largest;
  lowest = max(row_lowest, 1);
  if (threadIdx.x == 0) {
    if (rank == 0) {
      // Every thread block of the row has read the state; the last row moves it on.
      __threadfence();
      const u32 rows = gridDim.x / kClusterBlocks;
      if (atomicInc(&state->ticket, rows - 1) == rows - 1) state->offset = offset + 1;
    }
    // At least 2^-126, so that an infinite gap stays infinite.
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(greedy ? 1.0f : row_temperature));
    row.max = logit_of(largest);
    row.exponent_factor = product(maximum(inverse, 1.17549435e-38f), -1.44269504088896340736f);
  }
  __syncthreads();

  const auto key_at = [&](float gap) {  // of a token that weighs exp(gap)
    float logit;
    asm("add.rn.f32 %0, %1, %2;"
        : "=f"(logit)
        : "f"(row.max), "f"(product(gap, row_temperature)));
    return key_of(logit);
  };
  lowest = max(lowest, key_at(-28.5f));  // less than 2^-41
  filters.min_p_key = 1;
  if (row_min_p > 0.0f) {
    float log2_share;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2_share) : "f"(row_min_p));
    filters.min_p_key = min(key_at(product(log2_share, kLog2)), largest);
  }

  u64 drawn = 0;
  u64 total = 0;
  if (greedy ? log_probabilities != nullptr : filters.base_is_row) total = weigh(1).total;
  if (greedy) {
    if (own_largest == largest) drawn = measure(kFind, largest, 0);
  } else if (!by_best || !draw_from_best(filters, lowest, own_largest >= lowest, &total, &drawn)) {
    // Unfiltered, or too many kept. Top-k is top-p where all weights are equal.
    lowest = 1;
    const float exponent_factor = row.exponent_factor;
#pragma unroll 1
    for (u32 filter = 0; filter < 2; ++filter) {
      __syncthreads();
      if (threadIdx.x == 0) row.exponent_factor = filter == 0 ? 0.0f : exponent_factor;
      __syncthreads();
      if (!(filter == 0 ? filters.by_top_k : filters.by_top_p)) continue;
      if (filter == 1 && !filters.base_is_row) total = weigh(lowest).total;
      const u64 limit = filter == 0 ? u64{filters.top_k} << 40 : weight_limit(filters, total);
      // The lowest key with less than `limit` above it.
      u32 high = largest;
#pragma unroll 1
      while (lowest < high) {
        const u32 middle = lowest + (high - lowest) / 2;
        if (weigh(middle + 1).total < limit) {
          high = middle;
        } else {
          lowest = middle + 1;
        }
      }
    }
    lowest = max(lowest, filters.min_p_key);
    // In the order (thread block, thread, token).
    const Sum sum = weigh(lowest);
    total = sum.total;
    const u64 target = __umul64hi(random_bits, total) - sum.before;
    // Where the target lies before this thread's tokens, the difference is a huge number.
    if (target < sum.own) drawn = measure(kFind, lowest, target);
  }
  if (drawn == 0) return;
  atomicMin(tokens + row_index, static_cast<int>(drawn));
  if (log_probabilities) {
    float kept, difference;
    asm("cvt.rn.f32.u64 %0, %1;" : "=f"(kept) : "l"(total));
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(kept) : "f"(product(kept, 1 / kWeightOne)));
    asm("sub.rn.f32 %0, %1, %2;"
        : "=f"(difference)
        : "f"(log2_weight(row, static_cast<u32>(drawn >> 32))), "f"(kept));
    log_probabilities[row_index] = product(difference, kLog2);
  }
}
