// SPDX-License-Identifier: Apache-2.0
// Constants and types are replaced in a text before it is compiled. It includes nothing of the standard library.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

namespace {

using Input = __nv_bfloat16;
using Output = __nv_fp8_e4m3;
constexpr size_t kLoad = 8;
constexpr size_t kWarps = 4;

}  // namespace

__global__ void __launch_bounds__(kWarps * 32)
    cast_transpose(const Input* __restrict__ input, Output* __restrict__ output, const float* scale,
                   size_t row_length, size_t num_rows) {
  __shared__ Output tile[32][33];
  const size_t x = blockIdx.x * 32 + threadIdx.x % 32;
  for (size_t y = threadIdx.x / 32; y < 32 && blockIdx.y * 32 + y < num_rows; y += kWarps) {
    tile[y][threadIdx.x % 32] =
        Output(__bfloat162float(input[(blockIdx.y * 32 + y) * row_length + x]) * *scale);
  }
  __syncthreads();
  for (size_t i = threadIdx.x / 32; i < kLoad; i += kWarps) {
    output[x * num_rows + blockIdx.y * 32 + i] = tile[threadIdx.x % 32][i];
  }
}
