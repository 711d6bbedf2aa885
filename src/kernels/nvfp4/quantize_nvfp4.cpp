// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/device_kernels.hpp"
#include "kernels/nvfp4/quantize_launch.hpp"
#include "kernels_src/nvfp4/quantize_signatures.cuh"

#include <cukiln/nvfp4.hpp>

namespace cukiln::nvfp4 {
namespace {

using kernels::DeviceKernels;
using QuantizeNvfp4 = kernels::KernelSignature<signatures::QuantizeNvfp4>;

}  // namespace

Result<QuantizeStatic> QuantizeStatic::create(KernelLoader& loader, int device) {
  return guarded([&]() -> Result<QuantizeStatic> {
    CUKILN_TRY(const DeviceKernels kernels, DeviceKernels::open(loader, device));
    QuantizeStatic made;
    CUKILN_TRY(made.kernel_, kernels.get<QuantizeNvfp4>("quantize_nvfp4", "quantize_nvfp4"));
    CUKILN_TRY(made.wave_blocks_, kernels.wave_blocks(made.kernel_, kQuantizeThreads));
    made.device_ = kernels.device();
    return made;
  });
}

Result<void> QuantizeStatic::launch(Stream stream, const MutableQuantizedMatrix& output,
                                    const MatrixView& input, float encode_scale) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("QuantizeStatic", device_));
  if (!std::isfinite(encode_scale) || !(encode_scale > 0)) {
    return kernels::refuse("encode_scale is {}; a positive finite number is expected, 2688 / amax",
                           encode_scale);
  }
  CUKILN_CHECK(check_input(input));
  CUKILN_CHECK(check_quantized_output(output, input, input.columns));
  if (input.is_empty()) {
    return {};
  }
  return QuantizeNvfp4::launch(
      kernel_, stream, quantize_config(input.rows, input.columns, wave_blocks_, kQuantizeTiles),
      output.data, output.scales, input.data_as<const std::uint16_t>(), encode_scale,
      static_cast<std::uint32_t>(input.rows), static_cast<std::uint32_t>(input.columns),
      input.row_stride);
}

}  // namespace cukiln::nvfp4
