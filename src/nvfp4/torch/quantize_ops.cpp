// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "nvfp4/reference/gemm.hpp"
#include "nvfp4/reference/quantize.hpp"
#include "nvfp4/torch/host.hpp"
#include "nvfp4/torch/ops.hpp"
#include "nvfp4/torch/quantize.hpp"

namespace cukiln::torch {

namespace {

constexpr double kLargestFloat = 3.4028234663852886e38;

nvfp4::GateUpLayout layout_of(bool interleaved) noexcept {
  return interleaved ? nvfp4::GateUpLayout::pairs : nvfp4::GateUpLayout::halves;
}

nvfp4::SwiGlu swiglu_of(double limit, double alpha, double beta) {
  if (!(limit > 0)) {
    refuse("limit is {}; expected a positive number, infinity for no limit", limit);
  }
  return {static_cast<float>(limit), static_cast<float>(alpha), static_cast<float>(beta)};
}

float divisor_of(double divisor) {
  if (!(divisor >= double{nvfp4::kMinDivisor} && divisor <= double{nvfp4::kMaxDivisor})) {
    refuse(
        "divisor is {}; expected a number from {} to {}: the value that amax is scaled to, at "
        "most the largest block scale, 448, times the largest element, 6",
        divisor, nvfp4::kMinDivisor, nvfp4::kMaxDivisor);
  }
  return static_cast<float>(divisor);
}

/// Checks [rows, 2 * columns] of gate and up.
MatrixView require_gate_up(const Tensor& x) {
  const MatrixView matrix = require_bf16_matrix(x, "x");
  if (matrix.columns % 32 != 0) {
    refuse("x is {}; expected a multiple of 16 columns for gate and for up", x.describe());
  }
  require_aligned_rows(matrix, x, "x");
  return matrix;
}

void amax_gsa_op(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor x = arguments.tensor();
  const float divisor = divisor_of(arguments.number());
  stack[0] = new_global_scale(x, require_bf16_matrix(x, "x"), divisor).release();
}

/// amax_gsa and quantize_nvfp4_from_buffer, in this order.
void fused_amax_quantize_nvfp4(StableValue* stack, std::uint64_t /*arguments*/,
                               std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor x = arguments.tensor();
  const float divisor = divisor_of(arguments.number());
  const MatrixView matrix = require_quantizable(x, "x");
  Tensor global_scale = new_global_scale(x, matrix, divisor);
  Quantized out = quantize(x, matrix, global_scale);
  stack[0] = out.data.release();
  stack[1] = out.scales.release();
  stack[2] = global_scale.release();
}

void quantize_nvfp4(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor x = arguments.tensor();
  const double encode_scale = arguments.number();
  const MatrixView matrix = require_quantizable(x, "x");
  if (!(encode_scale > 0 && encode_scale <= kLargestFloat)) {
    refuse("encode_scale is {}; expected 2688 / amax, positive and finite", encode_scale);
  }
  Quantized out(x, matrix.rows, matrix.columns);
  const auto encode = static_cast<float>(encode_scale);
  const nvfp4::GlobalScale scale = {encode, 1.0f / encode};
  nvfp4::MutableQuantizedMatrix output = {out.data.data<std::uint8_t>(),
                                          out.scales.data<std::uint8_t>(), nullptr, out.rows,
                                          out.columns};
  if (x.is_cuda()) {
    const CudaScope scope(host().require_cuda(), x.device());
    require(require(scope.launchers.quantize_static)
                .launch(scope.stream, output, matrix, scale.encode));
  } else {
    output.global_scale = &scale;
    reference::quantize(output, matrix);
  }
  stack[0] = out.data.release();
  stack[1] = out.scales.release();
}

void quantize_nvfp4_from_buffer(StableValue* stack, std::uint64_t /*arguments*/,
                                std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor x = arguments.tensor();
  const Tensor global_scale = arguments.tensor();
  const MatrixView matrix = require_quantizable(x, "x");
  Quantized out = quantize(x, matrix, global_scale);
  stack[0] = out.data.release();
  stack[1] = out.scales.release();
}

/// Quantises gate and up if `activation` is null, else SwiGLU of them. `layout` says how x holds
/// them.
Quantized quantize_gate_up(const Tensor& x, const Tensor& global_scale, nvfp4::GateUpLayout layout,
                           const nvfp4::SwiGlu* activation) {
  const MatrixView matrix = require_gate_up(x);
  require_global_scale(global_scale, "global_scale", x);
  const std::int64_t columns = activation != nullptr ? matrix.columns / 2 : matrix.columns;
  Quantized out(x, matrix.rows, columns);
  const nvfp4::MutableQuantizedMatrix output = out.view(global_scale);
  if (x.is_cuda()) {
    const CudaScope scope(host().require_cuda(), x.device());
    const nvfp4::DeinterleaveQuantize& kernel = require(scope.launchers.deinterleave);
    require(activation != nullptr
                ? kernel.launch_swiglu(scope.stream, output, matrix, layout, *activation)
                : kernel.launch(scope.stream, output, matrix, layout));
    return out;
  }
  std::vector<std::uint16_t> values(static_cast<std::size_t>(matrix.rows * columns));
  const MutableMatrixView y(DataType::bf16, values.data(), matrix.rows, columns);
  if (activation != nullptr) {
    reference::swiglu(y, matrix, layout, *activation);
  } else {
    reference::deinterleave(y, matrix, layout);
  }
  reference::quantize(output, y);
  return out;
}

void deinterleave_quantize_from_buffer(StableValue* stack, std::uint64_t /*arguments*/,
                                       std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor x = arguments.tensor();
  const Tensor global_scale = arguments.tensor();
  const bool interleaved = arguments.flag();
  Quantized out = quantize_gate_up(x, global_scale, layout_of(interleaved), nullptr);
  stack[0] = out.data.release();
  stack[1] = out.scales.release();
}

void swiglu_quantize_from_buffer(StableValue* stack, std::uint64_t /*arguments*/,
                                 std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor x = arguments.tensor();
  const Tensor global_scale = arguments.tensor();
  const double limit = arguments.number();
  const double alpha = arguments.number();
  const double beta = arguments.number();
  const bool interleaved = arguments.flag();
  const nvfp4::SwiGlu activation = swiglu_of(limit, alpha, beta);
  Quantized out = quantize_gate_up(x, global_scale, layout_of(interleaved), &activation);
  stack[0] = out.data.release();
  stack[1] = out.scales.release();
}

void swiglu_amax_gsa(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor x = arguments.tensor();
  const double limit = arguments.number();
  const double alpha = arguments.number();
  const double beta = arguments.number();
  const nvfp4::GateUpLayout layout = layout_of(arguments.flag());
  const float divisor = divisor_of(arguments.number());
  const nvfp4::SwiGlu activation = swiglu_of(limit, alpha, beta);
  const MatrixView matrix = require_gate_up(x);
  Tensor global_scale = empty_like(x, x.shim().float32, {2});
  auto* const scale = global_scale.data<nvfp4::GlobalScale>();
  if (x.is_cuda()) {
    const CudaScope scope(host().require_cuda(), x.device());
    require(require(scope.launchers.swiglu_global_scale)
                .launch(scope.stream, scale, matrix, layout, activation, scope.zeroed_workspace(),
                        divisor));
  } else {
    const std::int64_t columns = matrix.columns / 2;
    std::vector<std::uint16_t> values(static_cast<std::size_t>(matrix.rows * columns));
    const MutableMatrixView y(DataType::bf16, values.data(), matrix.rows, columns);
    reference::swiglu(y, matrix, layout, activation);
    *scale = reference::compute_global_scale(y, divisor);
  }
  stack[0] = global_scale.release();
}

void gemm_op(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor a_data = arguments.tensor();
  const Tensor a_scales = arguments.tensor();
  const Tensor a_global_scale = arguments.tensor();
  const Tensor b_data = arguments.tensor();
  const Tensor b_scales = arguments.tensor();
  const Tensor b_global_scale = arguments.tensor();
  const std::optional<Tensor> bias = arguments.optional_tensor();
  stack[0] = gemm({a_data, a_scales, a_global_scale, "a_data", "a_scales", "a_global_scale"},
                  {b_data, b_scales, b_global_scale, "b_data", "b_scales", "b_global_scale"}, bias)
                 .release();
}

void w4a16_gemm_op(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor x = arguments.tensor();
  const Tensor b_data = arguments.tensor();
  const Tensor b_scales = arguments.tensor();
  const Tensor b_global_scale = arguments.tensor();
  const std::optional<Tensor> bias = arguments.optional_tensor();
  const bool constant_b = arguments.flag();
  stack[0] =
      w4a16_gemm(x, {b_data, b_scales, b_global_scale, "b_data", "b_scales", "b_global_scale"},
                 bias, constant_b)
          .release();
}

constexpr Op kQuantizeOps[] = {
    {"amax_gsa", "amax_gsa(Tensor x, float divisor=2688.0) -> Tensor", amax_gsa_op},
    {"fused_amax_quantize_nvfp4",
     "fused_amax_quantize_nvfp4(Tensor x, float divisor=2688.0) -> (Tensor, Tensor, Tensor)",
     fused_amax_quantize_nvfp4},
    {"quantize_nvfp4", "quantize_nvfp4(Tensor x, float encode_scale) -> (Tensor, Tensor)",
     quantize_nvfp4},
    {"quantize_nvfp4_from_buffer",
     "quantize_nvfp4_from_buffer(Tensor x, Tensor global_scale) -> (Tensor, Tensor)",
     quantize_nvfp4_from_buffer},
    {"deinterleave_quantize_from_buffer",
     "deinterleave_quantize_from_buffer(Tensor x, Tensor global_scale, bool interleaved=False) -> "
     "(Tensor, "
     "Tensor)",
     deinterleave_quantize_from_buffer},
    {"swiglu_quantize_from_buffer",
     "swiglu_quantize_from_buffer(Tensor x, Tensor global_scale, float limit, float alpha=1.0, "
     "float "
     "beta=0.0, bool interleaved=False) -> (Tensor, Tensor)",
     swiglu_quantize_from_buffer},
    {"swiglu_amax_gsa",
     "swiglu_amax_gsa(Tensor x, float limit, float alpha=1.0, float beta=0.0, bool "
     "interleaved=False, float divisor=2688.0) -> Tensor",
     swiglu_amax_gsa},
    {"gemm",
     "gemm(Tensor a_data, Tensor a_scales, Tensor a_global_scale, Tensor b_data, Tensor b_scales, "
     "Tensor b_global_scale, Tensor? bias=None) -> Tensor",
     gemm_op},
    {"w4a16_gemm",
     "w4a16_gemm(Tensor x, Tensor b_data, Tensor b_scales, Tensor b_global_scale, Tensor? "
     "bias=None, bool constant_b=False) -> Tensor",
     w4a16_gemm_op},
};

}  // namespace

std::span<const Op> quantize_ops() noexcept { return kQuantizeOps; }

}  // namespace cukiln::torch
