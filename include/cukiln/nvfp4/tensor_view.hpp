// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cukiln/export.hpp>

/// Views of tensors in device memory: what launchers take instead of pointers, sizes and strides
/// one by one. A view owns nothing, allocates nothing and is passed by value; its memory must live
/// until the kernels that use it have ended.
namespace cukiln {
inline namespace v0 {

/// The type of a tensor's elements.
enum class DataType : std::uint8_t { u8, i32, f16, bf16, f32 };

constexpr std::size_t bytes_of(DataType type) noexcept {
  switch (type) {
    case DataType::u8: return 1;
    case DataType::f16:
    case DataType::bf16: return 2;
    case DataType::i32:
    case DataType::f32: return 4;
  }
  return 0;
}

/// `bf16`, as the enumerator.
constexpr const char* name_of(DataType type) noexcept {
  switch (type) {
    case DataType::u8: return "u8";
    case DataType::i32: return "i32";
    case DataType::f16: return "f16";
    case DataType::bf16: return "bf16";
    case DataType::f32: return "f32";
  }
  return "unknown";
}

/// Elements of one type, `stride` elements from each to the next. A default view is absent: it
/// has no data. `Void` is `void`, or `const void` where the elements are only read.
template <class Void>
struct BasicVectorView {
  Void* data = nullptr;
  DataType type = DataType::u8;
  std::int64_t size = 0;
  std::int64_t stride = 1;

  constexpr BasicVectorView() noexcept = default;
  constexpr BasicVectorView(DataType element, Void* pointer, std::int64_t count,
                            std::int64_t step = 1) noexcept
      : data(pointer), type(element), size(count), stride(step) {}
  /// A mutable view is taken where a read-only one is expected.
  template <class Other, class = std::enable_if_t<std::is_const_v<Void> &&
                                                  std::is_same_v<Other, std::remove_const_t<Void>>>>
  constexpr BasicVectorView(const BasicVectorView<Other>& other) noexcept  // NOLINT: a conversion
      : BasicVectorView(other.type, other.data, other.size, other.stride) {}

  /// The pointer as one to elements. T agrees with `type`; bf16 and f16 are std::uint16_t.
  template <class T>
  constexpr T* data_as() const noexcept {
    return static_cast<T*>(data);
  }
};

/// A matrix of one type. Strides are in elements; they may be 0, which repeats a row, or negative.
/// A default view is absent: it has no data. `Void` is `void`, or `const void` where the elements
/// are only read.
template <class Void>
struct BasicMatrixView {
  Void* data = nullptr;
  DataType type = DataType::u8;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;     ///< from an element to the one below it
  std::int64_t column_stride = 1;  ///< from an element to the one on its right

  constexpr BasicMatrixView() noexcept = default;
  /// Dense: rows without gaps.
  constexpr BasicMatrixView(DataType element, Void* pointer, std::int64_t row_count,
                            std::int64_t column_count) noexcept
      : BasicMatrixView(element, pointer, row_count, column_count, column_count) {}
  constexpr BasicMatrixView(DataType element, Void* pointer, std::int64_t row_count,
                            std::int64_t column_count, std::int64_t row_step,
                            std::int64_t column_step = 1) noexcept
      : data(pointer),
        type(element),
        rows(row_count),
        columns(column_count),
        row_stride(row_step),
        column_stride(column_step) {}
  /// A mutable view is taken where a read-only one is expected.
  template <class Other, class = std::enable_if_t<std::is_const_v<Void> &&
                                                  std::is_same_v<Other, std::remove_const_t<Void>>>>
  constexpr BasicMatrixView(const BasicMatrixView<Other>& other) noexcept  // NOLINT: a conversion
      : BasicMatrixView(other.type, other.data, other.rows, other.columns, other.row_stride,
                        other.column_stride) {}

  /// The pointer as one to elements. T agrees with `type`; bf16 and f16 are std::uint16_t.
  template <class T>
  constexpr T* data_as() const noexcept {
    return static_cast<T*>(data);
  }

  constexpr bool is_empty() const noexcept { return rows == 0 || columns == 0; }
  constexpr bool has_contiguous_rows() const noexcept { return columns <= 1 || column_stride == 1; }
  constexpr bool is_dense() const noexcept {
    return has_contiguous_rows() && (rows <= 1 || row_stride == columns);
  }
};

using VectorView = BasicVectorView<const void>;
using MutableVectorView = BasicVectorView<void>;
using MatrixView = BasicMatrixView<const void>;
using MutableMatrixView = BasicMatrixView<void>;

}  // namespace v0
}  // namespace cukiln
