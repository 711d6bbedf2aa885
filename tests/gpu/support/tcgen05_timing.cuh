// tcgen05.cuh on sm_90a as a timing twin, for sm100_twin.cu: no MMA computes anything, but each commit
// arrives as late as the tensor core would. A warp of its own stands in for the tensor core: commits queue
// in shared memory, and it arrives at their barriers once the MMAs before them would be complete. TMA,
// mbarriers, schedule and epilogue are the hardware's. One CTA only: a pair's loads are sm_100a's.
#pragma once

namespace cukiln {

// Commits that the tensor core has yet to complete. A ring: the issuer waits for loads, which wait for
// commits, so that there are never more than the stages of a tile and both accumulators. An entry is one
// store: clock of the issue << 32 | number of the commit << 20 | barrier.
constexpr u32 kTimingQueue = 32;
constexpr u32 kTimingNumbers = 1 << 12;
__shared__ volatile u64 timing_queue[kTimingQueue];
__shared__ volatile u32 timing_pushed;  // the issuer's own

template <u32 kCtas>
__device__ __forceinline__ void tmem_alloc(u32 slot) {
  if (threadIdx.x % 32 == 0) asm volatile("st.shared.u32 [%0], 0;" ::"r"(slot) : "memory");
}
template <u32 kCtas>
__device__ __forceinline__ void tmem_dealloc(u32) {}

template <u32 kCtas>
__device__ __forceinline__ void tcgen05_cp_scales(u32, u64) {}

template <u32 kCtas>
__device__ __forceinline__ void tcgen05_mma(u32, u64, u64, u32, u32, u32, bool) {}

template <u32 kCtas>
__device__ __forceinline__ void tcgen05_commit(u32 barrier, u32) {
  const u32 number = timing_pushed;
  timing_queue[number % kTimingQueue] =
      u64{static_cast<u32>(clock64())} << 32 | number % kTimingNumbers << 20 | barrier;
  timing_pushed = number + 1;
}

__device__ __forceinline__ void timing_init() {
  timing_pushed = 0;
  for (u32 i = 0; i < kTimingQueue; ++i) timing_queue[i] = u64{kTimingNumbers - 1} << 20;
}

// The tensor core: takes commit after commit, the `number`th of the kernel, and arrives at its barrier when
// `clocks` have gone by since it was issued, or since the one before was complete at `idle_from`.
__device__ __forceinline__ void timing_complete(u32 number, u32 clocks, u32& idle_from) {
  u64 entry;
  do {
    entry = timing_queue[number % kTimingQueue];
  } while ((entry >> 20 & (kTimingNumbers - 1)) != number % kTimingNumbers);
  const u32 issued = static_cast<u32>(entry >> 32);
  if (static_cast<int>(issued - idle_from) > 0) idle_from = issued;
  idle_from += clocks;
  while (static_cast<int>(static_cast<u32>(clock64()) - idle_from) < 0) {
  }
  mbarrier_arrive(static_cast<u32>(entry) & 0xFFFFF);
}

__device__ __forceinline__ void tmem_load(u32 tmem, u32 (&value)[32]) {
#pragma unroll
  for (u32 i = 0; i < 32; ++i) {
    asm volatile("mov.b32 %0, %1;" : "=r"(value[i]) : "r"(tmem + i));
  }
}
__device__ __forceinline__ void tcgen05_fence_before_sync() { asm volatile("" ::: "memory"); }
__device__ __forceinline__ void tcgen05_fence_after_sync() { asm volatile("" ::: "memory"); }

}  // namespace cukiln
