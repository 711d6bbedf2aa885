// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "bindings/torch/host.hpp"
#include "bindings/torch/ops.hpp"
#include "bindings/torch/tensor.hpp"
#include "reference/sample.hpp"

namespace cukiln::torch {

namespace {

template <class T>
const T* row_values(const std::optional<Tensor>& values, const char* name, const Tensor& logits,
                    std::int32_t dtype, const char* dtype_name) {
  if (!values) {
    return nullptr;
  }
  require_device(*values, name, logits);
  require_dtype(*values, name, dtype, dtype_name);
  require_dense(*values, name, {logits.size(0)});
  return values->data<const T>();
}

const Result<sampling::Sampler>& launcher(const Cuda& cuda, const Tensor& logits) {
  const Shim& shim = logits.shim();
  return logits.dtype() == shim.float32    ? cuda.sample_f32
         : logits.dtype() == shim.bfloat16 ? cuda.sample_bf16
                                           : cuda.sample_f16;
}

/// Whatever their type, as floats.
std::vector<float> floats(const Tensor& logits) {
  Tensor copy = empty_like(logits, logits.shim().float32, {logits.size(0), logits.size(1)});
  copy.copy_from(logits);
  const auto* const first = copy.data<const float>();
  return {first, first + logits.size(0) * logits.size(1)};
}

void sample(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor logits = arguments.tensor();
  const Tensor state = arguments.tensor();
  const std::optional<Tensor> temperature = arguments.optional_tensor();
  const std::optional<Tensor> top_k = arguments.optional_tensor();
  const std::optional<Tensor> top_p = arguments.optional_tensor();
  const std::optional<Tensor> min_p = arguments.optional_tensor();
  const bool joint = arguments.flag();

  const Shim& shim = host().shim;
  if (logits.dtype() != shim.float32 && logits.dtype() != shim.bfloat16 &&
      logits.dtype() != shim.float16) {
    refuse("logits is {}; float32, bfloat16 or float16 is expected", logits.describe());
  }
  if (logits.dim() != 2 || logits.size(1) < 1 ||
      logits.size(1) > sampling::Sampler::kMaxVocabulary) {
    refuse("logits is {}; [rows, vocabulary] is expected, a vocabulary of 1 to {}",
           logits.describe(), sampling::Sampler::kMaxVocabulary);
  }
  const std::int64_t rows = logits.size(0);
  const std::int64_t vocabulary = logits.size(1);
  if (vocabulary > 1 && logits.stride(1) != 1) {
    refuse("logits, {}, has no contiguous rows; pass logits.contiguous()", logits.describe());
  }
  require_device(state, "state", logits);
  require_dtype(state, "state", shim.int64, "int64");
  require_dense(state, "state", {3});
  const sampling::Parameters parameters = {
      row_values<float>(temperature, "temperature", logits, shim.float32, "float32"),
      row_values<std::int32_t>(top_k, "top_k", logits, shim.int32, "int32"),
      row_values<float>(top_p, "top_p", logits, shim.float32, "float32"),
      row_values<float>(min_p, "min_p", logits, shim.float32, "float32"),
      joint ? sampling::FilterOrder::joint : sampling::FilterOrder::top_k_first};

  Tensor tokens = empty_like(logits, shim.int32, {rows});
  Tensor log_probabilities = empty_like(logits, shim.float32, {rows});
  auto* const chosen = tokens.data<std::int32_t>();
  auto* const logarithms = log_probabilities.data<float>();
  static_assert(sizeof(sampling::State) == 3 * sizeof(std::int64_t));
  auto* const random = state.data<sampling::State>();
  if (rows != 0 && logits.is_cuda()) {
    const Cuda& cuda = host().require_cuda();
    const CudaScope scope(cuda, logits.device());
    require(require(launcher(cuda, logits))
                .launch(scope.stream, chosen, logits.data<const void>(), rows, vocabulary,
                        rows > 1 ? logits.stride(0) : vocabulary, parameters, random, logarithms));
  } else if (rows != 0) {
    const std::vector<float> values = floats(logits);
    reference::sample(chosen, values.data(), rows, vocabulary, vocabulary, parameters, *random,
                      logarithms);
  }
  stack[0] = tokens.release();
  stack[1] = log_probabilities.release();
}

constexpr Op kOps[] = {
    {"sample",
     "sample(Tensor logits, Tensor(a!) state, Tensor? temperature=None, Tensor? top_k=None, "
     "Tensor? top_p=None, Tensor? min_p=None, bool joint=False) -> (Tensor tokens, Tensor "
     "log_probabilities)",
     sample},
};

}  // namespace

std::span<const Op> sampling_ops() noexcept { return kOps; }

}  // namespace cukiln::torch
