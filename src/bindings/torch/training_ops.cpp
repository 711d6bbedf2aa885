// SPDX-License-Identifier: Apache-2.0
// A linear layer for training: y = x · Wᵀ + b and the products of its two gradients, all of NVFP4
// matrices. A product sums along the columns of both its operands, and blocks of sixteen lie along
// columns: so what is summed along another dimension in backward, W and x, is also quantised
// transposed, with the same global scale.
//
//     forward   y  [m, n] = Q(x)   · Q(w)ᵀ      sums over k
//     dgrad     dx [m, k] = Q(dy)  · Q(wᵀ)ᵀ     sums over n
//     wgrad     dw [n, k] = Q(dyᵀ) · Q(xᵀ)ᵀ     sums over m, filled up to a multiple of 32 with 0
#include "bindings/torch/host.hpp"
#include "bindings/torch/ops.hpp"
#include "bindings/torch/quantize.hpp"

namespace cukiln::torch {

namespace {

constexpr std::int64_t filled_up(std::int64_t rows) noexcept { return (rows + 31) / 32 * 32; }

Bf16Matrix dense(const Tensor& tensor, std::int64_t rows, std::int64_t columns) noexcept {
  return {tensor.data<const std::uint16_t>(), rows, columns, columns};
}

/// New [columns, rows filled up], by PyTorch's own copy.
Tensor transposed(const Tensor& x, const Bf16Matrix& matrix) {
  const std::int64_t width = filled_up(matrix.rows);
  Tensor out = empty_like(x, x.shim().bfloat16, {matrix.columns, width});
  if (width != matrix.rows) {
    out.zero();
  }
  out.view({matrix.columns, matrix.rows}, {width, 1})
      .copy_from(x.view({matrix.columns, matrix.rows}, {1, matrix.row_stride}));
  return out;
}

Quantized quantize_transposed(const Tensor& x, const Bf16Matrix& matrix, const Tensor& gsa) {
  const Tensor turned = transposed(x, matrix);
  return quantize(turned, dense(turned, matrix.columns, filled_up(matrix.rows)), gsa);
}

/// Both sizes a multiple of 32, because either is summed over.
Bf16Matrix require_weight(const Tensor& weight) {
  const Bf16Matrix matrix = require_bf16_matrix(weight, "weight");
  if (matrix.rows == 0 || matrix.columns == 0 || matrix.rows % 32 != 0 ||
      matrix.columns % 32 != 0) {
    refuse("weight is {}; positive multiples of 32 are expected, because gradients sum over both",
           weight.describe());
  }
  require_aligned_rows(matrix, weight, "weight");
  return matrix;
}

void require_quantized(const Tensor& codes, const char* codes_name, const Tensor& scales,
                       const char* scales_name, std::int64_t rows, std::int64_t columns,
                       const Tensor& device_of) {
  const Shim& shim = device_of.shim();
  require_device(codes, codes_name, device_of);
  require_device(scales, scales_name, device_of);
  require_dtype(codes, codes_name, shim.uint8, "uint8");
  require_dtype(scales, scales_name, shim.uint8, "uint8");
  require_dense(codes, codes_name, {rows, columns / 2});
  require_dense(scales, scales_name, {scale_rows(rows), scale_columns(columns)});
}

void quantize_weight(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor weight = arguments.tensor();
  const Tensor wq = arguments.tensor();
  const Tensor wsf = arguments.tensor();
  const Tensor wtq = arguments.tensor();
  const Tensor wtsf = arguments.tensor();
  const Tensor gsa = arguments.tensor();
  const Bf16Matrix matrix = require_weight(weight);
  require_quantized(wq, "wq", wsf, "wsf", matrix.rows, matrix.columns, weight);
  require_quantized(wtq, "wtq", wtsf, "wtsf", matrix.columns, matrix.rows, weight);
  require_gsa(gsa, "gsa", weight);
  write_amax_gsa(gsa, weight, matrix);
  write_quantized(wq, wsf, weight, matrix, gsa);
  const Tensor turned = transposed(weight, matrix);
  write_quantized(wtq, wtsf, turned, dense(turned, matrix.columns, matrix.rows), gsa);
}

void linear_fwd(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor x = arguments.tensor();
  const Tensor weight = arguments.tensor();
  const Tensor wq = arguments.tensor();
  const Tensor wsf = arguments.tensor();
  const Tensor wtq = arguments.tensor();
  const Tensor wtsf = arguments.tensor();
  const Tensor wgsa = arguments.tensor();
  const std::optional<Tensor> bias = arguments.optional_tensor();
  const Bf16Matrix matrix = require_bf16_matrix(x, "x");
  const Bf16Matrix weights = require_weight(weight);
  require_device(weight, "weight", x);
  require_quantized(wq, "wq", wsf, "wsf", weights.rows, weights.columns, x);
  require_quantized(wtq, "wtq", wtsf, "wtsf", weights.columns, weights.rows, x);
  if (matrix.columns != weights.columns) {
    refuse("x is {} and weight {}: both have the same number of columns", x.describe(),
           weight.describe());
  }
  require_aligned_rows(matrix, x, "x");
  Tensor gsa = amax_gsa(x, matrix);
  const Quantized q = quantize(x, matrix, gsa);
  Tensor y =
      gemm({q.codes, q.scales, gsa, "x", "x", "x"}, {wq, wsf, wgsa, "wq", "wsf", "wgsa"}, bias);
  Quantized turned = quantize_transposed(x, matrix, gsa);
  stack[0] = y.release();
  stack[1] = turned.codes.release();
  stack[2] = turned.scales.release();
  stack[3] = gsa.release();
}

void linear_dgrad(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor dy = arguments.tensor();
  const Tensor wtq = arguments.tensor();
  const Tensor wtsf = arguments.tensor();
  const Tensor wgsa = arguments.tensor();
  const Bf16Matrix matrix = require_quantizable(dy, "dy");
  const Tensor gsa = amax_gsa(dy, matrix);
  const Quantized q = quantize(dy, matrix, gsa);
  stack[0] = gemm({q.codes, q.scales, gsa, "dy", "dy", "dy"},
                  {wtq, wtsf, wgsa, "wtq", "wtsf", "wgsa"}, std::nullopt)
                 .release();
}

void linear_wgrad(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor dy = arguments.tensor();
  const Tensor xtq = arguments.tensor();
  const Tensor xtsf = arguments.tensor();
  const Tensor xgsa = arguments.tensor();
  const Bf16Matrix matrix = require_bf16_matrix(dy, "dy");
  if (xtq.dim() != 2 || 2 * xtq.size(1) != filled_up(matrix.rows)) {
    refuse("xtq is {}; for dy {}, [in_features, {}] is expected", xtq.describe(), dy.describe(),
           filled_up(matrix.rows) / 2);
  }
  if (matrix.rows == 0) {
    Tensor nothing = empty_like(dy, dy.shim().bfloat16, {matrix.columns, xtq.size(0)});
    nothing.zero();
    stack[0] = nothing.release();
    return;
  }
  const Tensor gsa = amax_gsa(dy, matrix);
  const Quantized q = quantize_transposed(dy, matrix, gsa);
  stack[0] = gemm({q.codes, q.scales, gsa, "dy", "dy", "dy"},
                  {xtq, xtsf, xgsa, "xtq", "xtsf", "xgsa"}, std::nullopt)
                 .release();
}

constexpr Op kOps[] = {
    {"quantize_weight_",
     "quantize_weight_(Tensor weight, Tensor(a!) wq, Tensor(b!) wsf, Tensor(c!) wtq, Tensor(d!) "
     "wtsf, Tensor(e!) wgsa) -> ()",
     quantize_weight},
    {"linear_fwd",
     "linear_fwd(Tensor x, Tensor weight, Tensor wq, Tensor wsf, Tensor wtq, Tensor wtsf, Tensor "
     "wgsa, Tensor? bias=None) -> (Tensor y, Tensor xtq, Tensor xtsf, Tensor xgsa)",
     linear_fwd},
    {"linear_dgrad", "linear_dgrad(Tensor dy, Tensor wtq, Tensor wtsf, Tensor wgsa) -> Tensor",
     linear_dgrad},
    {"linear_wgrad", "linear_wgrad(Tensor dy, Tensor xtq, Tensor xtsf, Tensor xgsa) -> Tensor",
     linear_wgrad},
};

}  // namespace

std::span<const Op> training_ops() noexcept { return kOps; }

}  // namespace cukiln::torch
