// sampler: one token for each row of logits.
//
// What: with w_i = exp((x_i - max x) / temperature), draws token i of the kept set with probability
//   w_i / (sum of kept w). Kept are the tokens that pass every active filter:
//     top-k  fewer than top_k tokens have a larger logit
//     top-p  the tokens with a larger logit weigh less than top_p * (weight of the base set)
//     min-p  w_i >= min_p, that is p_i >= min_p * max p
//   The base set of top-p is the top-k set (order kTopKFirst 0: renormalised after top-k) or all
//   tokens (kJoint 1). Ties at a threshold are all kept; the most likely tokens always are.
//   temperature <= 0 or NaN: the largest logit, lowest index among equals.
// Shapes: logits [rows, vocabulary], row_stride elements from row to row, f32; bf16 with
//   -DCUKILN_LOGITS_BF16, f16 with -DCUKILN_LOGITS_F16. tokens int32 [rows]. temperature f32,
//   top_k int32, top_p f32, min_p f32: [rows] each, or null for 1, off, off, off.
//   Off are top_k <= 0 or >= vocabulary, top_p >= 1 or NaN, min_p <= 0 or NaN.
// Alignment: logits by element; rows on 16 bytes are read by vectors, with the same result.
// Limits: 1 <= vocabulary <= 409600. Weights are integers in units of 2^-40: a token less likely
//   than the best by more than that is never drawn.
// NaN and inf: a NaN logit counts as -inf. +inf logits share the whole probability. In a row of
//   nothing but -inf and NaN all tokens are equal.
// Launch: block (512, 1, 1), grid (8 * rows, 1, 1); the kernel itself asks for clusters of 8 thread
//   blocks, which hold a row in shared memory. Dynamic shared memory: ceil(vocabulary / 64) * 32
//   bytes.
// Workspace: state, 24 bytes on 8: {u64 seed, u64 offset, u32 ticket, u32 unused}, with ticket
//   zeroed once by the caller. A row's random words are Philox4x32-10 with key = seed and
//   counter = {offset, row}, as from curand_init(seed, row, 4 * offset). The last thread block to
//   finish adds 1 to offset and zeroes the ticket, so a replayed graph draws anew. One state a
//   stream: launches that share one must not overlap.
// Determinism: seed, offset, row index, logits and parameters decide the token. Counts and weights
//   are integers, so no result depends on the order of threads.
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
#else
using Logit = float;
#endif

constexpr u32 kClusterBlocks = 8;
constexpr u32 kThreads = 512;
constexpr u32 kBins = 2 * kThreads;
constexpr u32 kCandidates = 2 * kThreads;
constexpr float kBinsPerUnit = 32.0f;
constexpr float kWeightOne = 1099511627776.0f;  // 2^40
constexpr u32 kGroup = 16 / sizeof(Logit);      // logits in one vector load
constexpr u32 kOff = ~0u;

struct Filters {
  u32 top_k;  // kOff: off
  float top_p;
  u64 min_weight;  // 0: off
  bool by_top_p;
  bool top_k_first;
};

// A thread block's share of its row, and what its functions work on together.
struct Slice {
  u32 begin;
  u32 count;
  u32 rank;               // of the thread block in its cluster
  float max;              // of the whole row
  float exponent_factor;  // -log2(e) / temperature
  float bin_factor;       // kBinsPerUnit / temperature
};

extern __shared__ float4 slice_storage[];
__shared__ Slice slice;
__shared__ uint2 histogram[kBins / 2];
__shared__ u64 candidates[kCandidates];  // key << 32 | ~index; used in rank 0
__shared__ u64 warp_values[kThreads / 32];
__shared__ u64 block_values[2][kClusterBlocks];
__shared__ u32 last_round;
__shared__ u64 random_bits;
__shared__ u32 candidate_count;
__shared__ u32 top_k_bin;
__shared__ u32 drawn;

__device__ __forceinline__ float* logits_of_slice() {
  return reinterpret_cast<float*>(slice_storage);
}

// ---- Arithmetic. It is spelt in PTX, so that compiler flags do not change which token is drawn.
// ----

__device__ __forceinline__ bool less(float a, float b) {
  u32 result;
  asm("{\n\t"
      ".reg .pred is_less;\n\t"
      "setp.lt.f32 is_less, %1, %2;\n\t"
      "selp.u32 %0, 1, 0, is_less;\n\t"
      "}"
      : "=r"(result)
      : "f"(a), "f"(b));
  return result != 0;
}

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

