// SPDX-License-Identifier: Apache-2.0
#include "kernels/nvfp4/gemm_architecture.hpp"
#include "kernels/nvfp4/gemm_checks.hpp"
#include "kernels/shipped_kernel.hpp"

namespace cukiln::nvfp4 {
namespace {

// The last one serves whatever has no kernels of its own.
constexpr const detail::GemmArchitecture* kArchitectures[] = {
    &detail::kGemmSm90, &detail::kGemmSm100, &detail::kGemmSm103, &detail::kGemmAny};

const detail::GemmArchitecture& architecture_of(int capability) noexcept {
  for (const detail::GemmArchitecture* architecture : kArchitectures) {
    if (architecture->capability == capability || architecture->capability == 0) {
      return *architecture;
    }
  }
  return detail::kGemmAny;
}

}  // namespace

Result<Gemm> Gemm::create(KernelLoader& loader) {
  return guarded([&]() -> Result<Gemm> {
    CUKILN_TRY(const DeviceInfo device, detail::hopper_or_later(loader, "nvfp4_gemm"));
    Gemm made;
    made.architecture_ = &architecture_of(device.capability);
    made.multiprocessors_ = device.num_sms;
    if (made.architecture_->kernel_count > kMaxKernels) {
      return make_error(ErrorCode::internal, "kMaxKernels is {}, {} are needed", kMaxKernels,
                        made.architecture_->kernel_count);
    }
    for (std::size_t i = 0; i < made.architecture_->kernel_count; ++i) {
      const detail::GemmKernel& wanted = made.architecture_->kernels[i];
      CUKILN_TRY(made.kernels_[i], kernels::shipped_kernel(loader, wanted.module, wanted.name));
      CUKILN_CHECK(wanted.check(made.kernels_[i]));
      CUKILN_CHECK(made.kernels_[i].reserve_shared(wanted.shared_bytes));
    }
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
                   static_cast<std::uint32_t>(k), multiprocessors_));
}

Result<void> Gemm::launch(Stream stream, std::uint16_t* output, const Matrix& a, const Matrix& b,
                          const std::uint16_t* bias, std::int64_t m, std::int64_t n, std::int64_t k,
                          void* workspace, const GemmOptions& options) const noexcept {
  if (architecture_ == nullptr) {
    return kernels::refuse("an empty Gemm: make it with Gemm::create");
  }
  CUKILN_CHECK(kernels::check_shape(m, k));
  CUKILN_CHECK(kernels::check_shape(n, k));
  CUKILN_CHECK(detail::check_k(k));
  if (n % 8 != 0) {
    return kernels::refuse("n is {}; a multiple of 8 is expected", n);
  }
  if (m == 0 || n == 0) {
    return {};
  }
  CUKILN_CHECK(kernels::check_pointer("output", output, 16));
  CUKILN_CHECK(detail::check_matrix("a.codes", "a.scales", "a.gsa", a));
  CUKILN_CHECK(detail::check_matrix("b.codes", "b.scales", "b.gsa", b));
  if (!kernels::is_aligned(bias, 16)) {
    return kernels::check_pointer("bias", bias, 16);
  }
  if (workspace_bytes(m, n, k) != 0) {
    CUKILN_CHECK(kernels::check_pointer("workspace", workspace, 16));
  }
  if (options.tactic >= 0 && options.tactic >= tactics(m, n, k)) {
    return kernels::refuse(
        "tactic is {}; [{}, {}, {}] has {}, counted from 0, and -1 is the one that "
        "should be fastest",
        options.tactic, m, n, k, tactics(m, n, k));
  }
  return architecture_->launch(
      kernels_, multiprocessors_,
      {stream, output, a, b, bias, static_cast<std::uint32_t>(m), static_cast<std::uint32_t>(n),
       static_cast<std::uint32_t>(k), workspace, options});
}

}  // namespace cukiln::nvfp4
