// The position of a role in a ring of shared-memory stages or tensor-memory buffers.
#pragma once

#include "machine.cuh"

namespace cukiln {

// Index into a ring of barriers and the parity of the current pass over it, as CUTLASS's PipelineState. A
// producer waits for `empty` with the opposite parity: it begins with phase 1 (producer_start), or waits
// for `phase ^ 1`.
template <u32 kSize>
struct PipelineState {
  u32 index = 0;
  u32 phase = 0;

  static __device__ __forceinline__ PipelineState producer_start() { return {0, 1}; }

  __device__ __forceinline__ void advance() {
    if (++index == kSize) {
      index = 0;
      phase ^= 1;
    }
  }
};

}  // namespace cukiln
