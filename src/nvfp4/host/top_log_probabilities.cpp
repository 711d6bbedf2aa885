// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "kernels_src/sampling/sampler_signature.cuh"
#include "nvfp4/host/checks.hpp"
#include "nvfp4/host/device_kernels.hpp"
#include "nvfp4/host/rows.hpp"

#include <cukiln/nvfp4/sampling.hpp>

namespace cukiln::sampling {
namespace {

using TopLogProbabilitiesKernel = kernels::KernelSignature<signatures::TopLogProbabilities<void>>;

}  // namespace

struct TopLogProbabilities::Impl {
  kernels::LaunchDevice device;
  DataType logits = DataType::f32;
  Kernel kernel;
};

Result<TopLogProbabilities> TopLogProbabilities::create(KernelLoader& loader, int device,
                                                        DataType logits) {
  return guarded([&]() -> Result<TopLogProbabilities> {
    CUKILN_TRY(const std::string module, module_of("top_log_probabilities", logits));
    CUKILN_TRY(const kernels::DeviceKernels found, kernels::DeviceKernels::open(loader, device));
    const auto impl = std::make_shared<Impl>();
    CUKILN_TRY(impl->kernel, found.get<TopLogProbabilitiesKernel>(module, "top_log_probabilities"));
    impl->logits = logits;
    impl->device = found.device();
    TopLogProbabilities made;
    made.impl_ = impl;
    return made;
  });
}

Result<void> TopLogProbabilities::launch(
    Stream stream, const MutableMatrixView& top_tokens,
    const MutableMatrixView& top_log_probabilities, const MatrixView& logits,
    const VectorView& temperature, const VectorView& tokens,
    const MutableVectorView& token_log_probabilities) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("TopLogProbabilities", impl_.get()));
  CUKILN_CHECK(check_logits(logits, impl_->logits));
  const std::int64_t rows = logits.rows;
  const std::int64_t count = top_tokens.columns;
  if (count < 0 || count > kMaxCount || count > logits.columns) {
    return kernels::refuse(
        "top_tokens is [{}, {}]; expected 0 to {} columns, no more than the "
        "vocabulary of {}",
        top_tokens.rows, count, kMaxCount, logits.columns);
  }
  CUKILN_CHECK(
      kernels::check_dense_matrix("top_tokens", top_tokens, DataType::i32, rows, count, 4));
  CUKILN_CHECK(kernels::check_dense_matrix("top_log_probabilities", top_log_probabilities,
                                           DataType::f32, rows, count, 4));
  CUKILN_CHECK(kernels::check_optional_vector("temperature", temperature, DataType::f32, rows, 4));
  CUKILN_CHECK(kernels::check_optional_vector("tokens", tokens, DataType::i32, rows, 4));
  CUKILN_CHECK(kernels::check_optional_vector("token_log_probabilities", token_log_probabilities,
                                              DataType::f32, rows, 4));
  if ((tokens.data == nullptr) != (token_log_probabilities.data == nullptr)) {
    return kernels::refuse("{} is absent; expected tokens and token_log_probabilities together",
                           tokens.data == nullptr ? "tokens" : "token_log_probabilities");
  }
  if (rows == 0) {
    return {};
  }
  return TopLogProbabilitiesKernel::launch(
      impl_->kernel, stream, config_of(logits), top_tokens.data_as<std::int32_t>(),
      top_log_probabilities.data_as<float>(), token_log_probabilities.data_as<float>(), logits.data,
      static_cast<std::uint32_t>(logits.columns), logits.row_stride,
      static_cast<std::uint32_t>(count), temperature.data_as<const float>(),
      tokens.data_as<const std::int32_t>());
}

}  // namespace cukiln::sampling
