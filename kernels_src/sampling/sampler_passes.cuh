// Reductions over the thread block and the cluster, and passes over a row's logits.
#pragma once

#include "sampler_row.cuh"

namespace cukiln {
namespace sampling {

// ---- Reductions. Every thread of the block, or of the cluster, calls these. Functions with several
// callers are not inlined, here and below: that would dominate the compile time.

__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// The same shared variable in another thread block of the cluster (DSMEM).
template <class T>
__device__ __forceinline__ T* in_rank(T* variable, u32 rank) {
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

// block_sum over the cluster: thread blocks in the order of their ranks.
__device__ __noinline__ Sum cluster_sum(u64 value) {
  Sum sum = block_sum(value);
  const u32 round = last_round ^ 1;
  u64* const each = block_sums[round];
  if (threadIdx.x < kClusterBlocks) *in_rank(each + row.rank, threadIdx.x) = sum.total;
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

// A lower bound of the nth largest of the threads' keys: its upper 16 bits.
__device__ __forceinline__ u32 block_nth_largest(u32 key, u32 nth) {
  u32 found = 0;
#pragma unroll 1
  for (u32 bit = 1u << 31; bit >= 1u << 16; bit /= 2) {
    if (__syncthreads_count(key >= (found | bit)) >= nth) found |= bit;
  }
  return found;
}

// ---- Passes over the row. Warps take groups of four logits round-robin over the cluster's thread blocks,
// so that no region of the vocabulary belongs to one thread block.

__device__ __forceinline__ u32 first_group(u32 rank) {
  return (threadIdx.x / 32 * kClusterBlocks + rank) * 32 + threadIdx.x % 32;
}

// The number of groups that are read by vectors: 0 for an unaligned row.
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
  kLargest,  // returns the largest key, 0 for none
  kWeigh,    // returns the weight of the tokens with keys >= `lowest` > 0
  kStage,    // the same, and stages them as candidates
  kFind,     // returns the token at which that weight exceeds `target`, key << 32 | index
};

// One pass over this thread's logits.
__device__ __noinline__ u64 scan_row(Pass pass, u32 lowest, u64 target) {
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
        keys = make_uint4(keys.y, keys.z, keys.w, 0);  // 0 beyond the row: less than every key
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

// The weight of the row's tokens with keys >= `lowest` > 0.
__device__ __noinline__ Sum weigh_row(u32 lowest) { return cluster_sum(scan_row(kWeigh, lowest, 0)); }

}  // namespace sampling
}  // namespace cukiln
