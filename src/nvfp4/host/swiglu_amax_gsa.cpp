// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "kernels_src/nvfp4/quantize_signatures.cuh"
#include "nvfp4/host/amax_launch.hpp"
#include "nvfp4/host/device_kernels.hpp"
#include "nvfp4/host/quantize_checks.hpp"

#include <cukiln/nvfp4/nvfp4.hpp>

namespace cukiln::nvfp4 {
namespace {

using kernels::DeviceKernels;
using SwiGluAmaxGsa = kernels::KernelSignature<signatures::SwigluAmaxGsa>;

}  // namespace

struct ComputeSwiGluGlobalScale::Impl {
  kernels::LaunchDevice device;
  std::uint32_t max_blocks = 0;
  Kernel kernel;
};

Result<ComputeSwiGluGlobalScale> ComputeSwiGluGlobalScale::create(KernelLoader& loader,
                                                                  int device) {
  return guarded([&]() -> Result<ComputeSwiGluGlobalScale> {
    CUKILN_TRY(const DeviceKernels kernels, DeviceKernels::open(loader, device));
    const auto impl = std::make_shared<Impl>();
    CUKILN_TRY(impl->kernel, kernels.get<SwiGluAmaxGsa>("swiglu_amax_gsa", "swiglu_amax_gsa"));
    CUKILN_TRY(impl->max_blocks, kernels.wave_blocks(impl->kernel, kAmaxThreads));
    impl->device = kernels.device();
    ComputeSwiGluGlobalScale made;
    made.impl_ = impl;
    return made;
  });
}

std::size_t ComputeSwiGluGlobalScale::workspace_bytes() const noexcept {
  return impl_ ? amax_workspace_bytes(impl_->max_blocks) : 0;
}

Result<void> ComputeSwiGluGlobalScale::launch(Stream stream, GlobalScale* scale,
                                              const MatrixView& input, GateUpLayout layout,
                                              const SwiGlu& activation,
                                              const Workspace& workspace) const noexcept {
  return launch(stream, scale, input, layout, activation, workspace, kMaxDivisor);
}

Result<void> ComputeSwiGluGlobalScale::launch(Stream stream, GlobalScale* scale,
                                              const MatrixView& input, GateUpLayout layout,
                                              const SwiGlu& activation, const Workspace& workspace,
                                              float divisor) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("ComputeSwiGluGlobalScale", impl_.get()));
  const std::int64_t columns = input.columns / 2;
  CUKILN_CHECK(check_gate_up(input));
  CUKILN_CHECK(check_swiglu(activation));
  CUKILN_CHECK(check_divisor(divisor));
  CUKILN_CHECK(kernels::check_pointer("scale", scale, alignof(GlobalScale)));
  CUKILN_CHECK(check_workspace(workspace, workspace_bytes(), 4));
  const std::int64_t scale_blocks = input.rows * (columns / 16);
  if (scale_blocks > INT32_MAX) {
    return kernels::refuse("input is [{}, {}], {} blocks of 16 values; expected at most {}",
                           input.rows, input.columns, scale_blocks, INT32_MAX);
  }
  return SwiGluAmaxGsa::launch(
      impl_->kernel, stream, amax_config(scale_blocks, kAmaxThreads, impl_->max_blocks),
      &scale->encode, input.data_as<const std::uint16_t>(), static_cast<std::uint32_t>(input.rows),
      static_cast<std::uint32_t>(columns), input.row_stride, static_cast<std::uint32_t>(layout),
      activation.limit, activation.alpha, activation.beta,
      static_cast<std::uint32_t*>(workspace.data), divisor);
}

}  // namespace cukiln::nvfp4