// NaN becomes -inf and -0 becomes +0, so that equal logits have equal bits.
__device__ __forceinline__ float normalized(float logit) {
  float result;
  asm("max.f32 %0, %1, 0fFF800000;" : "=f"(result) : "f"(logit));
  asm("add.rn.f32 %0, %0, 0f00000000;" : "+f"(result));
  return result;
}

// Unsigned integers in the order of the logits.
__device__ __forceinline__ u32 key_of(float logit) {
  const u32 bits = __float_as_uint(logit);
  return bits ^ (static_cast<u32>(static_cast<int>(bits) >> 31) | 0x80000000u);
}

__device__ __forceinline__ float value_of(u32 key) {
  return __uint_as_float((key & 0x80000000u) ? key ^ 0x80000000u : ~key);
}

__device__ __forceinline__ float gap_of(float max, float logit) {
  float gap;
  asm("sub.rn.f32 %0, %1, %2;" : "=f"(gap) : "f"(max), "f"(logit));
  return gap;
}

// Bin 0 holds the maximum. A gap of NaN, between equal infinities, is none.
__device__ __forceinline__ u32 bin_of(float max, float bin_factor, float logit) {
  u32 bin;
  asm("cvt.rzi.u32.f32 %0, %1;" : "=r"(bin) : "f"(product(gap_of(max, logit), bin_factor)));
  return min(bin, kBins - 1);
}

// Weight in units of 2^-40.
__device__ __forceinline__ u64 weight_of(float max, float exponent_factor, float logit) {
  float weight;
  asm("{\n\t"
      ".reg .f32 exponent;\n\t"
      "min.f32 exponent, %1, 0f00000000;\n\t"
      "ex2.approx.ftz.f32 %0, exponent;\n\t"
      "}"
      : "=f"(weight)
      : "f"(product(gap_of(max, logit), exponent_factor)));
  return truncated(product(weight, kWeightOne));
}

// ---- Cooperation. Every thread of the block, or of the cluster, calls these. They are not
// inlined: each is used in several places and would dominate the compile time. ----

__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

// The same variable in another thread block of the cluster.
template <class T>
__device__ __forceinline__ T* in_block(T* variable, u32 rank) {
  u64 address;
  asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(variable), "r"(rank));
  return reinterpret_cast<T*>(address);
}

enum Reduction : u32 { kSum, kMax };

__device__ __forceinline__ u64 warp_reduce(u64 value, Reduction reduction) {
#pragma unroll 1
  for (u32 step = 16; step > 0; step /= 2) {
    const u64 other = __shfl_xor_sync(~0u, value, step);
    value = reduction == kSum ? value + other : max(value, other);
  }
  return value;
}

__device__ __noinline__ u64 block_reduce(u64 value, Reduction reduction) {
  value = warp_reduce(value, reduction);
  if (threadIdx.x % 32 == 0) warp_values[threadIdx.x / 32] = value;
  __syncthreads();
  value = warp_reduce(warp_values[threadIdx.x % (kThreads / 32)], reduction);
  __syncthreads();
  // Sixteen values in 32 lanes: each was added twice.
  return reduction == kSum ? value / 2 : value;
}

// Sum of the values of lower threads.
__device__ __noinline__ u64 block_exclusive_sum(u64 value) {
  u64 inclusive = value;
#pragma unroll 1
  for (u32 step = 1; step < 32; step *= 2) {
    const u64 lower = __shfl_up_sync(~0u, inclusive, step);
    if (threadIdx.x % 32 >= step) inclusive += lower;
  }
  if (threadIdx.x % 32 == 31) warp_values[threadIdx.x / 32] = inclusive;
  __syncthreads();
  u64 before = inclusive - value;
#pragma unroll 4
  for (u32 warp = 0; warp < kThreads / 32; ++warp) {
    before += warp < threadIdx.x / 32 ? warp_values[warp] : 0;
  }
  __syncthreads();
  return before;
}

// Over all threads of the cluster, and a barrier for them. The thread blocks' values stay in
// block_values[last_round] until the call after the next.
__device__ __noinline__ u64 cluster_reduce(u64 value, Reduction reduction) {
  value = block_reduce(value, reduction);
  const u32 round = last_round ^ 1;
  __syncthreads();
  if (threadIdx.x == 0) last_round = round;
  u64* const values = block_values[round];
  if (threadIdx.x < kClusterBlocks) *in_block(values + slice.rank, threadIdx.x) = value;
  cluster_sync();
  value = values[0];
#pragma unroll 1
  for (u32 rank = 1; rank < kClusterBlocks; ++rank) {
    value = reduction == kSum ? value + values[rank] : max(value, values[rank]);
  }
  return value;
}

