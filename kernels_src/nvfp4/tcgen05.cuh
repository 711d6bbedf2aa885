// PTX wrappers of sm_100a's tensor core (tcgen05, UMMA) and its descriptors. One function for each
// instruction.
//
// CUKILN_TCGEN05, when defined, names a header with the same functions that is included instead.
//
// Tensor memory (TMEM) has 128 lanes of 512 columns of 32 bits; an address is lane << 16 | column. kCtas ==
// 2: a CTA pair computes one MMA tile together, and rank 0 issues for both.
// Source: NVIDIA PTX ISA, Tensorcore 5th generation instructions. tests/nvfp4/sm100/layouts.cpp compares the
// descriptors' bits with CUTLASS's.
#pragma once

#include "machine.cuh"

namespace cukiln {

constexpr u32 kTmemColumns = 512;

enum class Swizzle : u32 { kNone = 0, k128Bytes = 2 };

// Shared-memory descriptor of a K-major operand: rows in groups of 8, consecutive groups `group_stride`
// bytes apart.
__host__ __device__ constexpr u64 smem_descriptor(u32 address, u32 group_stride,
                                                  Swizzle swizzle) {
  constexpr u64 kVersion = 1;
  return (u64{address} >> 4 & 0x3FFF) | (u64{group_stride} >> 4 & 0x3FFF) << 32 | kVersion << 46 |
         static_cast<u64>(swizzle) << 61;
}

// Instruction descriptor for kind::mxf4nvf4: E2M1 by E2M1, both K-major, UE4M3 scales, f32 accumulator.
__host__ __device__ constexpr u32 instruction_descriptor(u32 rows, u32 columns) {
  constexpr u32 kE2m1 = 1;
  return kE2m1 << 7 | kE2m1 << 10 | columns >> 3 << 17 | rows >> 4 << 24;
}

// The same descriptor from `rows` rows of 128 bytes before.
__host__ __device__ constexpr u64 descriptor_before(u64 descriptor, u32 rows) {
  return (descriptor & ~u64{0xFFFFFFFF}) | (static_cast<u32>(descriptor) - rows * (128 >> 4));
}

}  // namespace cukiln

#ifdef CUKILN_TCGEN05
#include CUKILN_TCGEN05
#else

// PTX ISA 8.8, of CUDA 12.9, renamed `.scale_vec::4X`.
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ < 1209
#define CUKILN_BLOCK16 ".scale_vec::4X"
#else
#define CUKILN_BLOCK16 ".block16"
#endif

namespace cukiln {

// Allocates all of tensor memory and writes its address to shared memory at `slot`. Called by one whole
// warp.
template <u32 kCtas>
__device__ __forceinline__ void tmem_alloc(u32 slot) {
  if constexpr (kCtas == 2) {
    asm volatile(
        "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;\n\t"
        "tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::"r"(slot),
        "n"(kTmemColumns)
        : "memory");
  } else {
    asm volatile(
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;\n\t"
        "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::"r"(slot),
        "n"(kTmemColumns)
        : "memory");
  }
}

// Called by the warp that allocated, once no thread (with two CTAs: of either) uses tensor memory.
template <u32 kCtas>
__device__ __forceinline__ void tmem_dealloc(u32 tmem) {
  if constexpr (kCtas == 2) {
    asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(tmem),
                 "n"(kTmemColumns));
  } else {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(tmem),
                 "n"(kTmemColumns));
  }
}

// Copies one atom of block scales (128 rows by 64 columns, stored as 32 rows of 16 bytes) to four columns of tensor memory of every CTA,
// repeated in each group of 32 lanes. Ordered with the MMAs that the same thread issues.
template <u32 kCtas>
__device__ __forceinline__ void tcgen05_cp_scales(u32 tmem, u64 atom) {
  if constexpr (kCtas == 2) {
    asm volatile("tcgen05.cp.cta_group::2.32x128b.warpx4 [%0], %1;" ::"r"(tmem), "l"(atom)
                 : "memory");
  } else {
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(tmem), "l"(atom)
                 : "memory");
  }
}

