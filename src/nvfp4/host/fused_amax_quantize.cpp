// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "kernels_src/nvfp4/quantize_signatures.cuh"
#include "nvfp4/host/device_kernels.hpp"
#include "nvfp4/host/quantize_launch.hpp"

#include <cukiln/nvfp4/nvfp4.hpp>

namespace cukiln::nvfp4 {
namespace {

using kernels::DeviceKernels;
using RowsFromBuffer = kernels::KernelSignature<signatures::QuantizeNvfp4FromBuffer>;
using PairsFromBuffer = kernels::KernelSignature<signatures::DeinterleaveQuantizeFromBuffer>;
using SwiGluFromBuffer = kernels::KernelSignature<signatures::SwigluQuantizeFromBuffer>;

const char* module_of(Formula formula) noexcept {
  return formula == Formula::fast ? "fused_amax_quantize_fast" : "fused_amax_quantize";
}

const char* swiglu_module_of(Formula formula) noexcept {
  return formula == Formula::fast ? "swiglu_quantize_fast" : "swiglu_quantize";
}

Result<void> check_global_scale(const MutableQuantizedMatrix& output) noexcept {
  return kernels::check_pointer("output", "global_scale", output.global_scale,
                                alignof(GlobalScale));
}

/// Quantises all columns of the input as they lie.
Result<void> launch_rows(const Kernel& kernel, Stream stream, std::uint32_t wave_blocks,
                         const MutableQuantizedMatrix& output, const MatrixView& input) noexcept {
  return RowsFromBuffer::launch(
      kernel, stream, quantize_config(input.rows, input.columns, wave_blocks, kQuantizeTiles),
      output.data, output.scales, input.data_as<const std::uint16_t>(),
      &output.global_scale->encode, static_cast<std::uint32_t>(input.rows),
      static_cast<std::uint32_t>(input.columns), input.row_stride);
}

}  // namespace

struct Quantize::Impl {
  kernels::LaunchDevice device;
  std::uint32_t wave_blocks = 0;
  Kernel kernel;
};

Result<Quantize> Quantize::create(KernelLoader& loader, int device, Formula formula) {
  return guarded([&]() -> Result<Quantize> {
    CUKILN_TRY(const DeviceKernels kernels, DeviceKernels::open(loader, device));
    const auto impl = std::make_shared<Impl>();
    CUKILN_TRY(impl->kernel,
               kernels.get<RowsFromBuffer>(module_of(formula), "quantize_nvfp4_from_buffer"));
    CUKILN_TRY(impl->wave_blocks, kernels.wave_blocks(impl->kernel, kQuantizeThreads));
    impl->device = kernels.device();
    Quantize made;
    made.impl_ = impl;
    return made;
  });
}

Result<void> Quantize::launch(Stream stream, const MutableQuantizedMatrix& output,
                              const MatrixView& input) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("Quantize", impl_.get()));
  CUKILN_CHECK(check_input(input));
  CUKILN_CHECK(check_quantized_output(output, input, input.columns));
  if (input.is_empty()) {
    return {};
  }
  CUKILN_CHECK(check_global_scale(output));
  return launch_rows(impl_->kernel, stream, impl_->wave_blocks, output, input);
}

struct DeinterleaveQuantize::Impl {
  kernels::LaunchDevice device;
  std::uint32_t halves_wave_blocks = 0;
  std::uint32_t pairs_wave_blocks = 0;
  std::uint32_t swiglu_wave_blocks = 0;
  Kernel halves;
  Kernel pairs;
  Kernel swiglu;
};

Result<DeinterleaveQuantize> DeinterleaveQuantize::create(KernelLoader& loader, int device,
                                                          Formula formula) {
  return guarded([&]() -> Result<DeinterleaveQuantize> {
    CUKILN_TRY(const DeviceKernels kernels, DeviceKernels::open(loader, device));
    const auto impl = std::make_shared<Impl>();
    CUKILN_TRY(impl->halves,
               kernels.get<RowsFromBuffer>(module_of(formula), "quantize_nvfp4_from_buffer"));
    CUKILN_TRY(impl->pairs, kernels.get<PairsFromBuffer>(module_of(formula),
                                                         "deinterleave_quantize_from_buffer"));
    CUKILN_TRY(impl->swiglu, kernels.get<SwiGluFromBuffer>(swiglu_module_of(formula),
                                                           "swiglu_quantize_from_buffer"));
    CUKILN_TRY(impl->halves_wave_blocks, kernels.wave_blocks(impl->halves, kQuantizeThreads));
    CUKILN_TRY(impl->pairs_wave_blocks, kernels.wave_blocks(impl->pairs, kQuantizeThreads));
    CUKILN_TRY(impl->swiglu_wave_blocks, kernels.wave_blocks(impl->swiglu, kQuantizeThreads));
    impl->device = kernels.device();
    DeinterleaveQuantize made;
    made.impl_ = impl;
    return made;
  });
}

Result<void> DeinterleaveQuantize::launch(Stream stream, const MutableQuantizedMatrix& output,
                                          const MatrixView& input,
                                          GateUpLayout layout) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("DeinterleaveQuantize", impl_.get()));
  CUKILN_CHECK(check_gate_up(input));
  CUKILN_CHECK(check_quantized_output(output, input, input.columns));
  if (input.is_empty()) {
    return {};
  }
  CUKILN_CHECK(check_global_scale(output));
  if (layout == GateUpLayout::halves) {  // in the order that is written
    return launch_rows(impl_->halves, stream, impl_->halves_wave_blocks, output, input);
  }
  const std::int64_t columns = input.columns / 2;
  return PairsFromBuffer::launch(
      impl_->pairs, stream,
      quantize_config(input.rows, columns, impl_->pairs_wave_blocks, kPairsTiles), output.data,
      output.scales, input.data_as<const std::uint16_t>(), &output.global_scale->encode,
      static_cast<std::uint32_t>(input.rows), static_cast<std::uint32_t>(columns),
      input.row_stride);
}

Result<void> DeinterleaveQuantize::launch_swiglu(Stream stream,
                                                 const MutableQuantizedMatrix& output,
                                                 const MatrixView& input, GateUpLayout layout,
                                                 const SwiGlu& activation) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("DeinterleaveQuantize", impl_.get()));
  const std::int64_t columns = input.columns / 2;
  CUKILN_CHECK(check_gate_up(input));
  CUKILN_CHECK(check_swiglu(activation));
  CUKILN_CHECK(check_quantized_output(output, input, columns));
  if (input.is_empty()) {
    return {};
  }
  CUKILN_CHECK(check_global_scale(output));
  return SwiGluFromBuffer::launch(
      impl_->swiglu, stream,
      quantize_config(input.rows, columns, impl_->swiglu_wave_blocks, kSwiGluTiles), output.data,
      output.scales, input.data_as<const std::uint16_t>(), &output.global_scale->encode,
      static_cast<std::uint32_t>(input.rows), static_cast<std::uint32_t>(columns), input.row_stride,
      static_cast<std::uint32_t>(layout), activation.limit, activation.alpha, activation.beta);
}

}  // namespace cukiln::nvfp4
