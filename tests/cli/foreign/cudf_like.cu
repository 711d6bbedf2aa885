// SPDX-License-Identifier: Apache-2.0
// A column's transform: the user's operation is pasted as text before the kernel, which knows types by <cstdint>.
#include <chrono>
#include <cstdint>
#include <optional>
#include <type_traits>

using size_type = std::int32_t;
using timestamp = std::chrono::time_point<std::chrono::system_clock, std::chrono::duration<int64_t>>;

__device__ inline void operation(std::int64_t* out, std::optional<std::int32_t> value) {
  *out = value ? static_cast<std::int64_t>(*value) * *value : -1;
}

struct Column {
  const void* data;
  const std::uint32_t* valid;
  template <typename T>
  __device__ std::optional<T> element(size_type i) const {
    const bool is_valid = valid == nullptr || (valid[i / 32] >> (i % 32) & 1u) != 0;
    return is_valid ? std::optional<T>(static_cast<const T*>(data)[i]) : std::nullopt;
  }
};

template <typename Out, typename In>
__global__ void transform(size_type size, Out* out, Column in) {
  static_assert(std::is_integral_v<In> && sizeof(timestamp) == 8);
  const auto stride = static_cast<size_type>(blockDim.x * gridDim.x);
  for (auto i = static_cast<size_type>(threadIdx.x + blockIdx.x * blockDim.x); i < size; i += stride) {
    operation(&out[i], in.element<In>(i));
  }
}
