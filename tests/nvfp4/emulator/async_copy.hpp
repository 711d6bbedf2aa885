// SPDX-License-Identifier: Apache-2.0
#pragma once

// async_copy.cuh on a CPU, and what else kernels with mma.sync take from the CUDA language.

#include "emulator/cuda.hpp"  // first
#include "kernels_src/nvfp4/machine.cuh"

struct float2 {
  float x, y;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}

template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __shfl_sync(unsigned, T value, unsigned) {  // of values that are the same in the whole warp
  return value;
}

namespace cukiln {

namespace emulator {
/// A load of this thread from shared memory, which may be in flight until async_proxy_fence.
void note_load(const void* from, u32 bytes);

template <class T>
T load(const void* from) {
  note_load(from, sizeof(T));
  return *static_cast<const T*>(from);
}
}  // namespace emulator

inline uint4 load_after_wait(const uint4* from) { return *from; }
inline u32 load_after_wait(const u16* from) { return *from; }
inline float load_after_wait(const float* from) { return *from; }

inline void mbarrier_arrive_cta(u32 barrier) { mbarrier_arrive(barrier); }
void bulk_copy(u32 to, const void* from, u32 bytes, u32 barrier);
inline void tma_prefetch(const TensorMap*, u32, u32) {}
inline void bulk_prefetch(const void*, u32) {}

template <u32 kCount>
void warpgroup_reg_dealloc() {}
template <u32 kCount>
void warpgroup_reg_alloc() {}

}  // namespace cukiln
