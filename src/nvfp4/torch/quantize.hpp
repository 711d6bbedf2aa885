// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "nvfp4/reference/quantize.hpp"
#include "nvfp4/torch/cuda.hpp"
#include "nvfp4/torch/tensor.hpp"

/// Functions of several ops, for tensors of CPU and CUDA alike. They throw, as ops do.
namespace cukiln::torch {

/// A bf16 matrix with a multiple of 16 columns.
MatrixView require_quantizable(const Tensor& x, const char* name);
/// Checks {encode, decode}: float32 [2] on the device of x.
void require_global_scale(const Tensor& global_scale, const char* name, const Tensor& x);

constexpr std::int64_t scale_rows(std::int64_t rows) noexcept { return (rows + 127) / 128 * 128; }
constexpr std::int64_t scale_columns(std::int64_t columns) noexcept {
  return (columns + 63) / 64 * 4;
}

/// New data [rows, columns / 2] and scales [rows to 128, columns / 16 to 4] on x's device.
struct Quantized {
  Quantized(const Tensor& x, std::int64_t rows, std::int64_t columns);

  nvfp4::MutableQuantizedMatrix view(const Tensor& global_scale) const noexcept;

  Tensor data;
  Tensor scales;
  std::int64_t rows;
  std::int64_t columns;
};

/// Writes the global scale of `matrix`, which is x, as a tensor of two floats.
void write_global_scale(const Tensor& global_scale, const Tensor& x, const MatrixView& matrix,
                        float divisor = nvfp4::kMaxDivisor);
Tensor new_global_scale(const Tensor& x, const MatrixView& matrix,
                        float divisor = nvfp4::kMaxDivisor);

/// Quantises `matrix`, which is x or a copy of it. All tensors are on one device.
void write_quantized(const nvfp4::MutableQuantizedMatrix& output, const Tensor& x,
                     const MatrixView& matrix);
Quantized quantize(const Tensor& x, const MatrixView& matrix, const Tensor& global_scale);

/// A quantised matrix as an op's arguments, and their names in the schema.
struct MatrixArgument {
  const Tensor& data;
  const Tensor& scales;
  const Tensor& global_scale;
  const char* data_name;
  const char* scales_name;
  const char* global_scale_name;
};
Tensor gemm(const MatrixArgument& a, const MatrixArgument& b, const std::optional<Tensor>& bias);

/// Multiplies x, which is not quantised, by b. `constant_b` as in GemmOptions.
Tensor w4a16_gemm(const Tensor& x, const MatrixArgument& b, const std::optional<Tensor>& bias,
                  bool constant_b);

}  // namespace cukiln::torch
