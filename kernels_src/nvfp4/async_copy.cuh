// PTX wrappers of the sm_90 kernels beside machine.cuh: loads, barriers, bulk copies, prefetches, register
// reallocation.
//
// CUKILN_ASYNC_COPY, when defined, names a header with these functions, but release_stage, that is included
// instead: that of the tests' CPU emulator.
// Source: NVIDIA PTX ISA, ld, bar, mbarrier, cp.async.bulk and setmaxnreg.
#pragma once

#include "dependent_launch.cuh"
#include "machine.cuh"

#ifdef CUKILN_ASYNC_COPY
#include CUKILN_ASYNC_COPY
#else

namespace cukiln {

__device__ __forceinline__ uint4 load_shared(u32 address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}

__device__ __forceinline__ void load_shared(u32 address, float (&four)[4]) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four[0]), "=f"(four[1]), "=f"(four[2]), "=f"(four[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ u32 load_shared_word(u32 address) {
  u32 value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ u32 load_shared_byte(u32 address) {
  u32 value;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

// Loads of what the preceding kernel may have written. `volatile` and the memory clobber keep them behind
// griddepcontrol_wait, which the compiler could move a plain or an __ldg load across.
__device__ __forceinline__ uint4 load_after_wait(const uint4* from) {
  uint4 value;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

__device__ __forceinline__ u32 load_after_wait(const u16* from) {
  u16 value;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(value) : "l"(from) : "memory");
  return value;
}

__device__ __forceinline__ float load_after_wait(const float* from) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
  return value;
}

// Arrives at a barrier of this CTA. It orders generic accesses only, and of loads not even their completion: they
// may be in flight while TMA, the async proxy, overwrites what they read. So a stage of a ring is released by this
// alone only if instructions that used its loads' values are complete: of wgmma kernels, the stage before the one
// that is read, behind wgmma_wait. tests/nvfp4/kernels/arrivals_test.py lists them.
__device__ __forceinline__ void mbarrier_arrive_cta(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Bulk copy (TMA without a tensor map), global to shared memory. `bytes` is a multiple of 16, both ends are
// 16-byte aligned.
__device__ __forceinline__ void bulk_copy(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// TMA prefetch of a box into L2.
__device__ __forceinline__ void tma_prefetch(const TensorMap* map, u32 x, u32 y) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map), "r"(x),
               "r"(y)
               : "memory");
}

__device__ __forceinline__ void bulk_prefetch(const void* from, u32 bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// setmaxnreg: a warpgroup lowers its registers a thread to kCount, so that another can raise its own. Names
// as in CUTLASS.
template <u32 kCount>
__device__ __forceinline__ void warpgroup_reg_dealloc() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

template <u32 kCount>
__device__ __forceinline__ void warpgroup_reg_alloc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

}  // namespace cukiln

#endif

namespace cukiln {

// Releases a stage of a ring that this thread has just read by ld.shared: TMA overwrites it once all readers have
// arrived at its barrier `empty`. The fence has the loads be complete before.
__device__ __forceinline__ void release_stage(u32 empty) {
  async_proxy_fence();
  mbarrier_arrive_cta(empty);
}

}  // namespace cukiln
