// Shared state of a row's thread blocks, and arithmetic of logits: ordered keys, weights, random bits.
#pragma once

#include "sampler_signature.cuh"

namespace cukiln {
namespace sampling {

template <class A, class B>
constexpr bool kIsSame = false;
template <class A>
constexpr bool kIsSame<A, A> = true;

enum FilterOrder : u32 { kTopKFirst = 0, kJoint = 1 };

struct PhiloxState {
  u64 seed;
  u64 offset;
  u32 ticket;
  u32 unused;
};

struct PhiloxSeed {  // of one row
  u64 seed;
  u64 offset;
};

#if defined(CUKILN_LOGITS_BF16) || defined(CUKILN_LOGITS_F16)
using Logit = u16;
using Group = uint2;
#else
using Logit = float;
using Group = uint4;
#endif
constexpr u32 kGroup = 4;  // logits that a thread reads at a time
constexpr u32 kBatch = 4;  // such loads that it has in flight

constexpr u32 kClusterBlocks = 8;
constexpr u32 kThreads = 256;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
constexpr u32 kBlocksPerSm = 3;  // with a fourth the compiler spills
#else
constexpr u32 kBlocksPerSm = 4;
#endif
constexpr u32 kRowThreads = kClusterBlocks * kThreads;
constexpr u32 kCandidates = 2048;               // at most, that rank 0 sorts
constexpr u32 kBins = 512;                      // of a histogram
constexpr u32 kGathered = 32;                   // tokens of a bin that each thread block passes on
constexpr u32 kSamples = 8;                     // of its logits, that a thread keeps for estimates
constexpr u32 kSampleBins = kThreads;
constexpr float kSampleMargin = 0.03f;
constexpr u32 kProposals = 4;  // tokens that are drawn at a time where top-p may refuse them
constexpr u32 kWeighed = 2;    // of those, that a pass over the row weighs what is above
constexpr u32 kMaxima = 8;  // batches of which a thread keeps the largest logit
constexpr u32 kBatchBins = 64;  // of a histogram of batches, a quarter of a power of two of weight wide
constexpr float kWeightOne = 1099511627776.0f;  // 2^40
constexpr u32 kLowestKey = 0x007FFFFFu;         // of -inf
constexpr u32 kLargestKey = 0xFF800000u;        // of inf
constexpr float kLog2 = 0.693147180559945309f;
constexpr float kLargestFloat = 3.40282347e38f;
constexpr u32 kFilterOff = ~0u;

// What a thread block knows of its row.
struct Row {
  const Logit* logits;
  u32 vocabulary;
  u32 whole_groups;       // that are read by vectors: 0 for an unaligned row
  u32 rank;               // of the thread block in its cluster
  float max;
  u32 largest;            // its key
  float temperature;      // 1 where it is greedy
  float min_p;
  float scale;            // -log2(e) / temperature
  float exponent_factor;  // the same, or 0 while tokens are counted
};

struct Filters {
  u32 top_k;       // kFilterOff: off
  u64 top_p;       // in units of 2^-64
  u32 min_p_key;   // min-p as the lowest kept key
  bool by_top_k;
  bool by_top_p;
  bool base_is_row;  // top-p's base set is the whole row
  // What the row takes, so that no register keeps it.
  bool is_greedy;
  bool by_best;       // the top-k set may be sorted
  bool by_threshold;  // by top-k or top-p
};

// A scan: this thread's value, the sum of all threads' before it, and of all threads'.
struct Sum {
  u64 own;
  u64 before;
  u64 total;
};

// Keys low .. high, both included.
struct Interval {
  u32 low;
  u32 high;
};

// The bin of a histogram in which a weight lies, and the weight above that bin.
struct Crossing {
  u64 above;
  u32 bin;
};

// The search for the lowest key >= `floor` with less than `limit` weight above it, or `floor`.
struct Search {
  Interval within;
  u32 floor;
  bool refines;  // `within` is a part of the interval before it
  u64 above;     // weight of the keys above `within`
  u64 limit;
};

// What the first pass tells of a warp's or a thread block's tokens: the largest key, a lower bound of the
// top-k set's keys, and the sum of the weights relative to the largest.
struct alignas(16) Bounds {  // sent at once
  u32 largest;
  u32 lowest;
  float sum;
  u32 unused;
};

// A thread block's tokens in the bin that is divided next, and the weight of those above it. Equals that are
// too many are one key, so many times.
struct Share {
  u64 above;
  u32 count;
  u32 times;
  u32 keys[kGathered];
};

// What the thread blocks of a row share in the first pass over it.
struct SharedRow : Row {
  Bounds bounds[kClusterBlocks];
  Bounds warp_bounds[kThreads / 32];
  u64 warp_sums[kThreads / 32];
  u64 block_sums[2][kClusterBlocks];  // of the cluster; double-buffered
  u64 bounds_arrived;  // transaction barrier, on which the bounds of other thread blocks arrive
  u32 last_round;
};

// What the sampler shares beyond it.
struct SharedState {
  // The weights of batches by their largest logit, in 2^-30 of those of their thread block: of all thread blocks,
  // and of this one. Two bins in each.
  alignas(16) u64 batches[kClusterBlocks][kBatchBins / 2];
  u64 own_batches[kBatchBins / 2];
  Search search;
  Filters filters;
  u64 row_weight;       // where top-p needs it
  u64 nucleus_limit;    // of top-p alone, on the weight above a token
  PhiloxSeed row_seed;  // of the random words
  u32 random_row;       // their third counter word
  u32 own_row;          // of the batch, so that no register keeps it
  PhiloxSeed* seed_of_row;  // where seed and offset are written back; null: the launch's state
  PhiloxState* state_of_rows;
  Share shares[kClusterBlocks];
  u64 kept_weights[kClusterBlocks];
  u32 share_count;
  u32 staged_count;
  Interval share_keys;
  Interval estimates[kClusterBlocks];  // of a threshold
  Interval own_estimate;
  u64 share_weights[kClusterBlocks * kGathered];
  Crossing crossing;
  u64 random_bits[kProposals];
  // Transaction barriers, on which what other thread blocks send arrives: proposals; weights above these.
  u64 proposals_arrived;
  u64 weights_arrived;
  // This thread block's proposals: the thread that reads each, and where in the weight of its tokens it lies.
  u64 own_targets[kProposals];  // all bits set where another thread block draws
  u32 readers[kProposals];
  u64 reader_targets[kProposals];
  u64 proposals[2][kProposals];  // of the cluster: key << 32 | index; double-buffered
  bool are_surely_kept[kProposals];
  u64 proposed;  // the one that was drawn
  float warp_weights_above[kThreads / 32][kWeighed];
  u64 weights_above[2][kClusterBlocks][kProposals];  // double-buffered
  // A candidate is key << 32 | ~index: in descending order the best come first, and among equals the lowest index.
  u64 candidates[kCandidates];  // the row's, in rank 0
  u64 staged[kCandidates + 1];  // this thread block's; later, in rank 0, the weight before each
};

__shared__ SharedRow row;
__shared__ SharedState shared;

// Memory of the staged candidates until there are some: the samples.
__device__ __forceinline__ float* samples() { return reinterpret_cast<float*>(shared.staged); }
// Behind the samples: the weight of each of a thread's first batches, relative to its largest logit so far.
__device__ __forceinline__ float* batch_weights() { return samples() + kSamples * kThreads; }
static_assert((kSamples + kMaxima) * kThreads * sizeof(float) <= kCandidates * sizeof(u64));
// Memory of the row's candidates: a histogram of weights, by key or by thread; and the cluster's.
__device__ __forceinline__ u64* histogram() { return shared.candidates; }
__device__ __forceinline__ u64* cluster_histogram() { return shared.candidates + kBins; }
// In the histogram's place: for each warp, the batches that it reads again.
__device__ __forceinline__ u32* batches_again() { return reinterpret_cast<u32*>(shared.candidates); }
static_assert(kMaxima * kThreads * sizeof(u32) <= 2 * kBins * sizeof(u64));
// Behind them: the largest logit of each of a thread's first batches.
__device__ __forceinline__ float* maxima() { return reinterpret_cast<float*>(shared.candidates + 2 * kBins); }
static_assert(2 * kBins * sizeof(u64) + kMaxima * kThreads * sizeof(float) <= kCandidates * sizeof(u64));

// ---- Arithmetic, in PTX, so that compiler flags do not change which token is drawn.

__device__ __forceinline__ float mul_rn(float a, float b) {
  float result;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ __forceinline__ float add_rn(float a, float b) {
  float result;
  asm("add.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ __forceinline__ float sub_rn(float a, float b) {
  float result;
  asm("sub.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ __forceinline__ float exp2_approx(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ __forceinline__ float log2_approx(float x) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ __forceinline__ float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ __forceinline__ float to_f32_rn(u64 integer) {
  float value;
  asm("cvt.rn.f32.u64 %0, %1;" : "=f"(value) : "l"(integer));
  return value;
}

__device__ __forceinline__ u64 to_u64_rz(float value) {
  u64 integer;
  asm("cvt.rzi.u64.f32 %0, %1;" : "=l"(integer) : "f"(value));
  return integer;
}

// The closest integer of 32 bits; 0 for NaN.
__device__ __forceinline__ u32 to_u32_rz(float value) {
  u32 integer;
  asm("cvt.rzi.u32.f32 %0, %1;" : "=r"(integer) : "f"(value));
  return integer;
}

// If one operand is NaN, returns the other.
__device__ __forceinline__ float max_f32(float a, float b) {
  float larger;
  asm("max.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

__device__ __forceinline__ float min_f32(float a, float b) {
  float smaller;
  asm("min.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
  return smaller;
}

__device__ __forceinline__ float not_a_number() { return __uint_as_float(0x7FC00000u); }

__device__ __forceinline__ float negative_infinity() { return __uint_as_float(0xFF800000u); }

// A positive integer that orders logits. NaN counts as -inf, and -0 as +0.
__device__ __forceinline__ u32 key_of(float logit) {
  const u32 bits = __float_as_uint(add_rn(max_f32(logit, negative_infinity()), 0.0f));
  return bits ^ (static_cast<u32>(static_cast<int>(bits) >> 31) | 0x80000000u);
}

__device__ __forceinline__ float logit_of(u32 key) {
  return __uint_as_float((key & 0x80000000u) ? key ^ 0x80000000u : ~key);
}

// log2 of a token's weight. The NaN gap of equal infinities counts as 0.
__device__ __forceinline__ float log2_weight(const Row& of, u32 key) {
  return min_f32(mul_rn(sub_rn(of.max, logit_of(key)), of.exponent_factor), 0.0f);
}

__device__ __forceinline__ float float_weight(const Row& of, u32 key) {
  return exp2_approx(log2_weight(of, key));
}

__device__ __forceinline__ float weight_of_logit(const Row& of, float logit) {
  return exp2_approx(min_f32(mul_rn(sub_rn(of.max, logit), of.exponent_factor), 0.0f));
}

// A weight in units of 2^-40.
__device__ __forceinline__ u64 in_units(float weight) { return to_u64_rz(mul_rn(weight, kWeightOne)); }

// A token's weight in units of 2^-40.
__device__ __forceinline__ u64 weight_of(const Row& of, u32 key) { return in_units(float_weight(of, key)); }

// Adds a weight to a sum of at most 2^11 of them, whose lower word has the lower 20 bits of each: there are
// no 64-bit atomics in shared memory.
__device__ __forceinline__ void add_packed(u64* sum, u64 weight) {
  u32* const words = reinterpret_cast<u32*>(sum);
  atomicAdd(words, static_cast<u32>(weight) & 0xFFFFFu);
  atomicAdd(words + 1, static_cast<u32>(weight >> 20));
}

__device__ __forceinline__ u64 unpack(u64 sum) { return (sum & 0xFFFFFFFFu) + (sum >> 32 << 20); }

__device__ __forceinline__ bool is_infinite(float logit) {
  return !(logit >= -kLargestFloat && logit <= kLargestFloat);
}

// The finite reference of weights whose largest key is given.
__device__ __forceinline__ float reference_of(u32 largest) {
  return max_f32(logit_of(largest), -kLargestFloat);
}

// 64 random bits: the first two words of Philox4x32-10.
__device__ __forceinline__ u64 philox(u64 seed, u64 offset, u32 subsequence, u32 number) {
  u32 counter[4] = {static_cast<u32>(offset), static_cast<u32>(offset >> 32), subsequence, number};
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

}  // namespace sampling
}  // namespace cukiln
