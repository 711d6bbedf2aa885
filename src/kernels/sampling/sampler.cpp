#include "kernels/checks.hpp"
#include "kernels/shipped_kernel.hpp"

#include <cukiln/sampling.hpp>

namespace cukiln::sampling {
namespace {

constexpr std::uint32_t kThreads = 512;
constexpr std::uint32_t kClusterBlocks = 8;

/// A thread block's eighth of the row, as float, in multiples of 8 logits.
constexpr std::uint32_t slice_bytes(std::int64_t vocabulary) noexcept {
  return static_cast<std::uint32_t>((vocabulary + 8 * kClusterBlocks - 1) / (8 * kClusterBlocks) *
                                    8 * sizeof(float));
}

}  // namespace

Result<Sampler> Sampler::create(KernelLoader& loader, LogitType type) {
  return guarded([&]() -> Result<Sampler> {
    const char* const variants[] = {"", "_bf16", "_f16"};
    std::map<std::string, std::string> define;
    if (type == LogitType::bf16) {
      define["CUKILN_LOGITS_BF16"] = "";
    } else if (type == LogitType::f16) {
      define["CUKILN_LOGITS_F16"] = "";
    }
    CUKILN_TRY(const Kernel kernel,
               kernels::shipped_kernel(loader, "sampler", "sampler",
                                       variants[static_cast<int>(type)], define));
    CUKILN_CHECK(kernel.reserve_shared(slice_bytes(kMaxVocabulary)));
    Sampler made;
    CUKILN_TRY(made.kernel_, decltype(made.kernel_)::from(kernel));
    made.logit_bytes_ = type == LogitType::f32 ? 4 : 2;
    return made;
  });
}

Result<void> Sampler::launch(Stream stream, std::int32_t* tokens, const void* logits,
                             std::int64_t rows, std::int64_t vocabulary, std::int64_t row_stride,
                             const Parameters& parameters, State* state) const noexcept {
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
  LaunchConfig config;
  config.grid.x = static_cast<std::uint32_t>(rows) * kClusterBlocks;
  config.block.x = kThreads;
  config.shared_bytes = slice_bytes(vocabulary);
  return kernel_.launch(stream, config, tokens, logits, static_cast<std::uint32_t>(vocabulary),
                        row_stride, parameters.temperature, parameters.top_k, parameters.top_p,
                        parameters.min_p, static_cast<std::uint32_t>(parameters.order), state);
}

}  // namespace cukiln::sampling
