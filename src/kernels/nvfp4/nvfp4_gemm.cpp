// SPDX-License-Identifier: Apache-2.0
#include "kernels/device_kernels.hpp"
#include "kernels/nvfp4/gemm_architecture.hpp"
#include "kernels/nvfp4/gemm_checks.hpp"
#include "kernels/nvfp4/sm100_plan.hpp"
#include "kernels/nvfp4/sm90_plan.hpp"

namespace cukiln::nvfp4 {
namespace {

using kernels::DeviceKernels;

// The last one is for every device that has no kernels of its own.
constexpr const detail::GemmArchitecture* kArchitectures[] = {
    &detail::kGemmSm90, &detail::kGemmSm100, &detail::kGemmAny};

const detail::GemmArchitecture& architecture_of(int capability) noexcept {
  for (const detail::GemmArchitecture* architecture : kArchitectures) {
    if (architecture->runs_on(capability)) {
      return *architecture;
    }
  }
  return detail::kGemmAny;
}

Result<void> check_operands(const MutableMatrixView& output, const QuantizedMatrix& a,
                            const QuantizedMatrix& b, const GemmOptions& options) noexcept {
  CUKILN_CHECK(kernels::check_dense_matrix("output", output, DataType::bf16, a.rows, b.rows, 16));
  CUKILN_CHECK(detail::check_operand_pointers("a", a));
  CUKILN_CHECK(detail::check_operand_pointers("b", b));
  return kernels::check_optional_vector("bias", options.bias, DataType::bf16, b.rows, 16);
}

}  // namespace

Result<Gemm> Gemm::create(KernelLoader& loader, int device) {
  static_assert(sm90::kKernelCount <= kMaxKernels && kSm100PlainCount <= kMaxKernels);
  return guarded([&]() -> Result<Gemm> {
    CUKILN_TRY(const DeviceKernels kernels, DeviceKernels::open(loader, device));
    CUKILN_CHECK(detail::check_hopper_or_later(kernels.info(), "nvfp4_gemm"));
    Gemm made;
    made.architecture_ = &architecture_of(kernels.info().capability);
    for (std::size_t i = 0; i < made.architecture_->kernel_count; ++i) {
      const detail::GemmKernel& wanted = made.architecture_->kernels[i];
      CUKILN_TRY(made.kernels_[i], kernels.get(wanted.module, wanted.name));
      CUKILN_CHECK(wanted.check(made.kernels_[i]));
      CUKILN_CHECK(made.kernels_[i].reserve_shared(wanted.shared_bytes));
    }
    made.device_ = kernels.device();
    return made;
  });
}

std::size_t Gemm::workspace_bytes(std::int64_t m, std::int64_t n, std::int64_t k) const noexcept {
  return architecture_ == nullptr || m <= 0 || n <= 0 || k <= 0
             ? 0
             : architecture_->workspace_bytes(m, n, k);
}

int Gemm::tactics(std::int64_t m, std::int64_t n, std::int64_t k) const noexcept {
  return architecture_ == nullptr || m <= 0 || n <= 0 || k <= 0
             ? 0
             : static_cast<int>(architecture_->tactics(
                   static_cast<std::uint32_t>(m), static_cast<std::uint32_t>(n),
                   static_cast<std::uint32_t>(k), device_.num_sms));
}

Result<void> Gemm::launch(Stream stream, const MutableMatrixView& output, const QuantizedMatrix& a,
                          const QuantizedMatrix& b, const Workspace& workspace,
                          const GemmOptions& options) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("Gemm", device_));
  CUKILN_CHECK(detail::check_gemm_sizes(output, a, b));
  if (b.rows % 8 != 0) {
    return kernels::refuse("b is [{}, {}]; a multiple of 8 rows is expected", b.rows, b.columns);
  }
  if (output.is_empty()) {
    return {};
  }
  CUKILN_CHECK(check_operands(output, a, b, options));
  CUKILN_CHECK(check_workspace(workspace, workspace_bytes(a.rows, b.rows, a.columns), 16));
  if (options.tactic >= 0 && options.tactic >= tactics(a.rows, b.rows, a.columns)) {
    return kernels::refuse(
        "tactic is {}; [{}, {}, {}] has {}, counted from 0, and -1 selects the one expected to be "
        "fastest",
        options.tactic, a.rows, b.rows, a.columns, tactics(a.rows, b.rows, a.columns));
  }
  return architecture_->launch(
      kernels_, device_.num_sms,
      {stream, output.data_as<std::uint16_t>(), a, b, options.bias.data_as<const std::uint16_t>(),
       static_cast<std::uint32_t>(a.rows), static_cast<std::uint32_t>(b.rows),
       static_cast<std::uint32_t>(a.columns), workspace.data, options.constant_b, options.tactic});
}

}  // namespace cukiln::nvfp4