// ---- Passes over the slice. Logit i belongs to thread i % kThreads. ----

// Number, or weight, of this thread's logits from `lowest` up; of weights below min_weight nothing.
__device__ __noinline__ u64 measure(float lowest, bool by_weight, u64 min_weight) {
  const float* const logits = logits_of_slice();
  const Slice local = slice;
  u64 sum = 0;
#pragma unroll 2
  for (u32 i = threadIdx.x; i < local.count; i += kThreads) {
    const float logit = logits[i];
    u64 weight = by_weight ? weight_of(local.max, local.exponent_factor, logit) : 1;
    if (less(logit, lowest) || weight < min_weight) weight = 0;
    sum += weight;
  }
  return sum;
}

// The lowest logit with fewer than `limit` tokens, or less than `limit` weight, above it.
__device__ __noinline__ float search_threshold(u64 limit, bool by_weight) {
  u32 low = 0x007FFFFFu;  // -inf
  u32 high = key_of(slice.max);
  while (low < high) {
    const u32 middle = low + (high - low) / 2;
    const u64 above = measure(value_of(middle + 1), by_weight, 0);
    if (cluster_reduce(above, kSum) < limit) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return value_of(high);
}

// Draws from the tokens from `lowest` up, in the order (thread block, thread, token).
__device__ __forceinline__ void draw_from_row(float lowest, u64 min_weight, int* token) {
  const u64 weight = measure(lowest, true, min_weight);
  u64 reached = block_exclusive_sum(weight);
  const u64 total = cluster_reduce(weight, kSum);
#pragma unroll 1
  for (u32 rank = 0; rank < slice.rank; ++rank) reached += block_values[last_round][rank];
  const u64 target = __umul64hi(random_bits, total);
  if (target < reached || target >= reached + weight) return;
  // It is one of this thread's.
  const float* const logits = logits_of_slice();
#pragma unroll 1
  for (u32 i = threadIdx.x; i < slice.count; i += kThreads) {
    const u64 own = weight_of(slice.max, slice.exponent_factor, logits[i]);
    if (less(logits[i], lowest) || own < min_weight) continue;
    reached += own;
    if (target < reached) {
      *token = static_cast<int>(slice.begin + i);
      return;
    }
  }
}

// ---- The few best tokens, in the first thread block's shared memory. ----

// Sorts candidates[0, count), descending.
__device__ __forceinline__ void sort_candidates(u32 count) {
  u32 size = 2;
  while (size < count) size *= 2;
#pragma unroll 1
  for (u32 i = count + threadIdx.x; i < size; i += kThreads) candidates[i] = 0;
  __syncthreads();
  // Bitonic. The loops stay rolled up for the sake of the compile time.
#pragma unroll 1
  for (u32 length = 2; length <= size; length *= 2) {
#pragma unroll 1
    for (u32 step = length / 2; step > 0; step /= 2) {
#pragma unroll 1
      for (u32 pair = threadIdx.x; pair < size / 2; pair += kThreads) {
        const u32 first = 2 * pair - (pair & (step - 1));
        const u32 second = first + step;
        const u64 a = candidates[first];
        const u64 b = candidates[second];
        if ((a < b) == ((first & length) == 0)) {
          candidates[first] = b;
          candidates[second] = a;
        }
      }
      __syncthreads();
    }
  }
}

// Top-p as a limit on the weight above a token; at least 1, so that the most likely tokens stay.
__device__ __forceinline__ u64 weight_limit(float top_p, u64 base_weight) {
  const u64 fraction = truncated(product(top_p, 18446744073709551616.0f));
  return max(__umul64hi(fraction, base_weight), u64{1});
}

// The work of the cluster's first thread block alone. `base_weight` is 0 where the base set of
// top-p is the top-k set. Returns false, having drawn nothing, where tokens outside may be kept.
__device__ __forceinline__ bool draw_sorted(const Filters& filters, u32 count, bool has_top_k,
                                            u64 base_weight, int* token) {
  sort_candidates(count);

  // Thread t holds candidates 2 t and 2 t + 1.
  const u32 own = 2 * threadIdx.x;
  u32 threshold = has_top_k ? static_cast<u32>(candidates[filters.top_k - 1] >> 32) : 1;
  u32 keys[2];
  u64 weights[2];
  u64 own_weight = 0;
  u64 top_k_weight = 0;
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    keys[i] = own + i < count ? static_cast<u32>(candidates[own + i] >> 32) : 0;
    weights[i] = keys[i] != 0 ? weight_of(slice.max, slice.exponent_factor, value_of(keys[i])) : 0;
    own_weight += weights[i];
    top_k_weight += keys[i] >= threshold ? weights[i] : 0;
  }
  const u64 before = block_exclusive_sum(own_weight);
  if (filters.by_top_p) {
    if (base_weight == 0) base_weight = block_reduce(top_k_weight, kSum);
    const u64 limit = weight_limit(filters.top_p, base_weight);
    if (!has_top_k && block_reduce(own_weight, kSum) < limit) return false;
    // The last candidate with less than `limit` above it; its ties stay with it.
    u64 above = before;
    u32 last = 0;
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      if (own + i < count && above < limit) last = own + i;
      above += weights[i];
    }
    threshold = max(threshold, static_cast<u32>(candidates[block_reduce(last, kMax)] >> 32));
  }

  // The kept candidates come first in the order, so all the weight before one of them is kept.
  u64 kept_weight = 0;
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    if (keys[i] < threshold || weights[i] < filters.min_weight) weights[i] = 0;
    kept_weight += weights[i];
  }
  const u64 target = __umul64hi(random_bits, block_reduce(kept_weight, kSum));
  u64 reached = before;
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    if (reached <= target && target < reached + weights[i]) {
      *token = static_cast<int>(~static_cast<u32>(candidates[own + i]));
    }
    reached += weights[i];
  }
  return true;
}

