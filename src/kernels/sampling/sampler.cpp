// SPDX-License-Identifier: Apache-2.0
#include "kernels/checks.hpp"
#include "kernels/device_kernels.hpp"
#include "kernels_src/sampling/sampler_signature.cuh"

#include <cukiln/sampling.hpp>

namespace cukiln::sampling {
namespace {

using kernels::DeviceKernels;
using SamplerKernel = kernels::KernelSignature<signatures::Sampler<void>>;

constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kClusterBlocks = 8;

/// Null for a type that no kernel reads.
const char* module_of(DataType logits) noexcept {
  switch (logits) {
    case DataType::f32: return "sampler";
    case DataType::bf16: return "sampler_bf16";
    case DataType::f16: return "sampler_f16";
    default: return nullptr;
  }
}

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

Result<Sampler> Sampler::create(KernelLoader& loader, int device, DataType logits) {
  return guarded([&]() -> Result<Sampler> {
    const char* const module = module_of(logits);
    if (module == nullptr) {
      return make_error(ErrorCode::invalid_argument, "logits are {}; f32, bf16 or f16 is expected",
                        name_of(logits));
    }
    CUKILN_TRY(const DeviceKernels kernels, DeviceKernels::open(loader, device));
    Sampler made;
    CUKILN_TRY(made.kernel_, kernels.get<SamplerKernel>(module, "sampler"));
    made.logits_ = logits;
    made.device_ = kernels.device();
    return made;
  });
}

Result<void> Sampler::launch(Stream stream, const MutableVectorView& tokens,
                             const MatrixView& logits, const Parameters& parameters, State* state,
                             const MutableVectorView& log_probabilities) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("Sampler", device_));
  constexpr std::int64_t kMaxRows = INT32_MAX / kClusterBlocks;
  if (logits.rows < 0 || logits.rows > kMaxRows) {
    return kernels::refuse("logits are [{}, {}]; 0 to {} rows are expected", logits.rows,
                           logits.columns, kMaxRows);
  }
  if (logits.columns < 1 || logits.columns > kMaxVocabulary) {
    return kernels::refuse("logits are [{}, {}]; a vocabulary of 1 to {} is expected", logits.rows,
                           logits.columns, kMaxVocabulary);
  }
  CUKILN_CHECK(kernels::check_matrix("logits", logits, logits_, bytes_of(logits_)));
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
  LaunchConfig config;
  config.grid.x = static_cast<std::uint32_t>(logits.rows) * kClusterBlocks;
  config.block.x = kThreads;
  return SamplerKernel::launch(
      kernel_, stream, config, tokens.data_as<std::int32_t>(), log_probabilities.data_as<float>(),
      logits.data, static_cast<std::uint32_t>(logits.columns), logits.row_stride,
      parameters.temperature.data_as<const float>(), parameters.top_k.data_as<const std::int32_t>(),
      parameters.top_p.data_as<const float>(), parameters.min_p.data_as<const float>(),
      static_cast<std::uint32_t>(parameters.order), reinterpret_cast<PhiloxState*>(state),
      reinterpret_cast<PhiloxSeed*>(seeds));
}

}  // namespace cukiln::sampling
