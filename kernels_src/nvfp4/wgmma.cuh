// PTX wrappers of wgmma: fp16 or bf16 operands, A in registers, B in shared memory, float sums.
//
// Source: NVIDIA PTX ISA, wgmma.
#pragma once

#include "async_copy.cuh"
#include "gemm_sm90_dequantize.cuh"

namespace cukiln {
namespace nvfp4 {

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kLeft>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// Descriptor of rows of 128 bytes in TMA's 128-byte swizzle, groups of 8 rows 1024 bytes apart.
__device__ __forceinline__ u64 wgmma_descriptor(u32 address) {
  return static_cast<u64>((address >> 4) & 0x3FFF) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

// Turns of two warpgroups at the tensor cores: while one multiplies, the other prepares its operands. Named
// barriers kFirst and kFirst + 1: the turns of each.
template <u32 kFirst>
struct WarpgroupTurns {
  u32 own;
  u32 other;

  __device__ __forceinline__ explicit WarpgroupTurns(u32 warpgroup)
      : own(kFirst + warpgroup), other(kFirst + 1 - warpgroup) {}

  // Called once by each, first: the turn is warpgroup 0's.
  __device__ __forceinline__ void begin() const {
    if (own != kFirst) pass();
  }
  __device__ __forceinline__ void take() const { named_barrier_sync<256>(own); }
  __device__ __forceinline__ void pass() const { named_barrier_arrive<256>(other); }
  // Called once by each, last, after as many turns: no arrival is left at a barrier.
  __device__ __forceinline__ void end() const {
    if (own == kFirst) take();
  }
};

struct F16;
struct Bf16;

// sum += A * B: A 64 by 16 of K in registers, B 16 by kTokens at a descriptor. Operands: F16 or Bf16.
template <u32 kTokens, class Operands = F16>
struct Wgmma;

#define CUKILN_F8(i)                                                                       \
  "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3]), "+f"(sum[i + 4]),    \
      "+f"(sum[i + 5]), "+f"(sum[i + 6]), "+f"(sum[i + 7])
#define CUKILN_F4(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define CUKILN_F32(i) CUKILN_F8(i), CUKILN_F8(i + 8), CUKILN_F8(i + 16), CUKILN_F8(i + 24)
#define CUKILN_SUMS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define CUKILN_SUMS_12 CUKILN_SUMS_8 ", %8, %9, %10, %11"
#define CUKILN_SUMS_16 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define CUKILN_SUMS_20 CUKILN_SUMS_16 ", %16, %17, %18, %19"
#define CUKILN_SUMS_24 \
  CUKILN_SUMS_16 ", " \
  "%16, %17, %18, %19, %20, %21, %22, %23"
#define CUKILN_SUMS_28 CUKILN_SUMS_24 ", %24, %25, %26, %27"
#define CUKILN_SUMS_32 \
  CUKILN_SUMS_24 ", " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define CUKILN_SUMS_48 \
  CUKILN_SUMS_32 ", " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define CUKILN_SUMS_64 \
  CUKILN_SUMS_48 ", " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define CUKILN_SUMS_80 \
  CUKILN_SUMS_64 ", " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define CUKILN_SUMS_96 \
  CUKILN_SUMS_80 ", " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define CUKILN_SUMS_112 \
  CUKILN_SUMS_96 ", " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define CUKILN_SUMS_128 \
  CUKILN_SUMS_112 ", " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// kTypes: of A and B. kSumNames, kOperandNames: of the asm operands. Last: the sums as asm operands.
#define CUKILN_WGMMA(kTokens, Operands, kTypes, kSumNames, kOperandNames, ...)                       \
  template <>                                                                                        \
  struct Wgmma<kTokens, Operands> {                                                                  \
    static __device__ __forceinline__ void run(float (&sum)[kTokens / 2], const u32 (&a)[4], u64 b) { \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #kTokens "k16.f32." kTypes " {" kSumNames      \
                   "}, " kOperandNames ", 1, 1, 1, 0;"                                               \
                   : __VA_ARGS__                                                                     \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                            \
    }                                                                                                \
  };
#define CUKILN_WGMMA_TYPES(Operands, kTypes)                                                         \
  CUKILN_WGMMA(16, Operands, kTypes, CUKILN_SUMS_8, "{%8, %9, %10, %11}, %12", CUKILN_F8(0))         \
  CUKILN_WGMMA(24, Operands, kTypes, CUKILN_SUMS_12, "{%12, %13, %14, %15}, %16", CUKILN_F8(0),      \
               CUKILN_F4(8))                                                                         \
  CUKILN_WGMMA(32, Operands, kTypes, CUKILN_SUMS_16, "{%16, %17, %18, %19}, %20", CUKILN_F8(0),      \
               CUKILN_F8(8))                                                                         \
  CUKILN_WGMMA(40, Operands, kTypes, CUKILN_SUMS_20, "{%20, %21, %22, %23}, %24", CUKILN_F8(0),      \
               CUKILN_F8(8), CUKILN_F4(16))                                                          \
  CUKILN_WGMMA(48, Operands, kTypes, CUKILN_SUMS_24, "{%24, %25, %26, %27}, %28", CUKILN_F8(0),      \
               CUKILN_F8(8), CUKILN_F8(16))                                                          \
  CUKILN_WGMMA(56, Operands, kTypes, CUKILN_SUMS_28, "{%28, %29, %30, %31}, %32", CUKILN_F8(0),      \
               CUKILN_F8(8), CUKILN_F8(16), CUKILN_F4(24))                                           \
  CUKILN_WGMMA(64, Operands, kTypes, CUKILN_SUMS_32, "{%32, %33, %34, %35}, %36", CUKILN_F32(0))     \
  CUKILN_WGMMA(96, Operands, kTypes, CUKILN_SUMS_48, "{%48, %49, %50, %51}, %52", CUKILN_F32(0),     \
               CUKILN_F8(32), CUKILN_F8(40))                                                         \
  CUKILN_WGMMA(128, Operands, kTypes, CUKILN_SUMS_64, "{%64, %65, %66, %67}, %68", CUKILN_F32(0),    \
               CUKILN_F32(32))                                                                       \
  CUKILN_WGMMA(160, Operands, kTypes, CUKILN_SUMS_80, "{%80, %81, %82, %83}, %84", CUKILN_F32(0),    \
               CUKILN_F32(32), CUKILN_F8(64), CUKILN_F8(72))                                         \
  CUKILN_WGMMA(192, Operands, kTypes, CUKILN_SUMS_96, "{%96, %97, %98, %99}, %100", CUKILN_F32(0),   \
               CUKILN_F32(32), CUKILN_F32(64))                                                       \
  CUKILN_WGMMA(224, Operands, kTypes, CUKILN_SUMS_112, "{%112, %113, %114, %115}, %116",             \
               CUKILN_F32(0), CUKILN_F32(32), CUKILN_F32(64), CUKILN_F8(96), CUKILN_F8(104))         \
  CUKILN_WGMMA(256, Operands, kTypes, CUKILN_SUMS_128, "{%128, %129, %130, %131}, %132",             \
               CUKILN_F32(0), CUKILN_F32(32), CUKILN_F32(64), CUKILN_F32(96))

CUKILN_WGMMA_TYPES(F16, "f16.f16")
CUKILN_WGMMA_TYPES(Bf16, "bf16.bf16")

#undef CUKILN_WGMMA_TYPES
#undef CUKILN_WGMMA
#undef CUKILN_SUMS_128
#undef CUKILN_SUMS_112
#undef CUKILN_SUMS_96
#undef CUKILN_SUMS_80
#undef CUKILN_SUMS_64
#undef CUKILN_SUMS_48
#undef CUKILN_SUMS_32
#undef CUKILN_SUMS_28
#undef CUKILN_SUMS_24
#undef CUKILN_SUMS_20
#undef CUKILN_SUMS_16
#undef CUKILN_SUMS_12
#undef CUKILN_SUMS_8
#undef CUKILN_F32
#undef CUKILN_F8
#undef CUKILN_F4

}  // namespace nvfp4
}  // namespace cukiln
