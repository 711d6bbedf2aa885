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
// Limits: 1 <= vocabulary <= 2^22. Weights are integers in units of 2^-40: a token less likely
//   than the best by more than that is never drawn.
// NaN and inf: a NaN logit counts as -inf. +inf logits share the whole probability. In a row of
//   nothing but -inf and NaN all tokens are equal.
// Launch: block (1024, 1, 1), grid (rows, 1, 1), no dynamic shared memory.
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
using LogitBits = u16;
#else
using Logit = float;
using LogitBits = u32;
#endif

constexpr u32 kThreads = 1024;
constexpr u32 kWarps = kThreads / 32;
constexpr u32 kGroupElements = 16 / sizeof(Logit);
constexpr u32 kGroupsInFlight = 16 / kGroupElements;
constexpr u32 kBins = 2 * kThreads;
constexpr float kBinsPerUnit = 64.0f;
constexpr u32 kCandidates = 4 * kThreads;
constexpr u32 kAll = ~0u;
constexpr float kWeightOne = 1099511627776.0f;  // 2^40

struct Row {
  const Logit* logits;
  u32 vocabulary;
  u32 max_key;
  float max;
  float inverse_temperature;
};

struct Filters {
  u32 top_k;  // kAll: off
  float top_p;
  u64 min_weight;  // 0: off
  bool by_top_p;
  bool top_k_first;
};

// A thread block has one row, and its functions share this.
__shared__ Row shared_row;
__shared__ u64 candidates[kCandidates];  // key << 32 | ~index
__shared__ u32 histogram[kBins];
__shared__ u64 scratch[kWarps];
__shared__ u64 random_bits;
__shared__ u64 owner_residue;
__shared__ u32 owner;
__shared__ u32 candidate_count;
__shared__ u32 top_k_bin;

// ---- Keys: unsigned integers in the order of the logits. 0 is none of them and marks padding.
// ----

__device__ __forceinline__ u32 key_of(float logit) {
  u32 bits = __float_as_uint(logit);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) bits = 0xFF800000u;
  if (bits == 0x80000000u) bits = 0;
  return bits ^ (static_cast<u32>(static_cast<int>(bits) >> 31) | 0x80000000u);
}

__device__ __forceinline__ float value_of(u32 key) {
  return __uint_as_float((key & 0x80000000u) ? key ^ 0x80000000u : ~key);
}

// Arithmetic is spelt in PTX, so that compiler flags do not change which token is drawn.

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

__device__ __forceinline__ float distance_of(const Row& row, u32 key) {
  float distance;
  asm("{\n\t"
      ".reg .f32 gap;\n\t"
      "sub.rn.f32 gap, %1, %2;\n\t"
      "mul.rn.f32 %0, gap, %3;\n\t"
      "}"
      : "=f"(distance)
      : "f"(row.max), "f"(value_of(key)), "f"(row.inverse_temperature));
  return key == row.max_key ? 0.0f : distance;
}

__device__ __forceinline__ float scaled(float value, float factor) {
  float product;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(value), "f"(factor));
  return product;
}

__device__ __forceinline__ u64 truncated(float value) {
  u64 integer;
  asm("cvt.rzi.u64.f32 %0, %1;" : "=l"(integer) : "f"(value));
  return integer;
}

__device__ __forceinline__ u32 bin_of(const Row& row, u32 key) {
  if (key == 0) return kBins;
  u32 bin;
  asm("cvt.rzi.u32.f32 %0, %1;" : "=r"(bin) : "f"(scaled(distance_of(row, key), kBinsPerUnit)));
  return min(bin, kBins - 1);
}

// Weight in units of 2^-40.
__device__ __forceinline__ u64 weight_of(const Row& row, u32 key) {
  float weight;
  asm("ex2.approx.ftz.f32 %0, %1;"
      : "=f"(weight)
      : "f"(scaled(distance_of(row, key), -1.44269504088896340736f)));
  return truncated(scaled(weight, kWeightOne));
}

