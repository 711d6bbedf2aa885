// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "nvfp4/reference/sample.hpp"
#include "nvfp4/torch/host.hpp"
#include "nvfp4/torch/ops.hpp"
#include "nvfp4/torch/tensor.hpp"

namespace cukiln::torch {

namespace {

/// A parameter of each row; absent where it is not given.
VectorView row_values(const std::optional<Tensor>& values, const char* name, const Tensor& logits,
                      DataType type) {
  if (!values) {
    return {};
  }
  const bool is_float = type == DataType::f32;
  const std::int32_t dtype = is_float ? logits.shim().float32 : logits.shim().int32;
  const char* const dtype_name = is_float ? "float32" : "int32";
  require_device(*values, name, logits);
  require_dtype(*values, name, dtype, dtype_name);
  require_dense(*values, name, {logits.size(0)});
  return {type, values->data<const void>(), logits.size(0)};
}

/// The seed and offset of each row; null where they are not given.
sampling::RowSeed* row_seeds_of(const std::optional<Tensor>& seeds, const Tensor& logits) {
  if (!seeds) {
    return nullptr;
  }
  require_device(*seeds, "row_seeds", logits);
  require_dtype(*seeds, "row_seeds", logits.shim().int64, "int64");
  require_dense(*seeds, "row_seeds", {logits.size(0), 2});
  static_assert(sizeof(sampling::RowSeed) == 2 * sizeof(std::int64_t));
  return seeds->data<sampling::RowSeed>();
}

DataType type_of(const Tensor& logits) noexcept {
  const Shim& shim = logits.shim();
  return logits.dtype() == shim.float32    ? DataType::f32
         : logits.dtype() == shim.bfloat16 ? DataType::bf16
                                           : DataType::f16;
}

const Result<sampling::Sampler>& sampler_of(const DeviceLaunchers& launchers, DataType logits) {
  return logits == DataType::f32    ? launchers.sample_f32
         : logits == DataType::bf16 ? launchers.sample_bf16
                                    : launchers.sample_f16;
}

const Result<sampling::TopLogProbabilities>& top_log_probabilities_of(
    const DeviceLaunchers& launchers, DataType logits) {
  return logits == DataType::f32    ? launchers.top_log_probabilities_f32
         : logits == DataType::bf16 ? launchers.top_log_probabilities_bf16
                                    : launchers.top_log_probabilities_f16;
}

void require_logits(const Tensor& logits) {
  const Shim& shim = logits.shim();
  if (logits.dtype() != shim.float32 && logits.dtype() != shim.bfloat16 &&
      logits.dtype() != shim.float16) {
    refuse("logits is {}; expected float32, bfloat16 or float16", logits.describe());
  }
  if (logits.dim() != 2 || logits.size(1) < 1 ||
      logits.size(1) > sampling::Sampler::kMaxVocabulary) {
    refuse("logits is {}; expected [rows, vocabulary], a vocabulary of 1 to {}", logits.describe(),
           sampling::Sampler::kMaxVocabulary);
  }
  if (logits.size(1) > 1 && logits.stride(1) != 1) {
    refuse("logits, {}, has no contiguous rows; pass logits.contiguous()", logits.describe());
  }
}

MatrixView view_of(const Tensor& logits) {
  const std::int64_t rows = logits.size(0);
  const std::int64_t vocabulary = logits.size(1);
  return {type_of(logits), logits.data<const void>(), rows, vocabulary,
          rows > 1 ? logits.stride(0) : vocabulary};
}

/// A copy of logits of any type as floats.
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
  const std::optional<Tensor> row_seeds = arguments.optional_tensor();

  const Shim& shim = host().shim;
  require_logits(logits);
  const std::int64_t rows = logits.size(0);
  require_device(state, "state", logits);
  require_dtype(state, "state", shim.int64, "int64");
  require_dense(state, "state", {3});
  const sampling::Parameters parameters = {
      row_values(temperature, "temperature", logits, DataType::f32),
      row_values(top_k, "top_k", logits, DataType::i32),
      row_values(top_p, "top_p", logits, DataType::f32),
      row_values(min_p, "min_p", logits, DataType::f32),
      joint ? sampling::FilterOrder::joint : sampling::FilterOrder::top_k_first,
      row_seeds_of(row_seeds, logits)};

