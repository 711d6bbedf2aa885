// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.hpp"

namespace cukiln::kernels {

/// invalid_argument with a formatted sentence; what it throws itself becomes an Error too.
template <class... Args>
Result<void> refuse(fmt::format_string<const Args&...> format, const Args&... args) noexcept {
  return guarded([&]() -> Result<void> {
    return make_error<const Args&...>(ErrorCode::invalid_argument, format, args...);
  });
}

inline bool is_aligned(const void* pointer, std::size_t bytes) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

inline Result<void> check_pointer(const char* name, const void* pointer,
                                  std::size_t bytes) noexcept {
  if (pointer == nullptr) {
    return refuse("{} is null; a device pointer is expected", name);
  }
  if (!is_aligned(pointer, bytes)) {
    return refuse("{} is {}, which is not a multiple of {} bytes", name, pointer, bytes);
  }
  return {};
}

/// Of [rows, columns]: sizes the kernels can count.
inline Result<void> check_shape(std::int64_t rows, std::int64_t columns) noexcept {
  if (rows < 0 || rows > INT32_MAX || columns < 0 || columns > INT32_MAX) {
    return refuse("[{}, {}] is not a shape: both are 0 to 2147483647", rows, columns);
  }
  return {};
}

/// `count` limited to 1 … `most`.
inline std::uint32_t grid_of(std::int64_t count, std::int64_t most) noexcept {
  return static_cast<std::uint32_t>(count < 1 ? 1 : count > most ? most : count);
}

}  // namespace cukiln::kernels
