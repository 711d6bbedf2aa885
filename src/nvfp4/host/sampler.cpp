// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "kernels_src/sampling/sampler_signature.cuh"
#include "nvfp4/host/checks.hpp"
#include "nvfp4/host/device_kernels.hpp"
#include "nvfp4/host/rows.hpp"

#include <cukiln/nvfp4/sampling.hpp>

namespace cukiln::sampling {
namespace {

using kernels::DeviceKernels;
using SamplerKernel = kernels::KernelSignature<signatures::Sampler<void>>;

Result<void> check_sampling_parameters(const Parameters& parameters, std::int64_t rows) noexcept {
  const auto check = [&](const char* name, const VectorView& values, DataType type) {
    return kernels::check_optional_vector(name, values, type, rows, 4);
  };
  CUKILN_CHECK(check("parameters.temperature", parameters.temperature, DataType::f32));
  CUKILN_CHECK(check("parameters.top_k", parameters.top_k, DataType::i32));
  CUKILN_CHECK(check("parameters.top_p", parameters.top_p, DataType::f32));
  return check("parameters.min_p", parameters.min_p, DataType::f32);
}

}  // namespace

struct Sampler::Impl {
  kernels::LaunchDevice device;
  DataType logits = DataType::f32;
  Kernel kernel;
};

Result<Sampler> Sampler::create(KernelLoader& loader, int device, DataType logits) {
  return guarded([&]() -> Result<Sampler> {
    CUKILN_TRY(const std::string module, module_of("sampler", logits));
    CUKILN_TRY(const DeviceKernels kernels, DeviceKernels::open(loader, device));
    const auto impl = std::make_shared<Impl>();
    CUKILN_TRY(impl->kernel, kernels.get<SamplerKernel>(module, "sampler"));
    impl->logits = logits;
    impl->device = kernels.device();
    Sampler made;
    made.impl_ = impl;
    return made;
  });
}

Result<void> Sampler::launch(Stream stream, const MutableVectorView& tokens,
                             const MatrixView& logits, const Parameters& parameters, State* state,
                             const MutableVectorView& log_probabilities) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("Sampler", impl_.get()));
  CUKILN_CHECK(check_logits(logits, impl_->logits));
  CUKILN_CHECK(kernels::check_dense_vector("tokens", tokens, DataType::i32, logits.rows, 4));
  CUKILN_CHECK(check_sampling_parameters(parameters, logits.rows));
  CUKILN_CHECK(kernels::check_optional_vector("log_probabilities", log_probabilities, DataType::f32,
                                              logits.rows, 4));
  if (logits.rows == 0) {
    return {};
  }
  RowSeed* const seeds = parameters.row_seeds;
  CUKILN_CHECK(seeds != nullptr
                   ? kernels::check_pointer("parameters", "row_seeds", seeds, alignof(RowSeed))
                   : kernels::check_pointer("state", state, alignof(State)));
  return SamplerKernel::launch(
      impl_->kernel, stream, config_of(logits), tokens.data_as<std::int32_t>(),
      log_probabilities.data_as<float>(), logits.data, static_cast<std::uint32_t>(logits.columns),
      logits.row_stride, parameters.temperature.data_as<const float>(),
      parameters.top_k.data_as<const std::int32_t>(), parameters.top_p.data_as<const float>(),
      parameters.min_p.data_as<const float>(), static_cast<std::uint32_t>(parameters.order),
      reinterpret_cast<PhiloxState*>(state), reinterpret_cast<PhiloxSeed*>(seeds));
}

}  // namespace cukiln::sampling
