// SPDX-License-Identifier: Apache-2.0
#include <cuda/std/cmath>

#include "vector.cuh"

/// Divides each group of `width` values by its Euclidean norm.
template <int width>
__global__ void norm(__half* x, int groups) {
  for_each_index(groups, [=](int group) {
    float sum = 0;
    for (int i = 0; i < width; ++i) {
      const float value = __half2float(x[group * width + i]);
      sum += value * value;
    }
    const float factor = 1 / cuda::std::sqrt(sum);
    for (int i = 0; i < width; ++i) {
      x[group * width + i] = __float2half(__half2float(x[group * width + i]) * factor);
    }
  });
}
