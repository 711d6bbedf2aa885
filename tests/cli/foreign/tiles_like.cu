// SPDX-License-Identifier: Apache-2.0
// A library of tiles: with a host its dimensions are members that NVRTC refuses, and its own switch leaves them out.
#include <cstdint>
#include <type_traits>
#ifdef KITTENS_NO_HOST
using uint = uint32_t;
#endif

namespace tiles {

template <int b>
struct Global {
  float* data;
  int batch_internal;
#ifdef KITTENS_NO_HOST
  __device__ constexpr int batch() const {
    if constexpr (b > 0) {
      return b;
    } else {
      return batch_internal;
    }
  }
#else
  template <int B = b>
  __device__ __host__ static constexpr std::enable_if_t<(B > 0), int> batch() { return B; }
  template <int B = b>
  __device__ __host__ std::enable_if_t<(B == -1), int> batch() const { return batch_internal; }
#endif
};

}  // namespace tiles

extern "C" __global__ void fill(const __grid_constant__ tiles::Global<-1> to) {
  const uint at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < to.batch()) to.data[at] = sizeof(tiles::Global<4>);
}