// Draws among the bins, from the maximum down, that together hold at most kCandidates tokens.
// Returns false, having drawn nothing, where tokens outside them may be kept.
__device__ __forceinline__ bool draw_from_best(const Filters& filters, u32 vocabulary, int* token) {
  const u32 thread = threadIdx.x;
  const bool by_top_k = filters.top_k != kOff;
  const bool base_is_row = filters.by_top_p && !(by_top_k && filters.top_k_first);
  const float* const logits = logits_of_slice();
  const Slice local = slice;

  histogram[thread] = make_uint2(0, 0);
  if (thread == 0) {
    candidate_count = 0;
    top_k_bin = kBins;
  }
  __syncthreads();
#pragma unroll 2
  for (u32 i = thread; i < local.count; i += kThreads) {
    const u32 bin = bin_of(local.max, local.bin_factor, logits[i]);
    if (bin < kBins - 1) atomicAdd(reinterpret_cast<u32*>(histogram) + bin, 1u);
  }
  const u64 weight = base_is_row ? measure(value_of(0x007FFFFFu), true, 0) : 0;
  const u64 base_weight = cluster_reduce(weight, kSum);

  // Tokens in bins 2 t, 2 t + 1 and all before. The last bin, everything far away, was not
  // counted: with it the count is the vocabulary.
  u32 counts[2] = {0, 0};
#pragma unroll
  for (u32 rank = 0; rank < kClusterBlocks; ++rank) {
    const uint2 block_counts = *in_block(&histogram[thread], rank);
    counts[0] += block_counts.x;
    counts[1] += block_counts.y;
  }
  u32 before = static_cast<u32>(block_exclusive_sum(counts[0] + counts[1]));
  u32 fitting = 0;
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    const u32 after = 2 * thread + i == kBins - 1 ? vocabulary : before + counts[i];
    if (before < filters.top_k && filters.top_k <= after) top_k_bin = 2 * thread + i;
    if (after <= kCandidates) fitting = 2 * thread + i + 1;
    before = after;
  }
  const u32 fitting_bins = static_cast<u32>(block_reduce(fitting, kMax));
  const bool has_top_k = by_top_k && top_k_bin < fitting_bins;
  if (fitting_bins == 0 || !(has_top_k || base_is_row)) return false;
  const u32 bins = has_top_k ? top_k_bin + 1 : fitting_bins;

  u32* const first_count = in_block(&candidate_count, 0);
  u64* const first_candidates = in_block(candidates, 0);
