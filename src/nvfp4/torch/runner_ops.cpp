// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/torch/host.hpp"
#include "nvfp4/torch/ops.hpp"
#include "nvfp4/torch/runners.hpp"

namespace cukiln::torch {

namespace {

bool runs_in_python(std::int64_t id) noexcept {
  const Runner* const runner = host().registry.find(id);
  return runner != nullptr && runner->runs_in_python();
}

/// Calls an op of the same arguments, which takes them over and leaves its result in their place.
void call_op(const char* name, StableValue* stack) {
  const Shim& shim = host().shim;
  if (shim.torch_call_dispatcher(name, "", stack, kStackVersion) != 0) {
    auto* const what = shim.torch_exception_get_what_without_backtrace;
    refuse("{} failed: {}", name, what != nullptr ? what() : "PyTorch's message is on stderr");
  }
}

void linear_gemm(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  if (runs_in_python(static_cast<std::int64_t>(stack[1]))) {
    return call_op("cukiln::run_linear", stack);
  }
  Arguments arguments(host().shim, stack);
  const Tensor x = arguments.tensor();
  const std::int64_t id = arguments.integer();
  const std::int64_t out_features = arguments.integer();
  const std::int64_t fingerprint = arguments.integer();

  LinearRunner& runner = linear_runner(id, fingerprint);
  runner.check_device(x, "x");
  const MatrixView matrix = require_bf16_matrix(x, "x");
  if (matrix.columns != runner.in_features()) {
    refuse("x is {}; the layer of runner {} takes [tokens, {}]", x.describe(), id,
           runner.in_features());
  }
  require_aligned_rows(matrix, x, "x");
  if (out_features != runner.out_features()) {
    refuse("out_features is {}; the layer of runner {} has {}", out_features, id,
           runner.out_features());
  }
  Tensor output = empty_like(x, host().shim.bfloat16, {matrix.rows, out_features});
  if (matrix.rows != 0) {
    runner.run(matrix, {DataType::bf16, output.data<void>(), matrix.rows, out_features});
  }
  stack[0] = output.release();
}

void moe_gemm(StableValue* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  if (runs_in_python(static_cast<std::int64_t>(stack[3]))) {
    return call_op("cukiln::run_moe", stack);
  }
  Arguments arguments(host().shim, stack);
  const Tensor hidden_states = arguments.tensor();
  const Tensor topk_weights = arguments.tensor();
  const Tensor topk_ids = arguments.tensor();
  const std::int64_t id = arguments.integer();
  const std::int64_t hidden_size = arguments.integer();
  const std::int64_t fingerprint = arguments.integer();

  MoeRunner& runner = moe_runner(id, fingerprint);
  const Shim& shim = host().shim;
  runner.check_device(hidden_states, "hidden_states");
  require_device(topk_weights, "topk_weights", hidden_states);
  require_device(topk_ids, "topk_ids", hidden_states);
  const MatrixView matrix = require_bf16_matrix(hidden_states, "hidden_states");
  require_dense(hidden_states, "hidden_states", {matrix.rows, runner.hidden()});
  require_aligned_rows(matrix, hidden_states, "hidden_states");
  if (hidden_size != runner.hidden()) {
    refuse("hidden_size is {}; the layer of runner {} has {}", hidden_size, id, runner.hidden());
  }
  require_dtype(topk_weights, "topk_weights", shim.float32, "float32");
  require_dtype(topk_ids, "topk_ids", shim.int32, "int32");
  if (topk_ids.dim() != 2) {
    refuse("topk_ids is {}; expected [tokens, experts of a token]", topk_ids.describe());
  }
  const std::int64_t topk = topk_ids.size(1);
  require_dense(topk_ids, "topk_ids", {matrix.rows, topk});
  require_dense(topk_weights, "topk_weights", {matrix.rows, topk});
  if (topk < 1 || topk > 1024) {
    refuse("topk_ids is {}; expected 1 to 1024 experts for each token", topk_ids.describe());
  }
  Tensor output = empty_like(hidden_states, shim.bfloat16, {matrix.rows, hidden_size});
  if (matrix.rows != 0) {
    nvfp4::MoeInput input;
    input.hidden = matrix;
    input.topk_ids = {DataType::i32, topk_ids.data<const void>(), matrix.rows, topk};
    input.topk_weights = {DataType::f32, topk_weights.data<const void>(), matrix.rows, topk};
    runner.run(input, {DataType::bf16, output.data<void>(), matrix.rows, hidden_size});
  }
  stack[0] = output.release();
}

constexpr Op kRunnerOps[] = {
    {"linear_gemm",
     "linear_gemm(Tensor x, SymInt runner_id, SymInt out_features, SymInt fingerprint=0) -> Tensor",
     linear_gemm},
    {"moe_gemm",
     "moe_gemm(Tensor hidden_states, Tensor topk_weights, Tensor topk_ids, SymInt runner_id, "
     "SymInt hidden_size, SymInt fingerprint=0) -> Tensor",
     moe_gemm},
};

}  // namespace

std::span<const Op> runner_ops() noexcept { return kRunnerOps; }

}  // namespace cukiln::torch
