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
using AmaxGsa = kernels::KernelSignature<signatures::AmaxGsa>;
using AmaxGsaByRow = kernels::KernelSignature<signatures::AmaxGsaByRow>;

constexpr std::int64_t kWarps = kAmaxThreads / 32;  // each takes a segment, or a row, at a time
constexpr std::int64_t kSegmentElements = 1024;
constexpr std::uint32_t kMaxWaves = 2;  // measured on an H200: 1 to 3 % faster than one

/// Checks what both launches take.
Result<void> check_amax(const GlobalScale* scale, const MatrixView& input,
                        const Workspace& workspace, std::size_t workspace_bytes,
                        float divisor) noexcept {
  CUKILN_CHECK(kernels::check_matrix("input", input, DataType::bf16, 2));
  CUKILN_CHECK(check_divisor(divisor));
  CUKILN_CHECK(kernels::check_pointer("scale", scale, alignof(GlobalScale)));
  return check_workspace(workspace, workspace_bytes, 4);
}

}  // namespace

struct ComputeGlobalScale::Impl {
  kernels::LaunchDevice device;
  std::uint32_t max_blocks = 0;
  Kernel kernel;
  Kernel by_row;
};

Result<ComputeGlobalScale> ComputeGlobalScale::create(KernelLoader& loader, int device) {
  return guarded([&]() -> Result<ComputeGlobalScale> {
    CUKILN_TRY(const DeviceKernels kernels, DeviceKernels::open(loader, device));
    const auto impl = std::make_shared<Impl>();
    CUKILN_TRY(impl->kernel, kernels.get<AmaxGsa>("amax_gsa", "amax_gsa"));
    CUKILN_TRY(impl->by_row, kernels.get<AmaxGsaByRow>("amax_gsa", "amax_gsa_by_row"));
    CUKILN_TRY(const std::uint32_t wave_blocks, kernels.wave_blocks(impl->kernel, kAmaxThreads));
    impl->max_blocks = kMaxWaves * wave_blocks;
    impl->device = kernels.device();
    ComputeGlobalScale made;
    made.impl_ = impl;
    return made;
  });
}

std::size_t ComputeGlobalScale::workspace_bytes() const noexcept {
  return impl_ ? amax_workspace_bytes(impl_->max_blocks) : 0;
}

Result<void> ComputeGlobalScale::launch(Stream stream, GlobalScale* scale, const MatrixView& input,
                                        const Workspace& workspace) const noexcept {
  return launch(stream, scale, input, workspace, kMaxDivisor);
}

Result<void> ComputeGlobalScale::launch(Stream stream, GlobalScale* scale, const MatrixView& input,
                                        const Workspace& workspace, float divisor) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("ComputeGlobalScale", impl_.get()));
  CUKILN_CHECK(check_amax(scale, input, workspace, workspace_bytes(), divisor));
  const auto segments_of = [](std::int64_t elements) {
    return kernels::ceil_div(elements, kSegmentElements);
  };
  // The kernel treats rows without gaps as one row.
  const std::int64_t segments = input.row_stride == input.columns
                                    ? segments_of(input.rows * input.columns)
                                    : input.rows * segments_of(input.columns);
  if (segments > INT32_MAX) {
    return kernels::refuse("input is [{}, {}], {} segments of {} elements; expected at most {}",
                           input.rows, input.columns, segments, kSegmentElements, INT32_MAX);
  }
  return AmaxGsa::launch(impl_->kernel, stream, amax_config(segments, kWarps, impl_->max_blocks),
                         &scale->encode, input.data_as<const std::uint16_t>(),
                         static_cast<std::uint32_t>(input.rows),
                         static_cast<std::uint32_t>(input.columns), input.row_stride,
                         static_cast<std::uint32_t*>(workspace.data), divisor);
}

Result<void> ComputeGlobalScale::launch_by_row(Stream stream, GlobalScale* scale,
                                               const MutableVectorView& row_amax,
                                               const MatrixView& input,
                                               const Workspace& workspace) const noexcept {
  return launch_by_row(stream, scale, row_amax, input, workspace, kMaxDivisor);
}

Result<void> ComputeGlobalScale::launch_by_row(Stream stream, GlobalScale* scale,
                                               const MutableVectorView& row_amax,
                                               const MatrixView& input, const Workspace& workspace,
                                               float divisor) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("ComputeGlobalScale", impl_.get()));
  CUKILN_CHECK(check_amax(scale, input, workspace, workspace_bytes(), divisor));
  CUKILN_CHECK(kernels::check_dense_vector("row_amax", row_amax, DataType::f32, input.rows, 4));
  return AmaxGsaByRow::launch(
      impl_->by_row, stream, amax_config(input.rows, kWarps, impl_->max_blocks), &scale->encode,
      row_amax.data_as<float>(), input.data_as<const std::uint16_t>(),
      static_cast<std::uint32_t>(input.rows), static_cast<std::uint32_t>(input.columns),
      input.row_stride, static_cast<std::uint32_t*>(workspace.data), divisor);
}

}  // namespace cukiln::nvfp4
