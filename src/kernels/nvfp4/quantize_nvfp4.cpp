// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/nvfp4/quantize_checks.hpp"
#include "kernels/shipped_kernel.hpp"

namespace cukiln::nvfp4 {

Result<QuantizeStatic> QuantizeStatic::create(KernelLoader& loader) {
  return guarded([&]() -> Result<QuantizeStatic> {
    CUKILN_TRY(const Kernel kernel,
               kernels::shipped_kernel(loader, "quantize_nvfp4", "quantize_nvfp4"));
    QuantizeStatic made;
    CUKILN_TRY(made.kernel_, decltype(made.kernel_)::from(kernel));
    return made;
  });
}

Result<void> QuantizeStatic::launch(Stream stream, std::uint8_t* codes, std::uint8_t* scales,
                                    const std::uint16_t* input, float encode_scale,
                                    std::int64_t rows, std::int64_t columns,
                                    std::int64_t row_stride) const noexcept {
  CUKILN_CHECK(check_columns(columns));
  if (!std::isfinite(encode_scale) || !(encode_scale > 0)) {
    return kernels::refuse("encode_scale is {}; a positive finite number is expected, 2688 / amax",
                           encode_scale);
  }
  CUKILN_CHECK(kernels::check_shape(rows, columns));
  if (rows == 0 || columns == 0) {
    return {};
  }
  CUKILN_CHECK(check_quantize(codes, scales, input, rows, columns, columns, row_stride));
  return kernel_.launch(stream, quantize_config(rows, columns), codes, scales, input, encode_scale,
                        static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(columns),
                        row_stride);
}

}  // namespace cukiln::nvfp4
