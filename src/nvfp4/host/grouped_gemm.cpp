// SPDX-License-Identifier: Apache-2.0
#include <iterator>
#include <memory>

#include "nvfp4/host/ceil_div.hpp"
#include "nvfp4/host/device_kernels.hpp"
#include "nvfp4/host/gemm_checks.hpp"
#include "nvfp4/host/sm100_launch.hpp"
#include "nvfp4/host/sm100_select.hpp"

namespace cukiln::nvfp4 {
namespace {

using kernels::DeviceKernels;

constexpr std::int64_t kGroupRows = 128;

/// Checks n, the output's columns, and that B has n rows for each of at least one expert.
Result<void> check_experts(const MutableMatrixView& output, const QuantizedMatrix& b) noexcept {
  const std::int64_t n = output.columns;
  if (n <= 0 || n > INT32_MAX || n % 128 != 0) {
    return kernels::refuse("output is [{}, {}]; expected a positive multiple of 128 columns",
                           output.rows, n);
  }
  if (b.rows == 0 || b.rows % n != 0) {
    return kernels::refuse(
        "b is [{}, {}]; expected a positive multiple of {} rows, the "
        "output's columns for each expert",
        b.rows, b.columns, n);
  }
  return {};
}

Result<void> check_operands(const MutableMatrixView& output, const QuantizedMatrix& a,
                            const QuantizedMatrix& b, const VectorView& row_experts,
                            const GroupedGemmOptions& options) noexcept {
  const std::int64_t n = output.columns;
  if (options.a_scale_per_expert && options.a_scale_per_row) {
    return kernels::refuse("a_scale_per_expert and a_scale_per_row are set; expected one of them");
  }
  CUKILN_CHECK(kernels::check_dense_matrix("output", output, DataType::bf16, a.rows, n, 16));
  CUKILN_CHECK(detail::check_operand_pointers("a", a));
  CUKILN_CHECK(detail::check_operand_pointers("b", b));
  CUKILN_CHECK(kernels::check_dense_vector("row_experts", row_experts, DataType::i32,
                                           kernels::ceil_div(a.rows, kGroupRows), 4));
  return options.bias.data == nullptr
             ? Result<void>()
             : kernels::check_dense_matrix("bias", options.bias, DataType::bf16, b.rows / n, n, 16);
}

}  // namespace

struct GroupedGemm::Impl {
  kernels::LaunchDevice device;
  Kernel kernels[2];  // tiles of 128 and of 256 columns
};

Result<GroupedGemm> GroupedGemm::create(KernelLoader& loader, int device) {
  static_assert(std::size(kSm100Kernels) - kSm100Grouped == 2);
  return guarded([&]() -> Result<GroupedGemm> {
    CUKILN_TRY(const DeviceKernels kernels, DeviceKernels::open(loader, device));
    if (!runs_on(kernels.info().capability)) {
      return make_error(ErrorCode::incompatible,
                        "device {}, {}, has compute capability {}.{}; grouped NVFP4 GEMMs run on "
                        "10.0, 10.3, 10.7 and 11.0",
                        device, kernels.info().name, kernels.info().capability / 10,
                        kernels.info().capability % 10);
    }
    const auto impl = std::make_shared<Impl>();
    for (std::size_t i = 0; i < std::size(impl->kernels); ++i) {
      const Sm100Kernel& wanted = kSm100Kernels[kSm100Grouped + i];
      CUKILN_TRY(impl->kernels[i],
                 kernels.get<detail::Sm100GroupedGemm>(wanted.module, wanted.name));
      CUKILN_CHECK(impl->kernels[i].reserve_shared(wanted.shared_bytes));
    }
    impl->device = kernels.device();
    GroupedGemm made;
    made.impl_ = impl;
    return made;
  });
}

Result<void> GroupedGemm::launch(Stream stream, const MutableMatrixView& output,
                                 const QuantizedMatrix& a, const QuantizedMatrix& b,
                                 const VectorView& row_experts,
                                 const GroupedGemmOptions& options) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("GroupedGemm", impl_.get()));
  CUKILN_CHECK(detail::check_gemm_sizes(output, a, b));
  CUKILN_CHECK(check_experts(output, b));
  if (a.rows == 0) {
    return {};
  }
  CUKILN_CHECK(check_operands(output, a, b, row_experts, options));
  const std::int64_t n = output.columns;
  const Sm100Kernel& chosen =
      select_sm100_grouped({a.rows, n, a.columns, impl_->device.num_sms, b.rows / n});
  const Sm100Plan plan = plan_sm100(chosen, a, b, output.data, n, impl_->device.num_sms);
  return detail::launch_sm100<detail::Sm100GroupedGemm>(
      impl_->kernels[&chosen - kSm100Kernels - kSm100Grouped], stream, plan, a.global_scale,
      b.global_scale, options.bias.data_as<const std::uint16_t>(),
      static_cast<std::uint32_t>(a.rows), static_cast<std::uint32_t>(n),
      static_cast<std::uint32_t>(a.columns), row_experts.data_as<const std::int32_t>(),
      options.a_scale_per_row      ? 2u
      : options.a_scale_per_expert ? 1u
                                   : 0u,
      options.group_count);
}

}  // namespace cukiln::nvfp4
