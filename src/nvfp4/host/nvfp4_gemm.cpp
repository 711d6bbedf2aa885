// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/host/gemm_checks.hpp"
#include "nvfp4/host/gemm_kernels.hpp"

namespace cukiln::nvfp4 {

Result<Gemm> Gemm::create(KernelLoader& loader, int device) {
  Gemm made;
  CUKILN_TRY(made.impl_, detail::create_gemm(loader, device, detail::kGemmFamily));
  return made;
}

ModuleNames Gemm::modules(int capability, std::int64_t max_tokens, std::int64_t n, std::int64_t k) {
  return detail::modules_of(detail::kGemmFamily, capability, max_tokens, n, k);
}

Result<void> Gemm::launch(Stream stream, const MutableMatrixView& output, const QuantizedMatrix& a,
                          const QuantizedMatrix& b, const Workspace& workspace,
                          const GemmOptions& options) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("Gemm", impl_.get()));
  CUKILN_CHECK(detail::check_gemm_sizes(output, a, b));
  CUKILN_CHECK(detail::check_rows_of_b(b));
  if (!output.is_empty()) {
    CUKILN_CHECK(detail::check_operand_pointers("a", a));
  }
  GemmCall call{};
  call.stream = stream;
  call.a = a;
  call.b = b;
  call.m = static_cast<std::uint32_t>(a.rows);
  return detail::launch_gemm(*impl_, call, output, workspace, options);
}

}  // namespace cukiln::nvfp4
