// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/base/result.hpp"

#include <cukiln/nvfp4/tensor_view.hpp>

/// Checks of what launchers are given. Each returns invalid_argument with the given and the
/// expected value; `name` is the argument's, in the public header. None allocates when it succeeds.
namespace cukiln::kernels {

/// invalid_argument with a formatted sentence. An exception while formatting becomes an Error too.
template <class... Args>
Result<void> refuse(fmt::format_string<const Args&...> format, const Args&... args) noexcept {
  return guarded([&]() -> Result<void> {
    return make_error<const Args&...>(ErrorCode::invalid_argument, format, args...);
  });
}

inline bool is_aligned(const void* pointer, std::size_t bytes) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

/// `member`: of `name`, as in `a.data`; empty: `name` itself.
inline Result<void> check_pointer(const char* name, const char* member, const void* pointer,
                                  std::size_t alignment) noexcept {
  const char* const dot = *member != '\0' ? "." : "";
  if (pointer == nullptr) {
    return refuse("{}{}{} is null; expected a device pointer", name, dot, member);
  }
  if (!is_aligned(pointer, alignment)) {
    return refuse("{}{}{} is {}; expected a multiple of {} bytes", name, dot, member, pointer,
                  alignment);
  }
  return {};
}

inline Result<void> check_pointer(const char* name, const void* pointer,
                                  std::size_t alignment) noexcept {
  return check_pointer(name, "", pointer, alignment);
}

/// The kernels count rows and columns in 31 bits.
inline Result<void> check_sizes(const char* name, std::int64_t rows,
                                std::int64_t columns) noexcept {
  if (rows < 0 || rows > INT32_MAX || columns < 0 || columns > INT32_MAX) {
    return refuse("{} is [{}, {}]; expected sizes of 0 to {}", name, rows, columns, INT32_MAX);
  }
  return {};
}

inline Result<void> check_type(const char* name, DataType given, DataType expected) noexcept {
  if (given != expected) {
    return refuse("{} is {}; expected {}", name, name_of(given), name_of(expected));
  }
  return {};
}

/// Type, sizes and contiguous rows; the pointer where there is an element.
inline Result<void> check_matrix(const char* name, const MatrixView& matrix, DataType type,
                                 std::size_t alignment) noexcept {
  CUKILN_CHECK(check_type(name, matrix.type, type));
  CUKILN_CHECK(check_sizes(name, matrix.rows, matrix.columns));
  if (matrix.is_empty()) {
    return {};
  }
  if (!matrix.has_contiguous_rows()) {
    return refuse("{} has a column stride of {}; expected 1: contiguous rows", name,
                  matrix.column_stride);
  }
  return check_pointer(name, matrix.data, alignment);
}

/// A matrix of this very shape, rows without gaps.
inline Result<void> check_dense_matrix(const char* name, const MatrixView& matrix, DataType type,
                                       std::int64_t rows, std::int64_t columns,
                                       std::size_t alignment) noexcept {
  if (matrix.rows != rows || matrix.columns != columns) {
    return refuse("{} is [{}, {}]; expected [{}, {}]", name, matrix.rows, matrix.columns, rows,
                  columns);
  }
  CUKILN_CHECK(check_matrix(name, matrix, type, alignment));
  if (!matrix.is_empty() && !matrix.is_dense()) {
    return refuse("{} has a row stride of {}; expected {}: no gaps between rows", name,
                  matrix.row_stride, columns);
  }
  return {};
}

/// A vector of this very size, without gaps.
inline Result<void> check_dense_vector(const char* name, const VectorView& vector, DataType type,
                                       std::int64_t size, std::size_t alignment) noexcept {
  CUKILN_CHECK(check_type(name, vector.type, type));
  if (vector.size != size) {
    return refuse("{} is [{}]; expected [{}]", name, vector.size, size);
  }
  if (size == 0) {
    return {};
  }
  if (size > 1 && vector.stride != 1) {
    return refuse("{} has a stride of {}; expected 1: no gaps", name, vector.stride);
  }
  return check_pointer(name, vector.data, alignment);
}

/// As check_dense_vector, for an argument that may be absent.
inline Result<void> check_optional_vector(const char* name, const VectorView& vector, DataType type,
                                          std::int64_t size, std::size_t alignment) noexcept {
  return vector.data == nullptr ? Result<void>()
                                : check_dense_vector(name, vector, type, size, alignment);
}

/// `count` limited to [1, max].
inline std::uint32_t clamped_grid(std::int64_t count, std::int64_t max) noexcept {
  return static_cast<std::uint32_t>(count < 1 ? 1 : count > max ? max : count);
}

}  // namespace cukiln::kernels
