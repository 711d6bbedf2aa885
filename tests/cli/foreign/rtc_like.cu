// SPDX-License-Identifier: Apache-2.0
// Its parameters are words that a host replaces in the text. Macros do the same.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

namespace {

using Type = __TYPE__;
constexpr size_t kLoadSize = __LOAD_SIZE__;
constexpr size_t kBlockSize = __BLOCK_SIZE__;

}  // namespace

__global__ void __launch_bounds__(kBlockSize)
    transpose_optimized_kernel(const Type* __restrict__ from, Type* __restrict__ to, size_t rows) {
  constexpr size_t kValues = kLoadSize / sizeof(Type);
  const size_t i = blockIdx.x * kBlockSize + threadIdx.x;
  for (size_t j = 0; j < kValues; ++j) to[j * rows + i] = from[i * kValues + j];
}
