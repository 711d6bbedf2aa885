// SPDX-License-Identifier: Apache-2.0
#include <iterator>

#include "kernels/nvfp4/gemm_checks.hpp"
#include "kernels/nvfp4/sm100_launch.hpp"
#include "kernels/shipped_kernel.hpp"

namespace cukiln::nvfp4 {

Result<GroupedGemm> GroupedGemm::create(KernelLoader& loader) {
  return guarded([&]() -> Result<GroupedGemm> {
    CUKILN_TRY(const auto devices, loader.devices());
    const int capability = devices.empty() ? 0 : devices.front().capability;
    if (!runs_on(capability)) {
      return make_error(ErrorCode::incompatible,
                        "grouped NVFP4 products run on compute capability 10.0 and 10.3; {}",
                        devices.empty() ? "no device is visible"
                                        : "the first visible device is " + devices.front().name);
    }
    GroupedGemm made;
    made.multiprocessors_ = devices.front().num_sms;
    static_assert(std::size(decltype(made.kernels_){}) == std::size(kSm100Kernels) - kSm100Grouped);
    for (std::size_t i = 0; i < std::size(made.kernels_); ++i) {
      const Sm100Kernel& wanted = kSm100Kernels[kSm100Grouped + i];
      CUKILN_TRY(made.kernels_[i], kernels::shipped_kernel(loader, "nvfp4_gemm", wanted.name));
      CUKILN_CHECK((detail::check_sm100<const std::int32_t*, std::uint32_t>(made.kernels_[i])));
      CUKILN_CHECK(made.kernels_[i].reserve_shared(wanted.shared_bytes));
    }
    return made;
  });
}

Result<void> GroupedGemm::launch(Stream stream, std::uint16_t* output, const Matrix& a,
                                 const Matrix& b, const std::uint16_t* bias,
                                 const std::int32_t* row_experts,
                                 const Shape& shape) const noexcept {
  if (multiprocessors_ == 0) {
    return kernels::refuse("an empty GroupedGemm: make it with GroupedGemm::create");
  }
  CUKILN_CHECK(kernels::check_shape(shape.rows, shape.k));
  CUKILN_CHECK(kernels::check_shape(shape.n, shape.experts));
  CUKILN_CHECK(kernels::check_shape(shape.n * shape.experts, shape.k));
  CUKILN_CHECK(detail::check_k(shape.k));
  if (shape.n == 0 || shape.n % 128 != 0) {
    return kernels::refuse("n is {}; a positive multiple of 128 is expected", shape.n);
  }
  if (shape.experts == 0) {
    return kernels::refuse("experts is 0; those that have a matrix in b are expected");
  }
  if (shape.rows == 0) {
    return {};
  }
  CUKILN_CHECK(kernels::check_pointer("output", output, 16));
  CUKILN_CHECK(detail::check_matrix("a.codes", "a.scales", "a.gsa", a));
  CUKILN_CHECK(detail::check_matrix("b.codes", "b.scales", "b.gsa", b));
  CUKILN_CHECK(kernels::check_pointer("row_experts", row_experts, 4));
  if (!kernels::is_aligned(bias, 16)) {
    return kernels::check_pointer("bias", bias, 16);
  }
  const Sm100Kernel& chosen = quickest_sm100(kSm100Grouped, std::size(kSm100Kernels), shape.rows,
                                             shape.n, multiprocessors_);
  const Sm100Plan plan = plan_sm100(chosen, {a.codes, a.scales, shape.rows},
                                    {b.codes, b.scales, shape.n * shape.experts}, output, shape.n,
                                    shape.k, multiprocessors_);
  const Kernel& kernel = kernels_[&chosen - kSm100Kernels - kSm100Grouped];
  return detail::launch_sm100(
      kernel, stream, plan, a.gsa, b.gsa, bias, static_cast<std::uint32_t>(shape.rows),
      static_cast<std::uint32_t>(shape.n), static_cast<std::uint32_t>(shape.k), row_experts,
      std::uint32_t{shape.a_scale_per_expert ? 2u : 0u});
}

}  // namespace cukiln::nvfp4