// What a token contributes to a draw; `threshold` is at least 1, which leaves padding out.
__device__ __forceinline__ u64 kept_weight(u64 weight, u32 key, u32 threshold, u64 min_weight) {
  return key >= threshold && weight >= min_weight ? weight : 0;
}

// Sorts by key, and among equal keys the lowest index first.
__device__ __forceinline__ u64 pack_candidate(u32 key, u32 index) {
  return u64{key} << 32 | (~index & 0xFFFFFFFFu);
}

// ---- Block-wide operations. Every thread calls them and every thread gets the result. They and
// the pass below are not inlined: each is called from many places and would dominate the compile
// time. ----

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
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  value = warp_reduce(scratch[threadIdx.x % 32], reduction);
  __syncthreads();
  return value;
}

__device__ __noinline__ u64 warp_inclusive_sum(u64 value) {
#pragma unroll 1
  for (u32 step = 1; step < 32; step *= 2) {
    const u64 lower = __shfl_up_sync(~0u, value, step);
    if (threadIdx.x % 32 >= step) value += lower;
  }
  return value;
}

// Sum of the values of lower threads.
__device__ __noinline__ u64 block_exclusive_sum(u64 value) {
  const u32 warp = threadIdx.x / 32;
  const u64 inclusive = warp_inclusive_sum(value);
  if (threadIdx.x % 32 == 31) scratch[warp] = inclusive;
  __syncthreads();
  const u64 warps = warp_inclusive_sum(scratch[threadIdx.x % 32]);
  const u64 lower_warps = __shfl_sync(~0u, warps, warp == 0 ? 0 : warp - 1);
  __syncthreads();
  return (warp == 0 ? 0 : lower_warps) + inclusive - value;
}

// ---- Passes over a row. Group g of kGroupElements tokens belongs to thread g % kThreads. ----

__device__ __forceinline__ u32 group_count(const Row& row) {
  return (row.vocabulary + kGroupElements - 1) / kGroupElements;
}

__device__ __forceinline__ uint4 load_group(const Row& row, u32 group) {
  const Logit* first = row.logits + group * kGroupElements;
  const bool aligned = (reinterpret_cast<u64>(first) & 15u) == 0;
  if (aligned && (group + 1) * kGroupElements <= row.vocabulary) {
    return __ldg(reinterpret_cast<const uint4*>(first));
  }
  // Element by element, shifting through the vector so that the loop stays rolled up.
  uint4 words = make_uint4(0, 0, 0, 0);
#pragma unroll 1
  for (u32 i = 0; i < kGroupElements; ++i) {
    u32 bits = 0;
    if (group * kGroupElements + i < row.vocabulary) {
      bits = *reinterpret_cast<const LogitBits*>(first + i);
    }
#if defined(CUKILN_LOGITS_BF16) || defined(CUKILN_LOGITS_F16)
    words.x = __funnelshift_r(words.x, words.y, 16);
    words.y = __funnelshift_r(words.y, words.z, 16);
    words.z = __funnelshift_r(words.z, words.w, 16);
    words.w = words.w >> 16 | bits << 16;
#else
    words = make_uint4(words.y, words.z, words.w, bits);
#endif
  }
  return words;
}

