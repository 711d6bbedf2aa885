// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nvfp4/host/checks.hpp"
#include "nvfp4/host/quantize_checks.hpp"

#include <cukiln/device.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>

namespace cukiln::nvfp4::detail {

/// Errors: incompatible, if the GEMMs of `name` do not run on the device.
inline Result<void> check_hopper_or_later(const DeviceInfo& device, const char* name) {
  constexpr int kMinCapability = 90;
  if (device.capability < kMinCapability) {
    return make_error(ErrorCode::incompatible,
                      "device {}, {}, has compute capability {}.{}; {} runs on 9.0 and later",
                      device.ordinal, device.name, device.capability / 10, device.capability % 10,
                      name);
  }
  return {};
}

/// Checks the sizes of an operand whose rows are multiplied: [rows, k].
inline Result<void> check_operand_sizes(const char* name, const QuantizedMatrix& matrix) noexcept {
  CUKILN_CHECK(kernels::check_sizes(name, matrix.rows, matrix.columns));
  if (matrix.columns == 0 || matrix.columns % 32 != 0) {
    return kernels::refuse(
        "{} is [{}, {}]; expected a positive multiple of 32 columns, which are summed over", name,
        matrix.rows, matrix.columns);
  }
  return {};
}

/// `a` is [rows, columns].
inline Result<void> check_same_columns(std::int64_t rows, std::int64_t columns,
                                       const QuantizedMatrix& b) noexcept {
  if (columns != b.columns) {
    return kernels::refuse("a is [{}, {}] and b [{}, {}]; expected the same number of columns",
                           rows, columns, b.rows, b.columns);
  }
  return {};
}

/// Checks B's rows for a GEMM that is not grouped: its kernels write eight columns of D at a time.
inline Result<void> check_rows_of_b(const QuantizedMatrix& b) noexcept {
  if (b.rows % 8 != 0) {
    return kernels::refuse("b is [{}, {}]; expected a multiple of 8 rows", b.rows, b.columns);
  }
  return {};
}

/// Checks that A and B have the same k, and D a row for each of A's.
inline Result<void> check_gemm_sizes(const MutableMatrixView& output, const QuantizedMatrix& a,
                                     const QuantizedMatrix& b) noexcept {
  CUKILN_CHECK(check_operand_sizes("a", a));
  CUKILN_CHECK(check_operand_sizes("b", b));
  CUKILN_CHECK(check_same_columns(a.rows, a.columns, b));
  if (output.rows != a.rows) {
    return kernels::refuse("output is [{}, {}]; expected {} rows, those of a", output.rows,
                           output.columns, a.rows);
  }
  return {};
}

inline Result<void> check_operand_pointers(const char* name,
                                           const QuantizedMatrix& matrix) noexcept {
  CUKILN_CHECK(kernels::check_pointer(name, "data", matrix.data, 16));
  CUKILN_CHECK(kernels::check_pointer(name, "scales", matrix.scales, 16));
  return kernels::check_pointer(name, "global_scale", matrix.global_scale, alignof(GlobalScale));
}

}  // namespace cukiln::nvfp4::detail
