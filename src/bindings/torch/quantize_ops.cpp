// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "bindings/torch/host.hpp"
#include "bindings/torch/ops.hpp"
#include "bindings/torch/quantize.hpp"
#include "reference/gemm.hpp"
#include "reference/quantize.hpp"

namespace cukiln::torch {

namespace {

constexpr double kLargestFloat = 3.4028234663852886e38;

nvfp4::GateUpLayout layout_of(bool interleaved) noexcept {
  return interleaved ? nvfp4::GateUpLayout::pairs : nvfp4::GateUpLayout::halves;
}

nvfp4::SwiGlu swiglu_of(double limit, double alpha, double beta) {
  if (!(limit > 0)) {
    refuse("limit is {}; a positive number is expected, infinity for no limit", limit);
  }
  return {static_cast<float>(limit), static_cast<float>(alpha), static_cast<float>(beta)};
}

/// [rows, 2 * columns] of gate and up.
Bf16Matrix require_gate_up(const Tensor& x) {
  const Bf16Matrix matrix = require_bf16_matrix(x, "x");
  if (matrix.columns % 32 != 0) {
    refuse("x is {}; gate and up have a multiple of 16 columns each", x.describe());
  }
  require_aligned_rows(matrix, x, "x");
  return matrix;
}

void amax_gsa_op(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor x = arguments.tensor();
  stack[0] = amax_gsa(x, require_bf16_matrix(x, "x")).release();
}

void quantize_nvfp4(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor x = arguments.tensor();
  const double encode_scale = arguments.number();
  const Bf16Matrix matrix = require_quantizable(x, "x");
  if (!(encode_scale > 0 && encode_scale <= kLargestFloat)) {
    refuse("encode_scale is {}; 2688 / amax, positive and finite, is expected", encode_scale);
  }
  Quantized out(x, matrix.rows, matrix.columns);
  const auto encode = static_cast<float>(encode_scale);
  if (x.is_cuda()) {
    const Cuda& cuda = host().require_cuda();
    const CudaScope scope(cuda, x.device());
    require(require(cuda.quantize_static)
                .launch(scope.stream, out.codes.data<std::uint8_t>(),
                        out.scales.data<std::uint8_t>(), matrix.data, encode, matrix.rows,
                        matrix.columns, matrix.row_stride));
  } else {
    reference::quantize(out.codes.data<std::uint8_t>(), out.scales.data<std::uint8_t>(),
                        view_of(matrix), {encode, 1.0f / encode});
  }
  stack[0] = out.codes.release();
  stack[1] = out.scales.release();
}

void quantize_nvfp4_from_buffer(StableValue* stack, std::uint64_t /*arguments*/,
                                std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor x = arguments.tensor();
  const Tensor gsa = arguments.tensor();
  const Bf16Matrix matrix = require_quantizable(x, "x");
  Quantized out = quantize(x, matrix, gsa);
  stack[0] = out.codes.release();
  stack[1] = out.scales.release();
}

/// Of [gate | up], or of SwiGLU where `activation` is given.
Quantized quantize_gate_up(const Tensor& x, const Tensor& gsa, nvfp4::GateUpLayout layout,
                           const nvfp4::SwiGlu* activation) {
  const Bf16Matrix matrix = require_gate_up(x);
  require_gsa(gsa, "gsa", x);
  const std::int64_t width = matrix.columns / 2;
  const std::int64_t columns = activation != nullptr ? width : matrix.columns;
  Quantized out(x, matrix.rows, columns);
  auto* const codes = out.codes.data<std::uint8_t>();
  auto* const scales = out.scales.data<std::uint8_t>();
  const auto* const scale = gsa.data<const float>();
  if (x.is_cuda()) {
    const Cuda& cuda = host().require_cuda();
    const CudaScope scope(cuda, x.device());
    const nvfp4::DeinterleaveQuantize& kernel = require(cuda.deinterleave);
    require(activation != nullptr
                ? kernel.launch_swiglu(scope.stream, codes, scales, matrix.data, scale, matrix.rows,
                                       width, matrix.row_stride, layout, *activation)
                : kernel.launch(scope.stream, codes, scales, matrix.data, scale, matrix.rows, width,
                                matrix.row_stride, layout));
    return out;
  }
  std::vector<std::uint16_t> y(static_cast<std::size_t>(matrix.rows * columns));
  if (activation != nullptr) {
    reference::swiglu(y.data(), view_of(matrix), layout, *activation);
  } else {
    reference::deinterleave(y.data(), view_of(matrix), layout);
  }
  reference::quantize(codes, scales, {y.data(), matrix.rows, columns, columns},
                      {scale[0], scale[1]});
  return out;
}

void deinterleave_quantize_from_buffer(StableValue* stack, std::uint64_t /*arguments*/,
                                       std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor x = arguments.tensor();
  const Tensor gsa = arguments.tensor();
  const bool interleaved = arguments.flag();
  Quantized out = quantize_gate_up(x, gsa, layout_of(interleaved), nullptr);
  stack[0] = out.codes.release();
  stack[1] = out.scales.release();
}

void swiglu_quantize_from_buffer(StableValue* stack, std::uint64_t /*arguments*/,
                                 std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor x = arguments.tensor();
  const Tensor gsa = arguments.tensor();
  const double limit = arguments.number();
  const double alpha = arguments.number();
  const double beta = arguments.number();
  const bool interleaved = arguments.flag();
  const nvfp4::SwiGlu activation = swiglu_of(limit, alpha, beta);
  Quantized out = quantize_gate_up(x, gsa, layout_of(interleaved), &activation);
  stack[0] = out.codes.release();
  stack[1] = out.scales.release();
}

void swiglu_amax_gsa(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor x = arguments.tensor();
  const double limit = arguments.number();
  const double alpha = arguments.number();
  const double beta = arguments.number();
  const nvfp4::GateUpLayout layout = layout_of(arguments.flag());
  const nvfp4::SwiGlu activation = swiglu_of(limit, alpha, beta);
  const Bf16Matrix matrix = require_gate_up(x);
  const std::int64_t width = matrix.columns / 2;
  Tensor gsa = empty_like(x, x.shim().float32, {2});
  auto* const out = gsa.data<float>();
  if (x.is_cuda()) {
    const Cuda& cuda = host().require_cuda();
    const CudaScope scope(cuda, x.device());
    const Tensor workspace = zeroed(cuda, scope, x, nvfp4::AmaxGsa::kWorkspaceBytes);
    require(require(cuda.swiglu_amax)
                .launch(scope.stream, out, matrix.data, matrix.rows, width, matrix.row_stride,
                        layout, activation, workspace.data<std::uint32_t>()));
  } else {
    std::vector<std::uint16_t> y(static_cast<std::size_t>(matrix.rows * width));
    reference::swiglu(y.data(), view_of(matrix), layout, activation);
    const reference::GlobalScale scale = reference::amax_gsa({y.data(), matrix.rows, width, width});
    out[0] = scale.encode;
    out[1] = scale.decode;
  }
  stack[0] = gsa.release();
}

void gemm_op(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor a_codes = arguments.tensor();
  const Tensor a_scales = arguments.tensor();
  const Tensor a_gsa = arguments.tensor();
  const Tensor b_codes = arguments.tensor();
  const Tensor b_scales = arguments.tensor();
  const Tensor b_gsa = arguments.tensor();
  const std::optional<Tensor> bias = arguments.optional_tensor();
  stack[0] = gemm({a_codes, a_scales, a_gsa, "a_codes", "a_scales", "a_gsa"},
                  {b_codes, b_scales, b_gsa, "b_codes", "b_scales", "b_gsa"}, bias)
                 .release();
}

constexpr Op kOps[] = {
    {"amax_gsa", "amax_gsa(Tensor x) -> Tensor", amax_gsa_op},
    {"quantize_nvfp4", "quantize_nvfp4(Tensor x, float encode_scale) -> (Tensor, Tensor)",
     quantize_nvfp4},
    {"quantize_nvfp4_from_buffer",
     "quantize_nvfp4_from_buffer(Tensor x, Tensor gsa) -> (Tensor, Tensor)",
     quantize_nvfp4_from_buffer},
    {"deinterleave_quantize_from_buffer",
     "deinterleave_quantize_from_buffer(Tensor x, Tensor gsa, bool interleaved=False) -> (Tensor, "
     "Tensor)",
     deinterleave_quantize_from_buffer},
    {"swiglu_quantize_from_buffer",
     "swiglu_quantize_from_buffer(Tensor x, Tensor gsa, float limit, float alpha=1.0, float "
     "beta=0.0, bool interleaved=False) -> (Tensor, Tensor)",
     swiglu_quantize_from_buffer},
    {"swiglu_amax_gsa",
     "swiglu_amax_gsa(Tensor x, float limit, float alpha=1.0, float beta=0.0, bool "
     "interleaved=False) -> Tensor",
     swiglu_amax_gsa},
    {"gemm",
     "gemm(Tensor a_codes, Tensor a_scales, Tensor a_gsa, Tensor b_codes, Tensor b_scales, Tensor "
     "b_gsa, Tensor? bias=None) -> Tensor",
     gemm_op},
};

}  // namespace

std::span<const Op> quantize_ops() noexcept { return kOps; }

}  // namespace cukiln::torch
