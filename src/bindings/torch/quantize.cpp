// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/quantize.hpp"

#include "bindings/torch/host.hpp"
#include "reference/gemm.hpp"

namespace cukiln::torch {

namespace {

struct Sizes {
  std::int64_t rows;
  std::int64_t columns;
};

Sizes require_matrix(const MatrixArgument& matrix, const Tensor& device_of) {
  const Shim& shim = device_of.shim();
  require_device(matrix.codes, matrix.codes_name, device_of);
  require_device(matrix.scales, matrix.scales_name, device_of);
  require_dtype(matrix.codes, matrix.codes_name, shim.uint8, "uint8");
  require_dtype(matrix.scales, matrix.scales_name, shim.uint8, "uint8");
  if (matrix.codes.dim() != 2 || matrix.codes.size(1) % 16 != 0 || matrix.codes.size(1) == 0) {
    refuse("{} is {}; [rows, columns / 2] bytes are expected, columns a multiple of 32",
           matrix.codes_name, matrix.codes.describe());
  }
  const Sizes sizes = {matrix.codes.size(0), 2 * matrix.codes.size(1)};
  require_dense(matrix.codes, matrix.codes_name, {sizes.rows, sizes.columns / 2});
  require_dense(matrix.scales, matrix.scales_name,
                {scale_rows(sizes.rows), scale_columns(sizes.columns)});
  require_gsa(matrix.gsa, matrix.gsa_name, device_of);
  return sizes;
}

nvfp4::Matrix pointers(const MatrixArgument& matrix) noexcept {
  return {matrix.codes.data<const std::uint8_t>(), matrix.scales.data<const std::uint8_t>(),
          matrix.gsa.data<const float>()};
}

}  // namespace

Bf16Matrix require_quantizable(const Tensor& x, const char* name) {
  const Bf16Matrix matrix = require_bf16_matrix(x, name);
  if (matrix.columns % 16 != 0) {
    refuse("{} is {}; a multiple of 16 columns is expected, one block scale each", name,
           x.describe());
  }
  require_aligned_rows(matrix, x, name);
  return matrix;
}

void require_gsa(const Tensor& gsa, const char* name, const Tensor& x) {
  require_device(gsa, name, x);
  require_dtype(gsa, name, gsa.shim().float32, "float32");
  require_dense(gsa, name, {2});
}

Quantized::Quantized(const Tensor& x, std::int64_t rows, std::int64_t columns)
    : codes(empty_like(x, x.shim().uint8, {rows, columns / 2})),
      scales(empty_like(x, x.shim().uint8, {scale_rows(rows), scale_columns(columns)})) {}

Tensor zeroed(const Cuda& cuda, const CudaScope& scope, const Tensor& device_of,
              std::size_t bytes) {
  Tensor memory = empty_like(device_of, device_of.shim().uint8, {static_cast<std::int64_t>(bytes)});
  const Driver& driver = cuda.driver;
  if (const auto result = driver.cuMemsetD8Async(memory.data<void>(), 0, bytes, scope.stream);
      result != Driver::kSuccess) {
    raise(driver.error("cuMemsetD8Async", result));
  }
  return memory;
}

void write_amax_gsa(const Tensor& gsa, const Tensor& x, const Bf16Matrix& matrix) {
  auto* const out = gsa.data<float>();
  if (!x.is_cuda()) {
    const reference::GlobalScale scale = reference::amax_gsa(view_of(matrix));
    out[0] = scale.encode;
    out[1] = scale.decode;
    return;
  }
  const Cuda& cuda = host().require_cuda();
  const CudaScope scope(cuda, x.device());
  const Tensor workspace = zeroed(cuda, scope, x, nvfp4::AmaxGsa::kWorkspaceBytes);
  require(require(cuda.amax).launch(scope.stream, out, matrix.data, matrix.rows, matrix.columns,
                                    matrix.row_stride, workspace.data<std::uint32_t>()));
}

void write_quantized(const Tensor& codes, const Tensor& scales, const Tensor& x,
                     const Bf16Matrix& matrix, const Tensor& gsa) {
  auto* const code = codes.data<std::uint8_t>();
  auto* const scale = scales.data<std::uint8_t>();
  const auto* const global = gsa.data<const float>();
  if (!x.is_cuda()) {
    reference::quantize(code, scale, view_of(matrix), {global[0], global[1]});
    return;
  }
  const Cuda& cuda = host().require_cuda();
  const CudaScope scope(cuda, x.device());
  require(require(cuda.quantize)
              .launch(scope.stream, code, scale, matrix.data, global, matrix.rows, matrix.columns,
                      matrix.row_stride));
}

Tensor amax_gsa(const Tensor& x, const Bf16Matrix& matrix) {
  Tensor gsa = empty_like(x, x.shim().float32, {2});
  write_amax_gsa(gsa, x, matrix);
  return gsa;
}

Quantized quantize(const Tensor& x, const Bf16Matrix& matrix, const Tensor& gsa) {
  require_gsa(gsa, "gsa", x);
  Quantized out(x, matrix.rows, matrix.columns);
  write_quantized(out.codes, out.scales, x, matrix, gsa);
  return out;
}

Tensor gemm(const MatrixArgument& a, const MatrixArgument& b, const std::optional<Tensor>& bias) {
  const Shim& shim = a.codes.shim();
  const Sizes left = require_matrix(a, a.codes);
  const Sizes right = require_matrix(b, a.codes);
  if (left.columns != right.columns) {
    refuse("{} is {} and {} is {}: both have the same number of columns", a.codes_name,
           a.codes.describe(), b.codes_name, b.codes.describe());
  }
  if (right.rows % 8 != 0) {
    refuse("{} is {}; a multiple of 8 rows is expected", b.codes_name, b.codes.describe());
  }
  if (bias) {
    require_device(*bias, "bias", a.codes);
    require_dtype(*bias, "bias", shim.bfloat16, "bfloat16");
    require_dense(*bias, "bias", {right.rows});
  }
  const std::uint16_t* const offsets = bias ? bias->data<const std::uint16_t>() : nullptr;
  Tensor output = empty_like(a.codes, shim.bfloat16, {left.rows, right.rows});
  auto* const out = output.data<std::uint16_t>();
  if (left.rows == 0) {
    return output;
  }
  if (a.codes.is_cuda()) {
    const Cuda& cuda = host().require_cuda();
    const CudaScope scope(cuda, a.codes.device());
    const nvfp4::Gemm& kernel = require(cuda.gemm);
    const Tensor workspace = zeroed(
        cuda, scope, a.codes, kernel.workspace_bytes(left.rows, right.rows, left.columns) + 16);
    require(kernel.launch(scope.stream, out, pointers(a), pointers(b), offsets, left.rows,
                          right.rows, left.columns, workspace.data<void>()));
  } else {
    reference::gemm(out, pointers(a), pointers(b), offsets, left.rows, right.rows, left.columns);
  }
  return output;
}

}  // namespace cukiln::torch
