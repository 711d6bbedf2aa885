// SPDX-License-Identifier: Apache-2.0
// A GEMM library's generated source: templates over constants, no `extern "C"`, an instance taken by address.
#include <cstdint>
#include <type_traits>
#include <utility>

namespace gemm {

template <typename Integer>
__device__ constexpr Integer ceil_div(Integer a, Integer b) {
  return (a + b - 1) / b;
}

template <std::uint32_t kNumThreads, std::uint32_t kTileM, std::uint32_t kTileK>
__global__ void __launch_bounds__(kNumThreads)
    transpose(const float* from, float* to, const std::uint32_t rows) {
  static_assert(std::is_same_v<decltype(ceil_div(kTileM, kTileK)), std::uint32_t>);
  __shared__ float tile[kTileM * kTileK];
  const std::pair<std::uint32_t, std::uint32_t> block{blockIdx.x * kTileM, blockIdx.y};
  const std::uint32_t count = rows - block.first < kTileM ? rows - block.first : kTileM;
  for (std::uint32_t i = threadIdx.x; i < count * kTileK; i += kNumThreads) {
    tile[i] = from[block.first * kTileK + i];
  }
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < count * kTileK; i += kNumThreads) {
    to[(i % kTileK) * rows + block.first + i / kTileK] = tile[i];
  }
}

}  // namespace gemm

static void instantiate() {
  auto kernel = reinterpret_cast<void*>(&gemm::transpose<128, 64, 8>);
}
