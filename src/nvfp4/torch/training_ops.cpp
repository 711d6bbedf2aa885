// SPDX-License-Identifier: Apache-2.0
// A linear layer for training: y = x · Wᵀ + b and the GEMMs of its two gradients, all of NVFP4
// matrices. A GEMM sums along the columns of both operands, and blocks of sixteen lie along
// columns. W and x are summed along their other dimension in backward: they are also quantised
// transposed, with the same global scale.
//
//     forward   y  [m, n] = Q(x)   · Q(w)ᵀ      sums over k
//     dgrad     dx [m, k] = Q(dy)  · Q(wᵀ)ᵀ     sums over n
//     wgrad     dw [n, k] = Q(dyᵀ) · Q(xᵀ)ᵀ     sums over m, padded to a multiple of 32 with 0
#include "nvfp4/torch/host.hpp"
#include "nvfp4/torch/ops.hpp"
#include "nvfp4/torch/quantize.hpp"

namespace cukiln::torch {

namespace {

constexpr std::int64_t padded(std::int64_t rows) noexcept { return (rows + 31) / 32 * 32; }

MatrixView dense(const Tensor& tensor, std::int64_t rows, std::int64_t columns) noexcept {
  return {DataType::bf16, tensor.data<const void>(), rows, columns};
}

/// New [columns, padded rows], by PyTorch's own copy.
Tensor transposed(const Tensor& x, const MatrixView& matrix) {
  const std::int64_t width = padded(matrix.rows);
  Tensor out = empty_like(x, x.shim().bfloat16, {matrix.columns, width});
  if (width != matrix.rows) {
    out.zero();
  }
  out.view({matrix.columns, matrix.rows}, {width, 1})
      .copy_from(x.view({matrix.columns, matrix.rows}, {1, matrix.row_stride}));
  return out;
}

Quantized quantize_transposed(const Tensor& x, const MatrixView& matrix,
                              const Tensor& global_scale) {
  const Tensor turned = transposed(x, matrix);
  return quantize(turned, dense(turned, matrix.columns, padded(matrix.rows)), global_scale);
}

/// Checks a weight: both sizes are multiples of 32, because both are summed over.
MatrixView require_weight(const Tensor& weight) {
  const MatrixView matrix = require_bf16_matrix(weight, "weight");
  if (matrix.rows == 0 || matrix.columns == 0 || matrix.rows % 32 != 0 ||
      matrix.columns % 32 != 0) {
    refuse("weight is {}; expected positive multiples of 32, because gradients sum over both",
           weight.describe());
  }
  require_aligned_rows(matrix, weight, "weight");
  return matrix;
}

void require_quantized(const Tensor& data, const char* data_name, const Tensor& scales,
                       const char* scales_name, std::int64_t rows, std::int64_t columns,
                       const Tensor& device_of) {
  const Shim& shim = device_of.shim();
  require_device(data, data_name, device_of);
  require_device(scales, scales_name, device_of);
  require_dtype(data, data_name, shim.uint8, "uint8");
  require_dtype(scales, scales_name, shim.uint8, "uint8");
  require_dense(data, data_name, {rows, columns / 2});
  require_dense(scales, scales_name, {scale_rows(rows), scale_columns(columns)});
}

void quantize_weight(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor weight = arguments.tensor();
  const Tensor w_data = arguments.tensor();
  const Tensor w_scales = arguments.tensor();
  const Tensor wt_data = arguments.tensor();
  const Tensor wt_scales = arguments.tensor();
  const Tensor global_scale = arguments.tensor();
  const MatrixView matrix = require_weight(weight);
  require_quantized(w_data, "w_data", w_scales, "w_scales", matrix.rows, matrix.columns, weight);
  require_quantized(wt_data, "wt_data", wt_scales, "wt_scales", matrix.columns, matrix.rows,
                    weight);
  require_global_scale(global_scale, "global_scale", weight);
  write_global_scale(global_scale, weight, matrix);
  const auto output = [&](const Tensor& data, const Tensor& scales, std::int64_t rows,
                          std::int64_t columns) {
    return nvfp4::MutableQuantizedMatrix{data.data<std::uint8_t>(), scales.data<std::uint8_t>(),
                                         global_scale.data<const nvfp4::GlobalScale>(), rows,
                                         columns};
  };
  write_quantized(output(w_data, w_scales, matrix.rows, matrix.columns), weight, matrix);
  const Tensor turned = transposed(weight, matrix);
  write_quantized(output(wt_data, wt_scales, matrix.columns, matrix.rows), turned,
                  dense(turned, matrix.columns, matrix.rows));
}

void linear_fwd(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor x = arguments.tensor();
  const Tensor weight = arguments.tensor();
  const Tensor w_data = arguments.tensor();
  const Tensor w_scales = arguments.tensor();
  const Tensor wt_data = arguments.tensor();
  const Tensor wt_scales = arguments.tensor();
  const Tensor w_global_scale = arguments.tensor();
  const std::optional<Tensor> bias = arguments.optional_tensor();
  const MatrixView matrix = require_bf16_matrix(x, "x");
  const MatrixView weights = require_weight(weight);
  require_device(weight, "weight", x);
  require_quantized(w_data, "w_data", w_scales, "w_scales", weights.rows, weights.columns, x);
  require_quantized(wt_data, "wt_data", wt_scales, "wt_scales", weights.columns, weights.rows, x);
  if (matrix.columns != weights.columns) {
    refuse("x is {} and weight {}; expected the same number of columns", x.describe(),
           weight.describe());
  }
  require_aligned_rows(matrix, x, "x");
  Tensor global_scale = new_global_scale(x, matrix);
  const Quantized q = quantize(x, matrix, global_scale);
  Tensor y = gemm({q.data, q.scales, global_scale, "x", "x", "x"},
                  {w_data, w_scales, w_global_scale, "w_data", "w_scales", "w_global_scale"}, bias);
  Quantized turned = quantize_transposed(x, matrix, global_scale);
  stack[0] = y.release();
  stack[1] = turned.data.release();
  stack[2] = turned.scales.release();
  stack[3] = global_scale.release();
}

void linear_dgrad(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor dy = arguments.tensor();
  const Tensor wt_data = arguments.tensor();
  const Tensor wt_scales = arguments.tensor();
  const Tensor w_global_scale = arguments.tensor();
  const MatrixView matrix = require_quantizable(dy, "dy");
  const Tensor global_scale = new_global_scale(dy, matrix);
  const Quantized q = quantize(dy, matrix, global_scale);
  stack[0] = gemm({q.data, q.scales, global_scale, "dy", "dy", "dy"},
                  {wt_data, wt_scales, w_global_scale, "wt_data", "wt_scales", "w_global_scale"},
                  std::nullopt)
                 .release();
}

void linear_wgrad(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor dy = arguments.tensor();
  const Tensor xt_data = arguments.tensor();
  const Tensor xt_scales = arguments.tensor();
  const Tensor x_global_scale = arguments.tensor();
  const MatrixView matrix = require_bf16_matrix(dy, "dy");
  if (xt_data.dim() != 2 || 2 * xt_data.size(1) != padded(matrix.rows)) {
    refuse("xt_data is {}; expected [in_features, {}] for dy {}", xt_data.describe(),
           padded(matrix.rows) / 2, dy.describe());
  }
  if (matrix.rows == 0) {
    Tensor nothing = empty_like(dy, dy.shim().bfloat16, {matrix.columns, xt_data.size(0)});
    nothing.zero();
    stack[0] = nothing.release();
    return;
  }
  const Tensor global_scale = new_global_scale(dy, matrix);
  const Quantized q = quantize_transposed(dy, matrix, global_scale);
  stack[0] = gemm({q.data, q.scales, global_scale, "dy", "dy", "dy"},
                  {xt_data, xt_scales, x_global_scale, "xt_data", "xt_scales", "x_global_scale"},
                  std::nullopt)
                 .release();
}

constexpr Op kTrainingOps[] = {
    {"quantize_weight_",
     "quantize_weight_(Tensor weight, Tensor(a!) w_data, Tensor(b!) w_scales, Tensor(c!) wt_data, "
     "Tensor(d!) "
     "wt_scales, Tensor(e!) w_global_scale) -> ()",
     quantize_weight},
    {"linear_fwd",
     "linear_fwd(Tensor x, Tensor weight, Tensor w_data, Tensor w_scales, Tensor wt_data, Tensor "
     "wt_scales, Tensor "
     "w_global_scale, Tensor? bias=None) -> (Tensor y, Tensor xt_data, Tensor xt_scales, Tensor "
     "x_global_scale)",
     linear_fwd},
    {"linear_dgrad",
     "linear_dgrad(Tensor dy, Tensor wt_data, Tensor wt_scales, Tensor w_global_scale) -> Tensor",
     linear_dgrad},
    {"linear_wgrad",
     "linear_wgrad(Tensor dy, Tensor xt_data, Tensor xt_scales, Tensor x_global_scale) -> Tensor",
     linear_wgrad},
};

}  // namespace

std::span<const Op> training_ops() noexcept { return kTrainingOps; }

}  // namespace cukiln::torch
