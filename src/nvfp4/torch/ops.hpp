// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "nvfp4/torch/shim.hpp"

namespace cukiln::torch {

/// One op: its schema, with its namespace, and what runs for CPU and for CUDA tensors.
struct Op {
  const char* name;    ///< within the namespace
  const char* schema;  ///< `linear_gemm(Tensor x, …) -> Tensor`
  BoxedOp run;
};

std::span<const Op> runner_ops() noexcept;    ///< nvfp4: GEMMs with the weights of a runner
std::span<const Op> quantize_ops() noexcept;  ///< nvfp4: quantisers, and a GEMM of their results
std::span<const Op> training_ops() noexcept;  ///< nvfp4: a linear layer's three GEMMs
std::span<const Op> sampling_ops() noexcept;  ///< cukiln

}  // namespace cukiln::torch
