// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/torch/quantize.hpp"

#include "nvfp4/reference/gemm.hpp"
#include "nvfp4/torch/host.hpp"

namespace cukiln::torch {

namespace {

nvfp4::QuantizedMatrix require_matrix(const MatrixArgument& matrix, const Tensor& device_of) {
  const Shim& shim = device_of.shim();
  const Tensor& data = matrix.data;
  require_device(data, matrix.data_name, device_of);
  require_device(matrix.scales, matrix.scales_name, device_of);
  require_dtype(data, matrix.data_name, shim.uint8, "uint8");
  require_dtype(matrix.scales, matrix.scales_name, shim.uint8, "uint8");
  if (data.dim() != 2 || data.size(1) % 16 != 0 || data.size(1) == 0) {
    refuse("{} is {}; expected [rows, columns / 2] bytes, columns a multiple of 32",
           matrix.data_name, data.describe());
  }
  const std::int64_t rows = data.size(0);
  const std::int64_t columns = 2 * data.size(1);
  require_dense(data, matrix.data_name, {rows, columns / 2});
  require_dense(matrix.scales, matrix.scales_name, {scale_rows(rows), scale_columns(columns)});
  require_global_scale(matrix.global_scale, matrix.global_scale_name, device_of);
  return {data.data<const std::uint8_t>(), matrix.scales.data<const std::uint8_t>(),
          matrix.global_scale.data<const nvfp4::GlobalScale>(), rows, columns};
}

/// An absent bias is an empty view. Checks that b's rows are a multiple of 8, too.
VectorView require_bias(const std::optional<Tensor>& bias, const MatrixArgument& b,
                        const nvfp4::QuantizedMatrix& matrix, const Tensor& device_of) {
  if (matrix.rows % 8 != 0) {
    refuse("{} is {}; expected a multiple of 8 rows", b.data_name, b.data.describe());
  }
  if (!bias) {
    return {};
  }
  require_device(*bias, "bias", device_of);
  require_dtype(*bias, "bias", device_of.shim().bfloat16, "bfloat16");
  require_dense(*bias, "bias", {matrix.rows});
  return {DataType::bf16, bias->data<const void>(), matrix.rows};
}

/// Either GEMM, on the device of `like`.
template <class Gemm, class A>
Tensor multiply(Result<Gemm> DeviceLaunchers::*launcher, const Tensor& like, const A& a,
                const nvfp4::QuantizedMatrix& b, const nvfp4::GemmOptions& options) {
  const Shim& shim = like.shim();
  Tensor output = empty_like(like, shim.bfloat16, {a.rows, b.rows});
  if (a.rows == 0) {
    return output;
  }
  const MutableMatrixView out(DataType::bf16, output.data<void>(), a.rows, b.rows);
  if (!like.is_cuda()) {
    reference::gemm(out, a, b, options.bias);
    return output;
  }
  const CudaScope scope(host().require_cuda(), like.device());
  const Gemm& gemm = require(scope.launchers.*launcher);
  const std::size_t bytes = gemm.workspace_bytes(a.rows, b.rows, a.columns);
  const Tensor workspace = scratch(shim, like.device(), bytes);
  require(gemm.launch(scope.stream, out, a, b, {workspace.data<void>(), bytes}, options));
  return output;
}

}  // namespace

MatrixView require_quantizable(const Tensor& x, const char* name) {
  const MatrixView matrix = require_bf16_matrix(x, name);
  if (matrix.columns % 16 != 0) {
    refuse("{} is {}; expected a multiple of 16 columns, one block scale each", name, x.describe());
  }
  require_aligned_rows(matrix, x, name);
  return matrix;
}

void require_global_scale(const Tensor& global_scale, const char* name, const Tensor& x) {
  require_device(global_scale, name, x);
  require_dtype(global_scale, name, global_scale.shim().float32, "float32");
  require_dense(global_scale, name, {2});
}

Quantized::Quantized(const Tensor& x, std::int64_t row_count, std::int64_t column_count)
    : data(empty_like(x, x.shim().uint8, {row_count, column_count / 2})),
      scales(empty_like(x, x.shim().uint8, {scale_rows(row_count), scale_columns(column_count)})),
      rows(row_count),
      columns(column_count) {}

nvfp4::MutableQuantizedMatrix Quantized::view(const Tensor& global_scale) const noexcept {
  return {data.data<std::uint8_t>(), scales.data<std::uint8_t>(),
          global_scale.data<const nvfp4::GlobalScale>(), rows, columns};
}

void write_global_scale(const Tensor& global_scale, const Tensor& x, const MatrixView& matrix,
                        float divisor) {
  auto* const scale = global_scale.data<nvfp4::GlobalScale>();
  if (!x.is_cuda()) {
    *scale = reference::compute_global_scale(matrix, divisor);
    return;
  }
  const CudaScope scope(host().require_cuda(), x.device());
  require(require(scope.launchers.global_scale)
              .launch(scope.stream, scale, matrix, scope.zeroed_workspace(), divisor));
}

Tensor new_global_scale(const Tensor& x, const MatrixView& matrix, float divisor) {
  Tensor global_scale = empty_like(x, x.shim().float32, {2});
  write_global_scale(global_scale, x, matrix, divisor);
  return global_scale;
}

void write_quantized(const nvfp4::MutableQuantizedMatrix& output, const Tensor& x,
                     const MatrixView& matrix) {
  if (!x.is_cuda()) {
    reference::quantize(output, matrix);
    return;
  }
  const CudaScope scope(host().require_cuda(), x.device());
  require(require(scope.launchers.quantize).launch(scope.stream, output, matrix));
}

Quantized quantize(const Tensor& x, const MatrixView& matrix, const Tensor& global_scale) {
  require_global_scale(global_scale, "global_scale", x);
  Quantized out(x, matrix.rows, matrix.columns);
  write_quantized(out.view(global_scale), x, matrix);
  return out;
}

Tensor gemm(const MatrixArgument& a, const MatrixArgument& b, const std::optional<Tensor>& bias) {
  const nvfp4::QuantizedMatrix left = require_matrix(a, a.data);
  const nvfp4::QuantizedMatrix right = require_matrix(b, a.data);
  if (left.columns != right.columns) {
    refuse("{} is {} and {} is {}; expected the same number of columns", a.data_name,
           a.data.describe(), b.data_name, b.data.describe());
  }
  nvfp4::GemmOptions options;
  options.bias = require_bias(bias, b, right, a.data);
  return multiply(&DeviceLaunchers::gemm, a.data, left, right, options);
}

Tensor w4a16_gemm(const Tensor& x, const MatrixArgument& b, const std::optional<Tensor>& bias,
                  bool constant_b) {
  const MatrixView left = require_bf16_matrix(x, "x");
  const nvfp4::QuantizedMatrix right = require_matrix(b, x);
  if (left.columns != right.columns) {
    refuse("x is {} and {} is {}; expected twice as many columns in x", x.describe(), b.data_name,
           b.data.describe());
  }
  require_aligned_rows(left, x, "x");
  nvfp4::GemmOptions options;
  options.bias = require_bias(bias, b, right, x);
  options.constant_b = constant_b;
  return multiply(&DeviceLaunchers::w4a16_gemm, x, left, right, options);
}

}  // namespace cukiln::torch