#pragma unroll 2
  for (u32 i = thread; i < local.count; i += kThreads) {
    if (bin_of(local.max, local.bin_factor, logits[i]) < bins) {
      first_candidates[atomicAdd(first_count, 1u)] =
          u64{key_of(logits[i])} << 32 | (~(local.begin + i) & 0xFFFFFFFFu);
    }
  }
  cluster_sync();
  if (local.rank == 0) {
    const bool done = draw_sorted(filters, candidate_count, has_top_k, base_weight, token);
    if (!has_top_k && thread < kClusterBlocks) *in_block(&drawn, thread) = done;
  }
  if (has_top_k) return true;  // always drawn: no need to wait
  cluster_sync();
  return drawn != 0;
}

// 64 random bits: the first two words of Philox4x32-10.
__device__ __forceinline__ u64 philox(u64 seed, u64 offset, u32 row) {
  u32 counter[4] = {static_cast<u32>(offset), static_cast<u32>(offset >> 32), row, 0};
  u32 key[2] = {static_cast<u32>(seed), static_cast<u32>(seed >> 32)};
#pragma unroll 1
  for (int round = 0; round < 10; ++round) {
    const u64 product0 = u64{0xD2511F53u} * counter[0];
    const u64 product1 = u64{0xCD9E8D57u} * counter[2];
    counter[0] = static_cast<u32>(product1 >> 32) ^ counter[1] ^ key[0];
    counter[2] = static_cast<u32>(product0 >> 32) ^ counter[3] ^ key[1];
    counter[1] = static_cast<u32>(product1);
    counter[3] = static_cast<u32>(product0);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return u64{counter[1]} << 32 | counter[0];
}

__device__ __forceinline__ float logit_of(const uint4& loaded, u32 i) {
  const u32 words[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
#if defined(CUKILN_LOGITS_BF16)
  return __uint_as_float(i % 2 ? words[i / 2] & 0xFFFF0000u : words[i / 2] << 16);
#elif defined(CUKILN_LOGITS_F16)
  float logit;
  asm("cvt.f32.f16 %0, %1;"
      : "=f"(logit)
      : "h"(static_cast<u16>(i % 2 ? words[i / 2] >> 16 : words[i / 2])));
  return logit;
#else
  return __uint_as_float(words[i]);
#endif
}

// Copies this thread's part of the slice to shared memory; returns its best, as a candidate.
__device__ __forceinline__ u64 load_slice(const Logit* source, u32 begin, u32 count) {
  constexpr u32 kInFlight = 4;
  float* const logits = logits_of_slice();
  u32 done = 0;
  if ((reinterpret_cast<u64>(source) & 15u) == 0) {
    const uint4* const groups = reinterpret_cast<const uint4*>(source);
    const u32 group_count = count / kGroup;
#pragma unroll 1
    for (u32 base = threadIdx.x; base < group_count; base += kInFlight * kThreads) {
      uint4 loaded[kInFlight];
#pragma unroll
      for (u32 i = 0; i < kInFlight; ++i) {
        if (base + i * kThreads < group_count) loaded[i] = __ldg(groups + base + i * kThreads);
      }
#pragma unroll
      for (u32 i = 0; i < kInFlight; ++i) {
        if (base + i * kThreads < group_count) {
          float4* const stored = slice_storage + (base + i * kThreads) * (kGroup / 4);
#pragma unroll
          for (u32 j = 0; j < kGroup; j += 4) {
            stored[j / 4] = make_float4(logit_of(loaded[i], j), logit_of(loaded[i], j + 1),
                                        logit_of(loaded[i], j + 2), logit_of(loaded[i], j + 3));
          }
        }
      }
    }
    done = group_count * kGroup;
  }
#pragma unroll 1
  for (u32 i = done + threadIdx.x; i < count; i += kThreads) {
    uint4 loaded = make_uint4(0, 0, 0, 0);
    loaded.x = sizeof(Logit) == 4 ? __ldg(reinterpret_cast<const u32*>(source) + i)
                                  : __ldg(reinterpret_cast<const u16*>(source) + i);
    logits[i] = logit_of(loaded, 0);
  }
  __syncthreads();

  float best = __uint_as_float(0xFF800000u);
  u32 best_index = kOff;
#pragma unroll 2
  for (u32 i = threadIdx.x; i < count; i += kThreads) {
    const float logit = normalized(logits[i]);
    logits[i] = logit;
    if (best_index == kOff || less(best, logit)) {
      best = logit;
      best_index = i;
    }
  }
  if (best_index == kOff) return 0;
  return u64{key_of(best)} << 32 | (~(begin + best_index) & 0xFFFFFFFFu);
}

}  // namespace sampling
}  // namespace cukiln

