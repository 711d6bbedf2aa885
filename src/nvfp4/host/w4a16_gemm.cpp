// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/host/gemm_checks.hpp"
#include "nvfp4/host/gemm_kernels.hpp"

namespace cukiln::nvfp4 {
namespace {

Result<void> check_bf16_operands(const MatrixView& a, const QuantizedMatrix& b) noexcept {
  CUKILN_CHECK(kernels::check_matrix("a", a, DataType::bf16, 16));
  CUKILN_CHECK(detail::check_operand_sizes("b", b));
  CUKILN_CHECK(detail::check_same_columns(a.rows, a.columns, b));
  CUKILN_CHECK(detail::check_rows_of_b(b));
  if (a.rows > 1 && (a.row_stride < a.columns || a.row_stride % 8 != 0)) {
    return kernels::refuse(
        "a has a row stride of {}; expected a multiple of 8, no less than its {} columns",
        a.row_stride, a.columns);
  }
  return {};
}

}  // namespace

Result<W4a16Gemm> W4a16Gemm::create(KernelLoader& loader, int device) {
  W4a16Gemm made;
  CUKILN_TRY(made.impl_, detail::create_gemm(loader, device, detail::kW4a16Family));
  return made;
}

ModuleNames W4a16Gemm::modules(int capability, std::int64_t max_tokens, std::int64_t n,
                               std::int64_t k) {
  return detail::modules_of(detail::kW4a16Family, capability, max_tokens, n, k);
}

Result<void> W4a16Gemm::launch(Stream stream, const MutableMatrixView& output, const MatrixView& a,
                               const QuantizedMatrix& b, const Workspace& workspace,
                               const GemmOptions& options) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("W4a16Gemm", impl_.get()));
  CUKILN_CHECK(check_bf16_operands(a, b));
  GemmCall call{};
  call.stream = stream;
  call.bf16_a = a;
  call.b = b;
  call.m = static_cast<std::uint32_t>(a.rows);
  return detail::launch_gemm(*impl_, call, output, workspace, options);
}

}  // namespace cukiln::nvfp4
