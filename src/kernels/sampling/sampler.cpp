// SPDX-License-Identifier: Apache-2.0
#include "kernels/checks.hpp"
#include "kernels/shipped_kernel.hpp"

#include <cukiln/sampling.hpp>

namespace cukiln::sampling {
namespace {

constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kClusterBlocks = 8;

}  // namespace

Result<Sampler> Sampler::create(KernelLoader& loader, LogitType type) {
  return guarded([&]() -> Result<Sampler> {
    const char* const modules[] = {"sampler", "sampler_bf16", "sampler_f16"};
    CUKILN_TRY(const Kernel kernel,
               kernels::shipped_kernel(loader, modules[static_cast<int>(type)], "sampler"));
    Sampler made;
    CUKILN_TRY(made.kernel_, decltype(made.kernel_)::from(kernel));
    made.logit_bytes_ = type == LogitType::f32 ? 4 : 2;
    return made;
  });
}

Result<void> Sampler::launch(Stream stream, std::int32_t* tokens, const void* logits,
                             std::int64_t rows, std::int64_t vocabulary, std::int64_t row_stride,
                             const Parameters& parameters, State* state,
                             float* log_probabilities) const noexcept {
  if (rows < 0 || rows > INT32_MAX / kClusterBlocks) {
    return kernels::refuse("rows is {}; 0 to {} are expected", rows, INT32_MAX / kClusterBlocks);
  }
  if (vocabulary < 1 || vocabulary > kMaxVocabulary) {
    return kernels::refuse("vocabulary is {}; 1 to {} are expected", vocabulary, kMaxVocabulary);
  }
  if (rows == 0) {
    return {};
  }
  CUKILN_CHECK(kernels::check_pointer("tokens", tokens, 4));
  CUKILN_CHECK(kernels::check_pointer("logits", logits, logit_bytes_));
  CUKILN_CHECK(kernels::check_pointer("state", state, alignof(State)));
  if (log_probabilities != nullptr) {
    CUKILN_CHECK(kernels::check_pointer("log_probabilities", log_probabilities, 4));
  }
  LaunchConfig config;
  config.grid.x = static_cast<std::uint32_t>(rows) * kClusterBlocks;
  config.block.x = kThreads;
  return kernel_.launch(stream, config, tokens, log_probabilities, logits,
                        static_cast<std::uint32_t>(vocabulary), row_stride, parameters.temperature,
                        parameters.top_k, parameters.top_p, parameters.min_p,
                        static_cast<std::uint32_t>(parameters.order), state);
}

}  // namespace cukiln::sampling