extern "C" __global__ void __cluster_dims__(cukiln::sampling::kClusterBlocks, 1, 1)
    __launch_bounds__(cukiln::sampling::kThreads, 2)
        sampler(int* tokens, const cukiln::sampling::Logit* logits,
                cukiln::sampling::u32 vocabulary, cukiln::sampling::i64 row_stride,
                const float* temperature, const int* top_k, const float* top_p, const float* min_p,
                cukiln::sampling::u32 order, cukiln::sampling::PhiloxState* state) {
  using namespace cukiln::sampling;
  const u32 row = blockIdx.x / kClusterBlocks;
  const u32 rank = blockIdx.x % kClusterBlocks;
  const u32 slice_length = (vocabulary + 8 * kClusterBlocks - 1) / (8 * kClusterBlocks) * 8;
  const u32 begin = min(rank * slice_length, vocabulary);
  const u32 count = min(slice_length, vocabulary - begin);
  int* const token = tokens + row;

  u64 offset = 0;
  if (threadIdx.x == 0) {
    offset = state->offset;
    random_bits = philox(state->seed, offset, row);
    slice.begin = begin;
    slice.count = count;
    slice.rank = rank;
    last_round = 0;
  }
  // A thread block's shared memory may be written from outside only once the thread block runs.
  cluster_arrive();
  const u64 own_best = load_slice(logits + row * row_stride + begin, begin, count);
  cluster_wait();
  const u64 best = cluster_reduce(own_best, kMax);
  if (threadIdx.x == 0 && rank == 0) {
    // Every thread block of the row has read the state; the last row moves it on.
    __threadfence();
    const u32 rows = gridDim.x / kClusterBlocks;
    if (atomicInc(&state->ticket, rows - 1) == rows - 1) state->offset = offset + 1;
  }

  const float row_temperature = temperature ? temperature[row] : 1.0f;
  if (!less(0.0f, row_temperature)) {
    if (threadIdx.x == 0 && rank == 0) *token = static_cast<int>(~static_cast<u32>(best));
    return;
  }
  if (threadIdx.x == 0) {
    // At least 2^-126, so that an infinite gap stays infinite.
    float inverse;
    asm("rcp.rn.f32 %0, %1;" : "=f"(inverse) : "f"(row_temperature));
    asm("max.f32 %0, %0, 0f00800000;" : "+f"(inverse));
    slice.max = value_of(static_cast<u32>(best >> 32));
    slice.exponent_factor = product(inverse, -1.44269504088896340736f);
    slice.bin_factor = product(inverse, kBinsPerUnit);
  }
  __syncthreads();

  const int row_top_k = top_k ? top_k[row] : 0;
  const float row_top_p = top_p ? top_p[row] : 1.0f;
  const float row_min_p = min_p ? min_p[row] : 0.0f;
  Filters filters;
  filters.top_k = row_top_k > 0 && static_cast<u32>(row_top_k) < vocabulary ? row_top_k : kOff;
  filters.top_p = less(0.0f, row_top_p) ? row_top_p : 0.0f;
  filters.min_weight =
      less(0.0f, row_min_p)
          ? truncated(product(less(row_min_p, 1.0f) ? row_min_p : 1.0f, kWeightOne))
          : 0;
  filters.by_top_p = less(row_top_p, 1.0f);
  filters.top_k_first = order == kTopKFirst;
  const bool by_top_k = filters.top_k != kOff;
  if ((by_top_k || filters.by_top_p) && draw_from_best(filters, vocabulary, token)) return;

  // Unfiltered, or too flat: then bisect over the logits' bit patterns, one pass a step.
  float lowest = __uint_as_float(0xFF800000u);
  if (by_top_k) lowest = search_threshold(filters.top_k, false);
  if (filters.by_top_p) {
    const float base = filters.top_k_first ? lowest : __uint_as_float(0xFF800000u);
    const u64 base_weight = cluster_reduce(measure(base, true, 0), kSum);
    const float nucleus = search_threshold(weight_limit(filters.top_p, base_weight), true);
    if (less(lowest, nucleus)) lowest = nucleus;
  }
  draw_from_row(lowest, filters.min_weight, token);
}
