// SPDX-License-Identifier: Apache-2.0
#include "kernels/device_kernels.hpp"
#include "kernels/nvfp4/gemm_checks.hpp"
#include "kernels/nvfp4/gemm_kernels.hpp"
#include "kernels/nvfp4/sm100_plan.hpp"

namespace cukiln::nvfp4 {

Result<Gemm> Gemm::create(KernelLoader& loader, int device) {
  static_assert(kSm100PlainCount <= detail::GemmKernels::kMax);
  Gemm made;
  CUKILN_TRY(made.kernels_, detail::create_gemm(loader, device, detail::kGemmFamily));
  return made;
}

std::size_t Gemm::workspace_bytes(std::int64_t m, std::int64_t n, std::int64_t k) const noexcept {
  return detail::workspace_bytes(kernels_, m, n, k);
}

int Gemm::tactics(std::int64_t m, std::int64_t n, std::int64_t k) const noexcept {
  return detail::tactic_count(kernels_, m, n, k);
}

Result<GemmTacticName> Gemm::tactic(std::int64_t m, std::int64_t n, std::int64_t k,
                                    int tactic) const {
  return detail::tactic_name(kernels_, m, n, k, tactic);
}

Result<void> Gemm::keep_tactics(Store& store, const std::vector<MeasuredGemm>& rows) const {
  return detail::keep_tactics(kernels_, store, rows);
}

Result<std::vector<MeasuredGemm>> Gemm::kept_tactics(Store& store) const {
  return detail::kept_tactics(kernels_, store);
}

Result<void> Gemm::launch(Stream stream, const MutableMatrixView& output, const QuantizedMatrix& a,
                          const QuantizedMatrix& b, const Workspace& workspace,
                          const GemmOptions& options) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("Gemm", kernels_.device));
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
  return detail::launch_gemm(kernels_, call, output, workspace, options);
}

}  // namespace cukiln::nvfp4
