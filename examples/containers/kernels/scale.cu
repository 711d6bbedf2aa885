// SPDX-License-Identifier: Apache-2.0
#include "vector.cuh"

extern "C" __global__ void scale(__half* x, __half factor, int count) {
  for_each_index(count, [=](int i) { x[i] = __hmul(x[i], factor); });
}
