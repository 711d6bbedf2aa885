// tcgen05.cuh on sm_90a as a timing twin, for sm100_twin.cu: no MMA computes anything, but each commit
// arrives as late as the tensor core would. A warp of its own stands in for the tensor core: commits queue
// in shared memory, and it arrives at their barriers once the MMAs before them would be complete. TMA,
// mbarriers, schedule and epilogue are the hardware's.
//
// A pair's loads, which on sm_100a arrive at the barrier of the pair's first CTA, arrive here at that barrier's
// place in the CTA that they fill. For the second CTA the twin's warp forwards their bytes to the first.
// machine.cuh is included before, with its loads renamed to sm100_tma_load and sm100_tma_load_multicast.
#pragma once

namespace cukiln {

// Commits that the tensor core has yet to complete. A ring: the issuer waits for loads, which wait for
// commits, so that there are never more than the stages of a tile and both accumulators. An entry is one
// store: clock of the issue << 32 | number of the commit << 24 | CTAs << 16 | barrier / 8.
constexpr u32 kTimingQueue = 32;
constexpr u32 kTimingNumbers = 1 << 8;
constexpr u32 kMaxTimingCtas = 8;  // of a cluster whose commits are multicast
__shared__ volatile u64 timing_queue[kTimingQueue];
__shared__ volatile u32 timing_pushed;  // the issuer's own

// Of the issuer's warp and the tensor core's: the queue can be used.
__device__ __forceinline__ void timing_ready() { named_barrier_sync<64>(15); }

template <u32 kCtas>
__device__ __forceinline__ void tmem_alloc(u32 slot) {
  static_assert(kTimingQueue == 32);
  timing_queue[threadIdx.x % 32] = u64{kTimingNumbers - 1} << 24;
  if (threadIdx.x % 32 == 0) {
    timing_pushed = 0;
    asm volatile("st.shared.u32 [%0], 0;" ::"r"(slot) : "memory");
  }
  timing_ready();
}
template <u32 kCtas>
__device__ __forceinline__ void tmem_dealloc(u32) {}

template <u32 kCtas>
__device__ __forceinline__ void tcgen05_cp_scales(u32, u64) {}

template <u32 kCtas, u32 kRows = 128>
__device__ __forceinline__ void tcgen05_mma(u32, u64, u64, u32, u32, u32, bool, u32 = 0) {}

template <u32 kCtas>
__device__ __forceinline__ void tcgen05_commit(u32 barrier, u32 ctas) {
  const u32 number = timing_pushed;
  timing_queue[number % kTimingQueue] = u64{static_cast<u32>(clock64())} << 32 |
                                        number % kTimingNumbers << 24 |
                                        (kCtas == 1 ? 0 : ctas) << 16 | (barrier & 0x3FFFF) / 8;
  timing_pushed = number + 1;
}

// A barrier's place in this CTA. In a cluster an address has the CTA's rank above its low 24 bits.
__device__ __forceinline__ u32 timing_here(u32 barrier) {
  return address_in_rank(barrier, block_rank_in_cluster());
}

// The tensor core: takes commit after commit, the `number`th of the kernel, and arrives at its barrier, in each
// of the commit's CTAs, when `clocks` have gone by since it was issued, or since the one before was complete at
// `idle_from`.
__device__ __forceinline__ void timing_complete(u32 number, u32 clocks, u32& idle_from) {
  u64 entry;
  do {
    entry = timing_queue[number % kTimingQueue];
  } while ((entry >> 24 & (kTimingNumbers - 1)) != number % kTimingNumbers);
  const u32 issued = static_cast<u32>(entry >> 32);
  if (static_cast<int>(issued - idle_from) > 0) idle_from = issued;
  idle_from += clocks;
  while (static_cast<int>(static_cast<u32>(clock64()) - idle_from) < 0) {
  }
  const u32 barrier = (static_cast<u32>(entry) & 0xFFFF) * 8;
  const u32 ctas = static_cast<u32>(entry) >> 16 & ((1 << kMaxTimingCtas) - 1);
  if (ctas == 0) mbarrier_arrive(timing_here(barrier));
  for (u32 rank = 0; rank < kMaxTimingCtas; ++rank) {
    if (ctas >> rank & 1) mbarrier_arrive(address_in_rank(barrier, rank));
  }
}

// A pair's second CTA: forwards a stage's bytes to the first one's barrier once they have arrived at its own.
__device__ __forceinline__ void timing_forward(u32 barrier, u32 phase, u32 bytes, u32 first_rank) {
  mbarrier_arrive_expect(barrier, bytes);
  mbarrier_wait(barrier, phase);
  asm volatile("mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;" ::"r"(
                   address_in_rank(barrier, first_rank)),
               "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void tmem_load(u32 tmem, u32 (&value)[32]) {
#pragma unroll
  for (u32 i = 0; i < 32; ++i) {
    asm volatile("mov.b32 %0, %1;" : "=r"(value[i]) : "r"(tmem + i));
  }
}
__device__ __forceinline__ void tcgen05_fence_before_sync() { asm volatile("" ::: "memory"); }
__device__ __forceinline__ void tcgen05_fence_after_sync() { asm volatile("" ::: "memory"); }


// machine.cuh's loads of a pair. `barrier` may be that of the pair's first CTA: its place in this CTA counts.
template <u32 kCtas>
__device__ __forceinline__ void tma_load(u32 destination, const TensorMap* map, u32 x, u32 y,
                                         u32 barrier) {
  sm100_tma_load<1>(destination, map, x, y, timing_here(barrier));
}

template <u32 kCtas>
__device__ __forceinline__ void tma_load(u32 destination, const TensorMap* map, u32 x, u32 y,
                                         u32 z, u32 barrier) {
  sm100_tma_load<1>(destination, map, x, y, z, timing_here(barrier));
}

__device__ __forceinline__ void tma_load_multicast(u32 destination, const TensorMap* map, u32 x,
                                                   u32 y, u32 barrier, u32 ctas) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(destination),
      "l"(map), "r"(x), "r"(y), "r"(timing_here(barrier)), "h"(static_cast<u16>(ctas))
      : "memory");
}

__device__ __forceinline__ void tma_load_multicast(u32 destination, const TensorMap* map, u32 x,
                                                   u32 y, u32 z, u32 barrier, u32 ctas) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(destination),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(timing_here(barrier)), "h"(static_cast<u16>(ctas))
      : "memory");
}

}  // namespace cukiln
