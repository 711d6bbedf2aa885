// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "bindings/torch/cuda.hpp"
#include "bindings/torch/tensor.hpp"
#include "reference/quantize.hpp"

/// What several ops do with tensors of either device. They throw, as ops do.
namespace cukiln::torch {

inline reference::Bf16View view_of(const Bf16Matrix& x) noexcept {
  return {x.data, x.rows, x.columns, x.row_stride};
}

/// Whose columns are a multiple of 16.
Bf16Matrix require_quantizable(const Tensor& x, const char* name);
/// float32 [2] on the device of x.
void require_gsa(const Tensor& gsa, const char* name, const Tensor& x);

constexpr std::int64_t scale_rows(std::int64_t rows) noexcept { return (rows + 127) / 128 * 128; }
constexpr std::int64_t scale_columns(std::int64_t columns) noexcept {
  return (columns + 63) / 64 * 4;
}

/// New codes [rows, columns / 2] and scales [rows to 128, columns / 16 to 4] on x's device.
struct Quantized {
  Quantized(const Tensor& x, std::int64_t rows, std::int64_t columns);
  Tensor codes;
  Tensor scales;
};

/// Memory of PyTorch's for the rest of an op, zeroed in the stream's order.
Tensor zeroed(const Cuda& cuda, const CudaScope& scope, const Tensor& device_of, std::size_t bytes);

/// x is of the device of them all.
void write_amax_gsa(const Tensor& gsa, const Tensor& x, const Bf16Matrix& matrix);
void write_quantized(const Tensor& codes, const Tensor& scales, const Tensor& x,
                     const Bf16Matrix& matrix, const Tensor& gsa);
Tensor amax_gsa(const Tensor& x, const Bf16Matrix& matrix);
Quantized quantize(const Tensor& x, const Bf16Matrix& matrix, const Tensor& gsa);

/// A quantised matrix as an op's arguments, and their names.
struct MatrixArgument {
  const Tensor& codes;
  const Tensor& scales;
  const Tensor& gsa;
  const char* codes_name;
  const char* scales_name;
  const char* gsa_name;
};
Tensor gemm(const MatrixArgument& a, const MatrixArgument& b, const std::optional<Tensor>& bias);

}  // namespace cukiln::torch