// Issues one block-scaled MMA over K = 64: D = A * B^T, or D += A * B^T if `accumulate`. `accumulator` is
// D's address in tensor memory; `rows` and `columns` are the shared memory descriptors of A and B.
// A may have fewer rows than the MMA: kRows of them from the MMA's `first_row` on. It then reads as many
// more before and behind them in shared memory, whatever they hold; only A's rows of D are meant.
template <u32 kCtas, u32 kRows = 128>
__device__ __forceinline__ void tcgen05_mma(u32 accumulator, u64 rows, u64 columns, u32 instruction,
                                            u32 row_scales, u32 column_scales, bool accumulate,
                                            u32 first_row = 0) {
  if constexpr (kRows != 128) rows = descriptor_before(rows, first_row);
  if constexpr (kCtas == 2) {
    asm volatile(
        "{\n\t"
        ".reg .pred p;\n\t"
        "setp.ne.b32 p, %6, 0;\n\t"
        "tcgen05.mma.cta_group::2.kind::mxf4nvf4.block_scale" CUKILN_BLOCK16
        " [%0], %1, %2, %3, [%4], [%5], p;\n\t"
        "}" ::"r"(accumulator),
        "l"(rows), "l"(columns), "r"(instruction), "r"(row_scales), "r"(column_scales),
        "r"(static_cast<u32>(accumulate))
        : "memory");
  } else {
    asm volatile(
        "{\n\t"
        ".reg .pred p;\n\t"
        "setp.ne.b32 p, %6, 0;\n\t"
        "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale" CUKILN_BLOCK16
        " [%0], %1, %2, %3, [%4], [%5], p;\n\t"
        "}" ::"r"(accumulator),
        "l"(rows), "l"(columns), "r"(instruction), "r"(row_scales), "r"(column_scales),
        "r"(static_cast<u32>(accumulate))
        : "memory");
  }
}

// Arrives at the barrier once all MMAs and copies this thread issued are complete; with two CTAs: at that of
// each CTA of the cluster whose bit is set in `ctas`.
template <u32 kCtas>
__device__ __forceinline__ void tcgen05_commit(u32 barrier, u32 ctas) {
  if constexpr (kCtas == 2) {
    asm volatile(
        "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 "
        "[%0], %1;" ::"r"(barrier),
        "h"(static_cast<u16>(ctas))
        : "memory");
  } else {
    asm volatile(
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
        : "memory");
  }
}

// Loads 32 columns, one lane to a thread. Warp w may read lanes 32 * (w % 4) to 32 * (w % 4) + 31 only.
__device__ __forceinline__ void tmem_load(u32 tmem, u32 (&value)[32]) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x32.b32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];\n\t"
      "tcgen05.wait::ld.sync.aligned;"
      : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3]), "=r"(value[4]),
        "=r"(value[5]), "=r"(value[6]), "=r"(value[7]), "=r"(value[8]), "=r"(value[9]),
        "=r"(value[10]), "=r"(value[11]), "=r"(value[12]), "=r"(value[13]), "=r"(value[14]),
        "=r"(value[15]), "=r"(value[16]), "=r"(value[17]), "=r"(value[18]), "=r"(value[19]),
        "=r"(value[20]), "=r"(value[21]), "=r"(value[22]), "=r"(value[23]), "=r"(value[24]),
        "=r"(value[25]), "=r"(value[26]), "=r"(value[27]), "=r"(value[28]), "=r"(value[29]),
        "=r"(value[30]), "=r"(value[31])
      : "r"(tmem)
      : "memory");
}

// Required before and after each barrier that orders accesses to tensor memory between threads.
__device__ __forceinline__ void tcgen05_fence_before_sync() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ __forceinline__ void tcgen05_fence_after_sync() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

}  // namespace cukiln

#undef CUKILN_BLOCK16
#endif