  Tensor tokens = empty_like(logits, shim.int32, {rows});
  Tensor log_probabilities = empty_like(logits, shim.float32, {rows});
  const MutableVectorView chosen(DataType::i32, tokens.data<void>(), rows);
  const MutableVectorView logarithms(DataType::f32, log_probabilities.data<void>(), rows);
  static_assert(sizeof(sampling::State) == 3 * sizeof(std::int64_t));
  auto* const random = state.data<sampling::State>();
  if (rows != 0 && logits.is_cuda()) {
    const CudaScope scope(host().require_cuda(), logits.device());
    const MatrixView given = view_of(logits);
    require(require(sampler_of(scope.launchers, given.type))
                .launch(scope.stream, chosen, given, parameters, random, logarithms));
  } else if (rows != 0) {
    const std::vector<float> values = floats(logits);
    reference::sample(chosen, {DataType::f32, values.data(), rows, logits.size(1)}, parameters,
                      *random, logarithms);
  }
  stack[0] = tokens.release();
  stack[1] = log_probabilities.release();
}

void top_log_probabilities(StableValue* stack, std::uint64_t /*arguments*/,
                           std::uint64_t /*results*/) {
  Arguments arguments(host().shim, stack);
  const Tensor logits = arguments.tensor();
  const std::int64_t count = arguments.integer();
  const std::optional<Tensor> temperature = arguments.optional_tensor();
  const std::optional<Tensor> tokens = arguments.optional_tensor();

  const Shim& shim = host().shim;
  require_logits(logits);
  const std::int64_t rows = logits.size(0);
  if (count < 0 || count > sampling::TopLogProbabilities::kMaxCount || count > logits.size(1)) {
    refuse("count is {}; expected 0 to {}, no more than the vocabulary of {}", count,
           sampling::TopLogProbabilities::kMaxCount, logits.size(1));
  }
  const VectorView scales = row_values(temperature, "temperature", logits, DataType::f32);
  const VectorView given = row_values(tokens, "tokens", logits, DataType::i32);

  Tensor top_tokens = empty_like(logits, shim.int32, {rows, count});
  Tensor top = empty_like(logits, shim.float32, {rows, count});
  Tensor of_tokens = empty_like(logits, shim.float32, {tokens ? rows : 0});
  const MutableMatrixView chosen(DataType::i32, top_tokens.data<void>(), rows, count);
  const MutableMatrixView largest(DataType::f32, top.data<void>(), rows, count);
  const MutableVectorView of_given =
      tokens ? MutableVectorView(DataType::f32, of_tokens.data<void>(), rows) : MutableVectorView();
  if (rows != 0 && logits.is_cuda()) {
    const CudaScope scope(host().require_cuda(), logits.device());
    const MatrixView view = view_of(logits);
    require(require(top_log_probabilities_of(scope.launchers, view.type))
                .launch(scope.stream, chosen, largest, view, scales, given, of_given));
  } else if (rows != 0) {
    const std::vector<float> values = floats(logits);
    reference::top_log_probabilities(chosen, largest,
                                     {DataType::f32, values.data(), rows, logits.size(1)}, scales,
                                     given, of_given);
  }
  stack[0] = top.release();
  stack[1] = top_tokens.release();
  stack[2] = of_tokens.release();
}

constexpr Op kSamplingOps[] = {
    {"sample",
     "sample(Tensor logits, Tensor(a!) state, Tensor? temperature=None, Tensor? top_k=None, "
     "Tensor? top_p=None, Tensor? min_p=None, bool joint=False, Tensor(b!)? row_seeds=None) -> "
     "(Tensor tokens, Tensor log_probabilities)",
     sample},
    {"top_log_probabilities",
     "top_log_probabilities(Tensor logits, int count, Tensor? temperature=None, Tensor? "
     "tokens=None) -> (Tensor top_log_probabilities, Tensor top_tokens, Tensor "
     "token_log_probabilities)",
     top_log_probabilities},
};

}  // namespace

std::span<const Op> sampling_ops() noexcept { return kSamplingOps; }

}  // namespace cukiln::torch