__device__ __forceinline__ void keys_of_group(const Row& row, u32 group, uint4 loaded,
                                              u32 (&keys)[kGroupElements]) {
  const u32 words[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
  for (u32 i = 0; i < kGroupElements; ++i) {
    float logit;
#if defined(CUKILN_LOGITS_BF16)
    logit = __uint_as_float(i % 2 ? words[i / 2] & 0xFFFF0000u : words[i / 2] << 16);
#elif defined(CUKILN_LOGITS_F16)
    asm("cvt.f32.f16 %0, %1;"
        : "=f"(logit)
        : "h"(static_cast<u16>(words[i / 2] >> (16 * (i % 2)))));
#else
    logit = __uint_as_float(words[i]);
#endif
    keys[i] = group * kGroupElements + i < row.vocabulary ? key_of(logit) : 0;
  }
}

enum Pass : u32 {
  kFindBest,   // returns the thread's largest (key << 32 | ~index)
  kCount,      // returns the number of its tokens with keys from `threshold` up
  kWeigh,      // returns their weight
  kHistogram,  // counts its tokens in `histogram`; returns their weight if `threshold` is not kAll
  kCollect,    // appends its tokens in the first `threshold` bins to `candidates`
};

// One pass of the thread over its share of the row.
__device__ __noinline__ u64 scan_row(Pass pass, u32 threshold, u64 min_weight) {
  const Row row = shared_row;
  const u32 groups = group_count(row);
  u64 result = 0;
  for (u32 base = threadIdx.x; base < groups; base += kGroupsInFlight * kThreads) {
    uint4 loaded[kGroupsInFlight];
#pragma unroll
    for (u32 i = 0; i < kGroupsInFlight; ++i) {
      const u32 group = base + i * kThreads;
      if (group < groups) loaded[i] = load_group(row, group);
    }
#pragma unroll 1
    for (u32 group = base; group < min(groups, base + kGroupsInFlight * kThreads);
         group += kThreads) {
      u32 keys[kGroupElements];
      keys_of_group(row, group, loaded[0], keys);
#pragma unroll
      for (u32 i = 0; i + 1 < kGroupsInFlight; ++i) loaded[i] = loaded[i + 1];
      if (pass == kFindBest) {
#pragma unroll
        for (u32 i = 0; i < kGroupElements; ++i) {
          result = max(result, pack_candidate(keys[i], group * kGroupElements + i));
        }
      }
      if (pass == kCount) {
#pragma unroll
        for (u32 i = 0; i < kGroupElements; ++i) result += keys[i] >= threshold;
      }
      if (pass == kWeigh || (pass == kHistogram && threshold != kAll)) {
#pragma unroll
        for (u32 i = 0; i < kGroupElements; ++i) {
          result += kept_weight(weight_of(row, keys[i]), keys[i], threshold, min_weight);
        }
      }
      if (pass == kHistogram) {
#pragma unroll
        for (u32 i = 0; i < kGroupElements; ++i) {
          const u32 bin = bin_of(row, keys[i]);
          if (bin < kBins - 1) atomicAdd(&histogram[bin], 1u);
        }
      }
      if (pass == kCollect) {
#pragma unroll
        for (u32 i = 0; i < kGroupElements; ++i) {
          if (bin_of(row, keys[i]) < threshold) {
            candidates[atomicAdd(&candidate_count, 1u)] =
                pack_candidate(keys[i], group * kGroupElements + i);
          }
        }
      }
    }
  }
  return result;
}

// The lowest key with fewer than `limit` tokens (kCount), or less than `limit` weight (kWeigh),
// above.
__device__ __noinline__ u32 search_threshold(Pass pass, u64 limit) {
  u32 low = 1;
  u32 high = shared_row.max_key;
  while (low < high) {
    const u32 middle = low + (high - low) / 2;
    if (block_reduce(scan_row(pass, middle + 1, 0), kSum) < limit) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

// Draws from the tokens with keys from `threshold` up, in the order (thread, group, element).
__device__ __noinline__ void draw_from_row(u32 threshold, u64 min_weight, int* token) {
  const Row row = shared_row;
  const u64 weight = scan_row(kWeigh, threshold, min_weight);
  const u64 before = block_exclusive_sum(weight);
  const u64 target = __umul64hi(random_bits, block_reduce(weight, kSum));
  if (before <= target && target < before + weight) {
    owner = threadIdx.x;
    owner_residue = target - before;
  }
  __syncthreads();
  if (threadIdx.x / 32 != owner / 32) return;

  // The owner's warp walks the owner's groups, 32 at a time.
  u64 residue = owner_residue;
  const u32 groups = group_count(row);
  for (u32 base = owner; base < groups; base += 32 * kThreads) {
    const u32 group = base + (threadIdx.x % 32) * kThreads;
    u32 keys[kGroupElements] = {};
    if (group < groups) keys_of_group(row, group, load_group(row, group), keys);
    u64 weights[kGroupElements];
    u64 group_weight = 0;
#pragma unroll
    for (u32 i = 0; i < kGroupElements; ++i) {
      weights[i] = kept_weight(weight_of(row, keys[i]), keys[i], threshold, min_weight);
      group_weight += weights[i];
    }
    const u64 inclusive = warp_inclusive_sum(group_weight);
    u64 reached = inclusive - group_weight;
#pragma unroll
    for (u32 i = 0; i < kGroupElements; ++i) {
      if (reached <= residue && residue < reached + weights[i]) {
        *token = static_cast<int>(group * kGroupElements + i);
      }
      reached += weights[i];
    }
    const u64 walked = __shfl_sync(~0u, inclusive, 31);
    if (residue < walked) return;
    residue -= walked;
  }
}

// ---- The few best tokens, in shared memory. ----

// Sorts candidates[0, count), descending.
__device__ __forceinline__ void sort_candidates(u32 count) {
  u32 size = 2;
  while (size < count) size *= 2;
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
  const u64 fraction = truncated(scaled(top_p, 18446744073709551616.0f));
  return max(__umul64hi(fraction, base_weight), u64{1});
}

// Draws among the candidates: the bins, from the largest logit down, that hold at most
// kCandidates tokens. Returns false, having drawn nothing, where the kept set may reach beyond
// them.
__device__ __forceinline__ bool draw_from_candidates(const Filters& filters, int* token) {
  const u32 thread = threadIdx.x;
  const bool by_top_k = filters.top_k != kAll;
  const bool base_is_row = filters.by_top_p && !(by_top_k && filters.top_k_first);

  histogram[2 * thread] = 0;
  histogram[2 * thread + 1] = 0;
  if (thread == 0) {
    candidate_count = 0;
    top_k_bin = kBins;
  }
  __syncthreads();
  u64 base_weight = scan_row(kHistogram, base_is_row ? 1 : kAll, 0);
  __syncthreads();

  // The last bin, everything far away, is not counted: with it the count is the vocabulary.
  const u32 even_count = histogram[2 * thread];
  const u32 odd_count = histogram[2 * thread + 1];
  const u32 before = static_cast<u32>(block_exclusive_sum(even_count + odd_count));
  const u32 after_even = before + even_count;
  const u32 after_odd = thread == kThreads - 1 ? shared_row.vocabulary : after_even + odd_count;
  if (before < filters.top_k && filters.top_k <= after_even) top_k_bin = 2 * thread;
  if (after_even < filters.top_k && filters.top_k <= after_odd) top_k_bin = 2 * thread + 1;
  const u32 fitting = after_even <= kCandidates ? 2 * thread + 1 + (after_odd <= kCandidates) : 0;
  const u32 fitting_bins = static_cast<u32>(block_reduce(fitting, kMax));
  const bool top_k_fits = by_top_k && top_k_bin < fitting_bins;
  if (fitting_bins == 0 || !(top_k_fits || base_is_row)) return false;

  scan_row(kCollect, top_k_fits ? top_k_bin + 1 : fitting_bins, 0);
  __syncthreads();
  const u32 count = candidate_count;
  sort_candidates(count);

  // Thread t holds candidates 4 t .. 4 t + 3.
  const Row row = shared_row;
  u32 threshold = top_k_fits ? static_cast<u32>(candidates[filters.top_k - 1] >> 32) : 1;
  u32 keys[4];
  u64 weights[4];
  u64 all_weight = 0;
  u64 top_k_weight = 0;
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    keys[i] = 4 * thread + i < count ? static_cast<u32>(candidates[4 * thread + i] >> 32) : 0;
    weights[i] = keys[i] != 0 ? weight_of(row, keys[i]) : 0;
    all_weight += weights[i];
    top_k_weight += keys[i] >= threshold ? weights[i] : 0;
  }
  const u64 weight_before = block_exclusive_sum(all_weight);
  if (filters.by_top_p) {
    base_weight = block_reduce(base_is_row ? base_weight : top_k_weight, kSum);
    const u64 limit = weight_limit(filters.top_p, base_weight);
    if (!top_k_fits && block_reduce(all_weight, kSum) < limit) return false;
    // The last candidate with less than `limit` above it; its ties stay with it.
    u64 above = weight_before;
    u32 last = 0;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      if (4 * thread + i < count && above < limit) last = 4 * thread + i;
      above += weights[i];
    }
    threshold = max(threshold, static_cast<u32>(candidates[block_reduce(last, kMax)] >> 32));
  }

  // The kept candidates come first in the order, so all the weight before one of them is kept.
  u64 kept = 0;
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    weights[i] = kept_weight(weights[i], keys[i], threshold, filters.min_weight);
    kept += weights[i];
  }
  const u64 target = __umul64hi(random_bits, block_reduce(kept, kSum));
  u64 reached = weight_before;
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    if (reached <= target && target < reached + weights[i]) {
      *token = static_cast<int>(~static_cast<u32>(candidates[4 * thread + i]));
    }
    reached += weights[i];
  }
  return true;
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

}  // namespace sampling
}  // namespace cukiln

