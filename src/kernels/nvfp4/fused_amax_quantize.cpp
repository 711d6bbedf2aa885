// SPDX-License-Identifier: Apache-2.0
#include "kernels/nvfp4/quantize_checks.hpp"
#include "kernels/shipped_kernel.hpp"

namespace cukiln::nvfp4 {
namespace {

const char* module_of(Formula formula) noexcept {
  return formula == Formula::fast ? "fused_amax_quantize_fast" : "fused_amax_quantize";
}

const char* swiglu_module_of(Formula formula) noexcept {
  return formula == Formula::fast ? "swiglu_quantize_fast" : "swiglu_quantize";
}

}  // namespace

Result<Quantize> Quantize::create(KernelLoader& loader, Formula formula) {
  return guarded([&]() -> Result<Quantize> {
    CUKILN_TRY(const Kernel kernel,
               kernels::shipped_kernel(loader, module_of(formula), "quantize_nvfp4_from_buffer"));
    Quantize made;
    CUKILN_TRY(made.kernel_, decltype(made.kernel_)::from(kernel));
    return made;
  });
}

Result<void> Quantize::launch(Stream stream, std::uint8_t* codes, std::uint8_t* scales,
                              const std::uint16_t* input, const float* gsa, std::int64_t rows,
                              std::int64_t columns, std::int64_t row_stride) const noexcept {
  CUKILN_CHECK(check_columns(columns));
  CUKILN_CHECK(kernels::check_shape(rows, columns));
  if (rows == 0 || columns == 0) {
    return {};
  }
  CUKILN_CHECK(kernels::check_pointer("gsa", gsa, 4));
  CUKILN_CHECK(check_quantize(codes, scales, input, rows, columns, columns, row_stride));
  return kernel_.launch(stream, quantize_config(rows, columns), codes, scales, input, gsa,
                        static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(columns),
                        row_stride);
}

Result<DeinterleaveQuantize> DeinterleaveQuantize::create(KernelLoader& loader, Formula formula) {
  return guarded([&]() -> Result<DeinterleaveQuantize> {
    CUKILN_TRY(const Kernel halves,
               kernels::shipped_kernel(loader, module_of(formula), "quantize_nvfp4_from_buffer"));
    CUKILN_TRY(const Kernel pairs, kernels::shipped_kernel(loader, module_of(formula),
                                                           "deinterleave_quantize_from_buffer"));
    CUKILN_TRY(const Kernel swiglu, kernels::shipped_kernel(loader, swiglu_module_of(formula),
                                                            "swiglu_quantize_from_buffer"));
    DeinterleaveQuantize made;
    CUKILN_TRY(made.halves_, decltype(made.halves_)::from(halves));
    CUKILN_TRY(made.pairs_, decltype(made.pairs_)::from(pairs));
    CUKILN_TRY(made.swiglu_, decltype(made.swiglu_)::from(swiglu));
    return made;
  });
}

Result<void> DeinterleaveQuantize::launch(Stream stream, std::uint8_t* codes, std::uint8_t* scales,
                                          const std::uint16_t* input, const float* gsa,
                                          std::int64_t rows, std::int64_t columns,
                                          std::int64_t row_stride,
                                          GateUpLayout layout) const noexcept {
  CUKILN_CHECK(check_columns(columns));
  CUKILN_CHECK(kernels::check_shape(rows, columns));
  if (rows == 0 || columns == 0) {
    return {};
  }
  CUKILN_CHECK(kernels::check_pointer("gsa", gsa, 4));
  CUKILN_CHECK(check_quantize(codes, scales, input, rows, 2 * columns, 2 * columns, row_stride));
  if (layout == GateUpLayout::halves) {  // they lie as they are wanted
    return halves_.launch(stream, quantize_config(rows, 2 * columns), codes, scales, input, gsa,
                          static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(2 * columns),
                          row_stride);
  }
  return pairs_.launch(stream, pairs_config(rows, columns), codes, scales, input, gsa,
                       static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(columns),
                       row_stride);
}

Result<void> DeinterleaveQuantize::launch_swiglu(Stream stream, std::uint8_t* codes,
                                                 std::uint8_t* scales, const std::uint16_t* input,
                                                 const float* gsa, std::int64_t rows,
                                                 std::int64_t columns, std::int64_t row_stride,
                                                 GateUpLayout layout,
                                                 const SwiGlu& activation) const noexcept {
  CUKILN_CHECK(check_columns(columns));
  CUKILN_CHECK(kernels::check_shape(rows, columns));
  CUKILN_CHECK(check_swiglu(activation));
  if (rows == 0 || columns == 0) {
    return {};
  }
  CUKILN_CHECK(kernels::check_pointer("gsa", gsa, 4));
  CUKILN_CHECK(check_quantize(codes, scales, input, rows, 2 * columns, columns, row_stride));
  return swiglu_.launch(stream, swiglu_config(rows, columns), codes, scales, input, gsa,
                        static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(columns),
                        row_stride, static_cast<std::uint32_t>(layout), activation.limit,
                        activation.alpha, activation.beta);
}

}  // namespace cukiln::nvfp4
