// Which local expert each slot of a mixture of experts goes to, for the kernels that sort slots by expert.
// Slots: moe_tiles.cuh.
#pragma once

#include "types.cuh"

namespace cukiln {
namespace nvfp4 {

constexpr u32 kMaxExperts = 1024;
constexpr u32 kNoExpert = 0xFFFF;
constexpr u32 kStagedRows = 8;  // of 32 slots, whose experts a warp loads at a time

struct Routing {
  const int* topk_ids;
  const int* expert_map;
  u32 slots;
  u32 global_experts;
  u32 experts;

  // The local experts of slots first, first + 32, ..., or kNoExpert for an invalid slot or one past `end`.
  // All loads are issued before one of them is used.
  template <u32 kCount>
  __device__ __forceinline__ void lookup_experts(u32 (&found)[kCount], u32 first, u32 end) const {
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) {
      const u32 slot = first + 32 * i;
      found[i] = slot < end ? static_cast<u32>(__ldg(topk_ids + slot)) : ~0u;
    }
    if (expert_map != nullptr) {
#pragma unroll
      for (u32 i = 0; i < kCount; ++i) {
        found[i] =
            found[i] < global_experts ? static_cast<u32>(__ldg(expert_map + found[i])) : ~0u;
      }
    }
    const u32 limit = expert_map != nullptr ? experts : min(experts, global_experts);
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) found[i] = found[i] < limit ? found[i] : kNoExpert;
  }
};

// The lanes with the same expert. By ballots on the eleven bits of an expert (kNoExpert included):
// match.any takes time proportional to the number of different values.
__device__ __forceinline__ u32 lanes_with(u32 expert) {
  u32 lanes = ~0u;
#pragma unroll
  for (u32 bit = 1; bit <= kMaxExperts; bit *= 2) {
    const u32 set = __ballot_sync(~0u, (expert & bit) != 0);
    lanes &= (expert & bit) != 0 ? set : ~set;
  }
  return lanes;
}

// The sum of the values of this lane and of all lower ones.
template <class T>
__device__ __forceinline__ T sum_of_lanes(T value) {
  const u32 lane = threadIdx.x % 32;
#pragma unroll
  for (u32 distance = 1; distance < 32; distance *= 2) {
    const T of_lower = __shfl_up_sync(~0u, value, distance);
    if (lane >= distance) value += of_lower;
  }
  return value;
}

// Calls body(slot, expert) for all slots of a warp, 32 at a time and in order, with kNoExpert for invalid
// slots and past `end`.
template <class Body>
__device__ __forceinline__ void for_slots(const Routing& routing, u32 begin, u32 end, u16* staged,
                                          Body body) {
  const u32 lane = threadIdx.x % 32;
  for (u32 first = begin; first < end; first += 32 * kStagedRows) {
    u32 experts[kStagedRows];
    routing.lookup_experts(experts, first + lane, end);
#pragma unroll
    for (u32 i = 0; i < kStagedRows; ++i) staged[32 * i + lane] = static_cast<u16>(experts[i]);
    __syncwarp();
#pragma unroll 1
    for (u32 i = 0; i < kStagedRows && first + 32 * i < end; ++i) {
      body(first + 32 * i + lane, staged[32 * i + lane]);
      __syncwarp();
    }
  }
}

// What a thread block of kThreads knows of all slots, in shared memory. Each of the thread blocks that sort
// counts all slots, so that none waits for another, and has its share of them.
template <u32 kThreads, class Sum>
struct SlotCounts {
  u32 before[kMaxExperts];  // of each expert, before the block's own slots; then where the next slot goes
  u32 others[kMaxExperts];
  Sum warp_sums[kThreads / 32];
  u16 staged[32 * kStagedRows];
};

// Counts the slots of each expert, those before `begin` apart.
template <u32 kThreads, class Sum>
__device__ __forceinline__ void count_slots(SlotCounts<kThreads, Sum>& counts, const Routing& routing,
                                            u32 begin) {
  for (u32 e = threadIdx.x; e < kMaxExperts; e += kThreads) {
    counts.before[e] = 0;
    counts.others[e] = 0;
  }
  __syncthreads();
  const u32 lane = threadIdx.x % 32;
  for (u32 first = threadIdx.x / 32 * 32 * kStagedRows; first < routing.slots;
       first += kThreads * kStagedRows) {
    u32 experts[kStagedRows];
    routing.lookup_experts(experts, first + lane, routing.slots);
#pragma unroll
    for (u32 i = 0; i < kStagedRows; ++i) {
      if (experts[i] == kNoExpert) continue;
      u32* const count = first + 32 * i + lane < begin ? counts.before : counts.others;
      atomicAdd(count + experts[i], 1u);
    }
  }
  __syncthreads();
}

// Calls place(slot, place) for the slots [begin, end), with -1 for one that is not valid. One warp; `before`
// is the place of the first of them for each expert.
template <u32 kThreads, class Sum, class Place>
__device__ __forceinline__ void place_slots(SlotCounts<kThreads, Sum>& counts, const Routing& routing,
                                            u32 begin, u32 end, Place place) {
  const u32 lower_lanes = (1u << threadIdx.x % 32) - 1;
  for_slots(routing, begin, end, counts.staged, [&](u32 slot, u32 expert) {
    const u32 same = lanes_with(expert);
    const bool is_valid = expert != kNoExpert;
    u32 first = 0;
    if (is_valid) first = counts.before[expert];
    __syncwarp();
    if (is_valid && (same & lower_lanes) == 0) counts.before[expert] = first + __popc(same);
    if (slot < end) place(slot, is_valid ? static_cast<int>(first + __popc(same & lower_lanes)) : -1);
  });
}

}  // namespace nvfp4
}  // namespace cukiln
