// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>

#include "kernels_src/nvfp4/quantize_signatures.cuh"
#include "nvfp4/host/device_kernels.hpp"
#include "nvfp4/host/quantize_launch.hpp"

#include <cukiln/nvfp4/nvfp4.hpp>

namespace cukiln::nvfp4 {
namespace {

using kernels::DeviceKernels;
using QuantizeNvfp4 = kernels::KernelSignature<signatures::QuantizeNvfp4>;

}  // namespace

struct QuantizeStatic::Impl {
  kernels::LaunchDevice device;
  std::uint32_t wave_blocks = 0;
  Kernel kernel;
};

Result<QuantizeStatic> QuantizeStatic::create(KernelLoader& loader, int device) {
  return guarded([&]() -> Result<QuantizeStatic> {
    CUKILN_TRY(const DeviceKernels kernels, DeviceKernels::open(loader, device));
    const auto impl = std::make_shared<Impl>();
    CUKILN_TRY(impl->kernel, kernels.get<QuantizeNvfp4>("quantize_nvfp4", "quantize_nvfp4"));
    CUKILN_TRY(impl->wave_blocks, kernels.wave_blocks(impl->kernel, kQuantizeThreads));
    impl->device = kernels.device();
    QuantizeStatic made;
    made.impl_ = impl;
    return made;
  });
}

Result<void> QuantizeStatic::launch(Stream stream, const MutableQuantizedMatrix& output,
                                    const MatrixView& input, float encode_scale) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("QuantizeStatic", impl_.get()));
  if (!std::isfinite(encode_scale) || !(encode_scale > 0)) {
    return kernels::refuse("encode_scale is {}; expected a positive finite number, 2688 / amax",
                           encode_scale);
  }
  CUKILN_CHECK(check_input(input));
  CUKILN_CHECK(check_quantized_output(output, input, input.columns));
  if (input.is_empty()) {
    return {};
  }
  return QuantizeNvfp4::launch(
      impl_->kernel, stream,
      quantize_config(input.rows, input.columns, impl_->wave_blocks, kQuantizeTiles), output.data,
      output.scales, input.data_as<const std::uint16_t>(), encode_scale,
      static_cast<std::uint32_t>(input.rows), static_cast<std::uint32_t>(input.columns),
      input.row_stride);
}

}  // namespace cukiln::nvfp4
