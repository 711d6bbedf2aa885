// SPDX-License-Identifier: Apache-2.0
#include "kernels/device_kernels.hpp"
#include "kernels/nvfp4/amax_launch.hpp"
#include "kernels/nvfp4/quantize_checks.hpp"
#include "kernels_src/nvfp4/quantize_signatures.cuh"

#include <cukiln/nvfp4.hpp>

namespace cukiln::nvfp4 {
namespace {

using kernels::DeviceKernels;
using SwiGluAmaxGsa = kernels::KernelSignature<signatures::SwigluAmaxGsa>;

}  // namespace

Result<ComputeSwiGluGlobalScale> ComputeSwiGluGlobalScale::create(KernelLoader& loader,
                                                                  int device) {
  return guarded([&]() -> Result<ComputeSwiGluGlobalScale> {
    CUKILN_TRY(const DeviceKernels kernels, DeviceKernels::open(loader, device));
    ComputeSwiGluGlobalScale made;
    CUKILN_TRY(made.kernel_, kernels.get<SwiGluAmaxGsa>("swiglu_amax_gsa", "swiglu_amax_gsa"));
    CUKILN_TRY(made.max_blocks_, kernels.wave_blocks(made.kernel_, kAmaxThreads));
    made.device_ = kernels.device();
    return made;
  });
}

std::size_t ComputeSwiGluGlobalScale::workspace_bytes() const noexcept {
  return amax_workspace_bytes(max_blocks_);
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
  CUKILN_CHECK(kernels::check_launch_device("ComputeSwiGluGlobalScale", device_));
  const std::int64_t columns = input.columns / 2;
  CUKILN_CHECK(check_gate_up(input));
  CUKILN_CHECK(check_swiglu(activation));
  CUKILN_CHECK(check_divisor(divisor));
  CUKILN_CHECK(kernels::check_pointer("scale", scale, alignof(GlobalScale)));
  CUKILN_CHECK(check_workspace(workspace, workspace_bytes(), 4));
  const std::int64_t scale_blocks = input.rows * (columns / 16);
  if (scale_blocks > INT32_MAX) {
    return kernels::refuse("input is [{}, {}], {} blocks of 16 values; at most {} are expected",
                           input.rows, input.columns, scale_blocks, INT32_MAX);
  }
  return SwiGluAmaxGsa::launch(
      kernel_, stream, amax_config(scale_blocks, kAmaxThreads, max_blocks_), &scale->encode,
      input.data_as<const std::uint16_t>(), static_cast<std::uint32_t>(input.rows),
      static_cast<std::uint32_t>(columns), input.row_stride, static_cast<std::uint32_t>(layout),
      activation.limit, activation.alpha, activation.beta,
      static_cast<std::uint32_t*>(workspace.data), divisor);
}

}  // namespace cukiln::nvfp4
