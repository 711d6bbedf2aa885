// SPDX-License-Identifier: Apache-2.0
// A header for hosts and devices: its kernel is a template, and its launcher names streams, strings and vectors.
#include <cooperative_groups.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace normalize {

template <typename T, std::size_t kCount>
struct alignas(sizeof(T) * kCount) Vector {
  std::array<T, kCount> values;
  __device__ T& operator[](std::size_t i) { return values[i]; }
};

template <typename T>
struct Accumulator {
  static constexpr float kLowest = -std::numeric_limits<float>::infinity();
  __device__ std::tuple<float, float> both(float sum, float peak, T value) const {
    const float x = static_cast<float>(value);
    return {std::fma(x, x, sum), std::max(peak, std::abs(x))};
  }
};

template <std::uint32_t kVectorSize, typename T>
__global__ void rms_norm(T* input, T* weight, T* output, const std::uint32_t d, float epsilon) {
  auto warp = cooperative_groups::tiled_partition<32>(cooperative_groups::this_thread_block());
  float sum = 0.f;
  float peak = Accumulator<T>::kLowest;
  for (std::uint32_t i = threadIdx.x * kVectorSize; i < d; i += blockDim.x * kVectorSize) {
    auto row = *reinterpret_cast<Vector<T, kVectorSize>*>(input + blockIdx.x * d + i);
    for (std::uint32_t j = 0; j < kVectorSize; ++j) {
      std::tie(sum, peak) = Accumulator<T>{}.both(sum, peak, row[j]);
    }
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += warp.shfl_xor(sum, offset);
  }
  const float scale = std::isfinite(peak) ? rsqrtf(sum / static_cast<float>(d) + epsilon) : 0.f;
  for (std::uint32_t i = threadIdx.x; i < d; i += blockDim.x) {
    output[blockIdx.x * d + i] = static_cast<T>(static_cast<float>(input[blockIdx.x * d + i]) *
                                                scale * static_cast<float>(weight[i]));
  }
}

template <typename T>
inline int launch(T* input, const std::vector<std::int64_t>& shape, const std::string& name) {
  std::ostringstream message;
  message << "unsupported shape of " << name << ": " << shape.size() << " dimensions";
  if (shape.size() != 2) {
    std::cerr << message.str() << std::endl;
    const std::runtime_error error(message.str());
    return error.what() != nullptr;
  }
  return 0;
}

}  // namespace normalize
