// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <type_traits>

#include <doctest/doctest.h>

#include <cukiln/nvfp4/tensor_view.hpp>

namespace cukiln {

TEST_CASE("a view of a matrix knows whether it has gaps") {
  std::uint16_t memory[64] = {};
  const MatrixView dense(DataType::bf16, memory, 4, 16);
  CHECK(dense.row_stride == 16);
  CHECK(dense.is_dense());
  CHECK_FALSE(dense.is_empty());
  const MatrixView gaps(DataType::bf16, memory, 3, 16, 20);
  CHECK(gaps.has_contiguous_rows());
  CHECK_FALSE(gaps.is_dense());
  const MatrixView transposed(DataType::bf16, memory, 16, 4, 1, 16);
  CHECK_FALSE(transposed.has_contiguous_rows());
  CHECK_FALSE(transposed.is_dense());
  CHECK(MatrixView(DataType::bf16, memory, 1, 16, 99).is_dense());   // one row has no gap after it
  CHECK(MatrixView(DataType::bf16, memory, 4, 1, 1, 7).is_dense());  // one column neither
  CHECK(MatrixView(DataType::bf16, nullptr, 0, 16).is_empty());
}

TEST_CASE("a mutable view is read-only where one is expected, and never the other way") {
  static_assert(std::is_convertible_v<MutableMatrixView, MatrixView>);
  static_assert(!std::is_convertible_v<MatrixView, MutableMatrixView>);
  static_assert(std::is_convertible_v<MutableVectorView, VectorView>);
  static_assert(!std::is_convertible_v<VectorView, MutableVectorView>);
  static_assert(std::is_trivially_copyable_v<MatrixView>);
  float memory[6] = {};
  const MutableMatrixView written(DataType::f32, memory, 2, 3, 3, 1);
  const MatrixView read = written;
  CHECK(read.data == memory);
  CHECK(read.type == DataType::f32);
  CHECK(read.rows == 2);
  CHECK(read.columns == 3);
  CHECK(written.data_as<float>() == memory);
  const VectorView column = MutableVectorView(DataType::f32, memory, 2, 3);
  CHECK(column.size == 2);
  CHECK(column.stride == 3);
}

TEST_CASE("a type has a size and a name") {
  CHECK(bytes_of(DataType::u8) == 1);
  CHECK(bytes_of(DataType::bf16) == 2);
  CHECK(bytes_of(DataType::f16) == 2);
  CHECK(bytes_of(DataType::i32) == 4);
  CHECK(bytes_of(DataType::f32) == 4);
  CHECK(name_of(DataType::bf16) == doctest::String("bf16"));
}

}  // namespace cukiln
