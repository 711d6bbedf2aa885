// PTX wrappers that every GEMM kernel uses: shared-memory addresses, mbarriers, clusters, TMA, atomics, two
// roundings.
// One function for each PTX instruction, named after it or after its CUTLASS wrapper.
//
// CUKILN_MACHINE, when defined, names a header with the same functions, and those of dependent_launch.cuh,
// that is included instead: the tests' CPU emulator.
//
// Shared-memory addresses are 32 bits. `shared_address` gives one of this CTA (shared::cta);
// `address_in_rank` maps it to the same place in another CTA of the cluster (shared::cluster), which only
// the functions that say so accept.
// Source: NVIDIA PTX ISA, sections on mbarrier, cp.async.bulk.tensor, cvt and barrier.cluster.
#pragma once

#include "types.cuh"

namespace cukiln {

// A CUtensorMap, passed as a __grid_constant__ parameter: TMA needs its address, so a kernel never copies
// it.
struct alignas(64) TensorMap {
  u64 opaque[16];
};

}  // namespace cukiln

#ifdef CUKILN_MACHINE
#include CUKILN_MACHINE
#else

namespace cukiln {

__device__ __forceinline__ u8* dynamic_shared_memory() {
  extern __shared__ __align__(1024) u8 bytes[];
  return bytes;
}

__device__ __forceinline__ u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// True in one thread of a converged warp, the same thread at every call.
__device__ __forceinline__ bool elect_one_sync() {
  u32 elected;
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "elect.sync _|p, 0xFFFFFFFF;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t"
      "}"
      : "=r"(elected));
  return elected != 0;
}

__device__ __forceinline__ u32 block_rank_in_cluster() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ u32 address_in_rank(u32 shared, u32 rank) {
  u32 address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}

// Barrier over all threads of the cluster, with release and acquire.
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n\t"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// Named barrier `id` of kThreads threads, whole warps. 0 is __syncthreads's.
template <u32 kThreads>
__device__ __forceinline__ void named_barrier_sync(u32 id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

// Likewise, without waiting for the others.
template <u32 kThreads>
__device__ __forceinline__ void named_barrier_arrive(u32 id) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes mbarrier_init visible to the cluster and to TMA. A barrier for the threads must follow.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives and raises the phase's expected transaction count by `bytes`, which TMA completes.
__device__ __forceinline__ void mbarrier_arrive_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Arrives at a barrier of any CTA of the cluster: `barrier` is an address of address_in_rank. It releases to this
// CTA alone, which orders what needs no more between CTAs: loads of tensor memory that have completed. Release
// to the cluster would be a fence of the device, some 650 clocks.
__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Waits until the phase of this parity has completed. Phases of a new barrier alternate 0, 1, 0, …; waiting
// for parity 1 on a new barrier returns immediately.
__device__ __forceinline__ void mbarrier_wait(u32 barrier, u32 parity) {
  asm volatile(
      "{\n\t"
      ".reg .pred done;\n\t"
      "WAIT:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
      "@!done bra WAIT;\n\t"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Prefetches a map before its first use.
__device__ __forceinline__ void prefetch_tensormap(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// TMA load: the map's box at coordinates (x, y[, z]) to shared memory, zeros where it exceeds the tensor.
// With kCtas == 2, a CTA pair, `barrier` may be the peer's, as address_in_rank gives it.
template <u32 kCtas>
__device__ __forceinline__ void tma_load(u32 destination, const TensorMap* map, u32 x, u32 y,
                                         u32 barrier) {
  if constexpr (kCtas == 2) {
    asm volatile(
        "cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(destination),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(destination),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
  }
}

template <u32 kCtas>
__device__ __forceinline__ void tma_load(u32 destination, const TensorMap* map, u32 x, u32 y,
                                         u32 z, u32 barrier) {
  if constexpr (kCtas == 2) {
    asm volatile(
        "cp.async.bulk.tensor.3d.cta_group::2.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(destination),
        "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(destination),
        "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
        : "memory");
  }
}

// Likewise, for a CTA pair: to the same place in each CTA of the cluster whose bit is set in `ctas`. The bytes
// arrive at the barrier at `barrier`'s place in each destination, or in that one's peer: the CTA of the pair
// whose rank is even or odd as that of `barrier`'s.
__device__ __forceinline__ void tma_load_multicast(u32 destination, const TensorMap* map, u32 x,
                                                   u32 y, u32 barrier, u32 ctas) {
  asm volatile(
      "cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.tile"
      ".mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(
          destination),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(static_cast<u16>(ctas))
      : "memory");
}

__device__ __forceinline__ void tma_load_multicast(u32 destination, const TensorMap* map, u32 x,
                                                   u32 y, u32 z, u32 barrier, u32 ctas) {
  asm volatile(
      "cp.async.bulk.tensor.3d.cta_group::2.shared::cluster.global.tile"
      ".mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(
          destination),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(static_cast<u16>(ctas))
      : "memory");
}

// TMA store: shared memory to the map's box at (x, y), clipped at the tensor's end. A thread's stores since
// its last commit form a bulk group; the thread that committed waits for it.
__device__ __forceinline__ void tma_store(const TensorMap* map, u32 x, u32 y, u32 source) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
      "r"(x), "r"(y), "r"(source)
      : "memory");
}

__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all but the kPending latest groups have been read from shared memory.
template <u32 kPending>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Orders this thread's accesses to shared memory, loads too, before what TMA and MMAs (the async proxy) do there
// later.
__device__ __forceinline__ void async_proxy_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The larger of a word of global memory and `value` takes its place. Relaxed: it orders nothing.
__device__ __forceinline__ void atomic_max(u32* at, u32 value) {
  asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

// Adds to a word of global memory and returns what it was. What threads did before their additions happens
// before what follows this one, if they were added before it.
__device__ __forceinline__ u32 atomic_add_acq_rel(u32* at, u32 value) {
  u32 before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(at), "r"(value)
               : "memory");
  return before;
}

__device__ __forceinline__ float fma_rn(float a, float b, float c) {
  float sum;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(a), "f"(b), "f"(c));
  return sum;
}

__device__ __forceinline__ u32 bf16x2_rn(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace cukiln

#endif
