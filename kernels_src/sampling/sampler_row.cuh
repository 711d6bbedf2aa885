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

#if defined(CUKILN_LOGITS_BF16) || defined(CUKILN_LOGITS_F16)
using Logit = u16;
using Group = uint2;
#else
using Logit = float;
using Group = uint4;
#endif
constexpr u32 kGroup = 4;  // logits that a thread reads at a time

constexpr u32 kClusterBlocks = 8;
constexpr u32 kThreads = 256;
constexpr u32 kRowThreads = kClusterBlocks * kThreads;
constexpr u32 kCandidates = 2048;               // at most, that rank 0 sorts
constexpr u32 kNucleus = kCandidates / 2;       // candidates wanted when top-k is off
constexpr float kWeightOne = 1099511627776.0f;  // 2^40
constexpr float kLog2 = 0.693147180559945309f;
constexpr u32 kFilterOff = ~0u;

// What a thread block knows of its row.
struct Row {
  const Logit* logits;
  u32 vocabulary;
  u32 rank;               // of the thread block in its cluster
  float max;
  float exponent_factor;  // -log2(e) / temperature
};

struct Filters {
  u32 top_k;       // kFilterOff: off
  u64 top_p;       // in units of 2^-64
  u32 min_p_key;   // min-p as the lowest kept key
  bool by_top_k;
  bool by_top_p;
  bool base_is_row;  // top-p's base set is the whole row
};

// A scan: this thread's value, the sum of all threads' before it, and of all threads'.
struct Sum {
  u64 own;
  u64 before;
  u64 total;
};

__shared__ Row row;
__shared__ u32 row_largest;  // key
__shared__ u32 row_lowest;   // a lower bound of the top-k set's keys
__shared__ u64 random_bits;
__shared__ u64 warp_sums[kThreads / 32];
__shared__ u64 block_sums[2][kClusterBlocks];  // of the cluster; double-buffered
__shared__ u32 last_round;
// A candidate is key << 32 | ~index: in descending order the best come first, and among equals the
// lowest index.
__shared__ u64 staged[kCandidates + 1];  // this thread block's; later, in rank 0, the weight before each
__shared__ u32 staged_count;
__shared__ u64 candidates[kCandidates];  // the row's, in rank 0

// ---- Arithmetic, in PTX, so that compiler flags do not change which token is drawn.

__device__ __forceinline__ float mul_rn(float a, float b) {
  float result;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ __forceinline__ u64 to_u64_rz(float value) {
  u64 integer;
  asm("cvt.rzi.u64.f32 %0, %1;" : "=l"(integer) : "f"(value));
  return integer;
}

// If one operand is NaN, returns the other.
__device__ __forceinline__ float max_f32(float a, float b) {
  float larger;
  asm("max.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

// A positive integer that orders logits. NaN counts as -inf, and -0 as +0.
__device__ __forceinline__ u32 key_of(float logit) {
  float normal = max_f32(logit, __uint_as_float(0xFF800000u));
  asm("add.rn.f32 %0, %0, 0f00000000;" : "+f"(normal));
  const u32 bits = __float_as_uint(normal);
  return bits ^ (static_cast<u32>(static_cast<int>(bits) >> 31) | 0x80000000u);
}

__device__ __forceinline__ float logit_of(u32 key) {
  return __uint_as_float((key & 0x80000000u) ? key ^ 0x80000000u : ~key);
}

// log2 of a token's weight. The NaN gap of equal infinities counts as 0.
__device__ __forceinline__ float log2_weight(const Row& of, u32 key) {
  float gap, exponent;
  asm("sub.rn.f32 %0, %1, %2;" : "=f"(gap) : "f"(of.max), "f"(logit_of(key)));
  asm("min.f32 %0, %1, 0f00000000;" : "=f"(exponent) : "f"(mul_rn(gap, of.exponent_factor)));
  return exponent;
}

// A token's weight in units of 2^-40.
__device__ __forceinline__ u64 weight_of(const Row& of, u32 key) {
  float weight;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(weight) : "f"(log2_weight(of, key)));
  return to_u64_rz(mul_rn(weight, kWeightOne));
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

}  // namespace sampling
}  // namespace cukiln
