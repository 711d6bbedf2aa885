// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_fp16.h>

/// Calls `body` with each index of a grid-stride loop.
template <class Body>
__device__ void for_each_index(int count, Body body) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    body(i);
  }
}