extern "C" __global__ void __launch_bounds__(cukiln::sampling::kThreads)
    sampler(int* tokens, const cukiln::sampling::Logit* logits, cukiln::sampling::u32 vocabulary,
            cukiln::sampling::i64 row_stride, const float* temperature, const int* top_k,
            const float* top_p, const float* min_p, cukiln::sampling::u32 order,
            cukiln::sampling::PhiloxState* state) {
  using namespace cukiln::sampling;
  const u32 row_index = blockIdx.x;
  int* const token = tokens + row_index;

  u64 offset = 0;
  if (threadIdx.x == 0) {
    offset = state->offset;
    random_bits = philox(state->seed, offset, row_index);
    shared_row.logits = logits + row_index * row_stride;
    shared_row.vocabulary = vocabulary;
  }
  __syncthreads();
  const u64 best = block_reduce(scan_row(kFindBest, 1, 0), kMax);

  const float row_temperature = temperature ? temperature[row_index] : 1.0f;
  if (!less(0.0f, row_temperature)) {
    if (threadIdx.x == 0) *token = static_cast<int>(~static_cast<u32>(best));
  } else {
    if (threadIdx.x == 0) {
      shared_row.max_key = static_cast<u32>(best >> 32);
      shared_row.max = value_of(shared_row.max_key);
      asm("rcp.rn.f32 %0, %1;" : "=f"(shared_row.inverse_temperature) : "f"(row_temperature));
    }
    __syncthreads();
    const int row_top_k = top_k ? top_k[row_index] : 0;
    const float row_top_p = top_p ? top_p[row_index] : 1.0f;
    const float row_min_p = min_p ? min_p[row_index] : 0.0f;
    Filters filters;
    filters.top_k = row_top_k > 0 && row_top_k < vocabulary ? row_top_k : kAll;
    filters.top_p = less(0.0f, row_top_p) ? row_top_p : 0.0f;
    filters.min_weight =
        less(0.0f, row_min_p)
            ? truncated(scaled(less(row_min_p, 1.0f) ? row_min_p : 1.0f, kWeightOne))
            : 0;
    filters.by_top_p = less(row_top_p, 1.0f);
    filters.top_k_first = order == kTopKFirst;
    const bool by_top_k = filters.top_k != kAll;
    const bool unfiltered = !by_top_k && !filters.by_top_p;
    if (unfiltered || !draw_from_candidates(filters, token)) {
      u32 threshold = 1;
      // A flat row: find the thresholds by bisection over the keys, one pass over the row a step.
      if (by_top_k) threshold = search_threshold(kCount, filters.top_k);
      if (filters.by_top_p) {
        const u32 base = filters.top_k_first ? threshold : 1;
        const u64 limit =
            weight_limit(filters.top_p, block_reduce(scan_row(kWeigh, base, 0), kSum));
        threshold = max(threshold, search_threshold(kWeigh, limit));
      }
      draw_from_row(threshold, filters.min_weight, token);
    }
  }

  if (threadIdx.x == 0) {
    // Every thread block has read the offset before it takes its ticket.
    __threadfence();
    if (atomicInc(&state->ticket, gridDim.x - 1) == gridDim.x - 1) state->offset = offset + 1;
  }
}
