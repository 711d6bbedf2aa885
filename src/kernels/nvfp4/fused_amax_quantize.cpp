#include "kernels/nvfp4/quantize_checks.hpp"
#include "kernels/shipped_kernel.hpp"

namespace cukiln::nvfp4 {
namespace {

// The kernel's numbers.
constexpr std::uint32_t kNoActivation = 0;
constexpr std::uint32_t kSwiGlu = 1;

const char* module_of(Formula formula) noexcept {
  return formula == Formula::fast ? "fused_amax_quantize_fast" : "fused_amax_quantize";
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
    CUKILN_TRY(const Kernel kernel, kernels::shipped_kernel(loader, module_of(formula),
                                                            "deinterleave_quantize_from_buffer"));
    CUKILN_TRY(const Kernel plain,
               kernels::shipped_kernel(loader, module_of(formula), "quantize_nvfp4_from_buffer"));
    DeinterleaveQuantize made;
    CUKILN_TRY(made.kernel_, decltype(made.kernel_)::from(kernel));
    CUKILN_TRY(made.plain_, decltype(made.plain_)::from(plain));
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
    return plain_.launch(stream, quantize_config(rows, 2 * columns), codes, scales, input, gsa,
                         static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(2 * columns),
                         row_stride);
  }
  return kernel_.launch(stream, deinterleave_config(rows, 2 * columns), codes, scales, input, gsa,
                        static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(columns),
                        row_stride, static_cast<std::uint32_t>(layout), kNoActivation, 0.0f, 0.0f,
                        0.0f);
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
  return kernel_.launch(stream, deinterleave_config(rows, columns), codes, scales, input, gsa,
                        static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(columns),
                        row_stride, static_cast<std::uint32_t>(layout), kSwiGlu, activation.limit,
                        activation.alpha, activation.beta);
}

}  // namespace cukiln::nvfp4
