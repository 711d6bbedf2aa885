// Clusters beside machine.cuh: their size, the halves of cluster_sync, loads from and stores to
// distributed shared memory (DSMEM). A header that CUKILN_MACHINE names has these functions too.
//
// Source: NVIDIA PTX ISA, mapa, barrier.cluster and st.async.
#pragma once

#include "machine.cuh"

#ifndef CUKILN_MACHINE

namespace cukiln {

__device__ __forceinline__ u32 cluster_size() {
  u32 size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}

// The halves of cluster_sync. A thread waits between two arrivals. Relaxed, an arrival orders no
// writes for others, and spares the fence of the device, some hundred clocks, that a release is.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// For a thread whose warp does not wait with it.
__device__ __forceinline__ void cluster_wait_by_thread() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// Loads four floats at this CTA's address `address` from the shared memory of CTA `rank`.
__device__ __forceinline__ float4 load_dsmem(u32 address, u32 rank) {
  float4 value;
  asm volatile(
      "{\n\t"
      ".reg .u32 there;\n\t"
      "mapa.shared::cluster.u32 there, %4, %5;\n\t"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n\t"
      "}"
      : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
      : "r"(address), "r"(rank)
      : "memory");
  return value;
}

// Stores four floats to the shared memory of a CTA of the cluster, whose mbarrier `barrier` they
// complete 16 bytes of: addresses of address_in_rank. Neither waits, nor orders anything else. The
// stores are of the generic proxy, as are the loads of those that wait for the barrier: no fence.
// Where TMA or MMAs used the memory before, a barrier of the cluster, or the receiver's own
// `empty` and `ready`, came after the last of their reads.
__device__ __forceinline__ void store_dsmem_async(u32 address, u32 barrier, const float4& value) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, "
      "[%1];" ::"r"(address),
      "r"(barrier), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
      : "memory");
}

}  // namespace cukiln

#endif
