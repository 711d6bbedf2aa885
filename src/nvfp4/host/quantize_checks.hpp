// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nvfp4/host/ceil_div.hpp"
#include "nvfp4/host/checks.hpp"

#include <cukiln/nvfp4/nvfp4.hpp>

namespace cukiln::nvfp4 {

/// Atoms of the block scales of [rows, columns], padding included.
constexpr std::int64_t atom_count(std::int64_t rows, std::int64_t columns) noexcept {
  return kernels::ceil_div(rows, 128) * kernels::ceil_div(columns, 64);
}

/// The kernels read rows in vectors of 16 bytes. After check_matrix.
inline Result<void> check_row_alignment(const char* name, const MatrixView& matrix) noexcept {
  if (!matrix.is_empty() && matrix.row_stride % 8 != 0) {
    return kernels::refuse(
        "{} has a row stride of {}; expected a multiple of 8, so that rows lie on 16 bytes", name,
        matrix.row_stride);
  }
  return {};
}

/// Checks a bf16 matrix to quantise in blocks of 16 columns.
inline Result<void> check_input(const MatrixView& input) noexcept {
  CUKILN_CHECK(kernels::check_matrix("input", input, DataType::bf16, 16));
  if (input.columns % 16 != 0) {
    return kernels::refuse(
        "input is [{}, {}]; expected a multiple of 16 columns, one block scale each", input.rows,
        input.columns);
  }
  return check_row_alignment("input", input);
}

/// Checks a gate and an up matrix that are one input.
inline Result<void> check_gate_up(const MatrixView& input) noexcept {
  CUKILN_CHECK(kernels::check_matrix("input", input, DataType::bf16, 16));
  if (input.columns % 32 != 0) {
    return kernels::refuse(
        "input is [{}, {}]; expected a multiple of 32 columns: gate and up have a "
        "multiple of 16 each",
        input.rows, input.columns);
  }
  return check_row_alignment("input", input);
}

/// Checks a matrix to write, of `columns` columns and the input's rows, without its global scale.
inline Result<void> check_quantized_output(const MutableQuantizedMatrix& output,
                                           const MatrixView& input, std::int64_t columns) noexcept {
  if (output.rows != input.rows || output.columns != columns) {
    return kernels::refuse("output is [{}, {}]; expected [{}, {}] for an input of [{}, {}]",
                           output.rows, output.columns, input.rows, columns, input.rows,
                           input.columns);
  }
  if (input.is_empty()) {
    return {};
  }
  if (const std::int64_t atoms = atom_count(input.rows, columns); atoms > INT32_MAX) {
    return kernels::refuse("output is [{}, {}], {} scale atoms; expected at most {}", output.rows,
                           output.columns, atoms, INT32_MAX);
  }
  CUKILN_CHECK(kernels::check_pointer("output", "data", output.data, 8));
  return kernels::check_pointer("output", "scales", output.scales, 1);
}

inline Result<void> check_swiglu(const SwiGlu& activation) noexcept {
  if (!(activation.limit > 0)) {
    return kernels::refuse(
        "activation.limit is {}; expected a positive number, infinity for no limit",
        activation.limit);
  }
  return {};
}

inline Result<void> check_divisor(float divisor) noexcept {
  if (!(divisor >= kMinDivisor && divisor <= kMaxDivisor)) {
    return kernels::refuse(
        "divisor is {}; expected a number from {} to {}: the value that amax is scaled to, at "
        "most the largest block scale, 448, times the largest element, 6",
        divisor, kMinDivisor, kMaxDivisor);
  }
  return {};
}

/// `needed` bytes, aligned.
inline Result<void> check_workspace(const Workspace& workspace, std::size_t needed,
                                    std::size_t alignment) noexcept {
  if (needed == 0) {
    return {};
  }
  CUKILN_CHECK(kernels::check_pointer("workspace", "data", workspace.data, alignment));
  if (workspace.size_bytes < needed) {
    return kernels::refuse("workspace has {} bytes; expected {}, see workspace_bytes()",
                           workspace.size_bytes, needed);
  }
  return {};
}

}  // namespace cukiln::nvfp4
