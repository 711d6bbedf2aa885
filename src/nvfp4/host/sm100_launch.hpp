// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/base/result.hpp"
#include "nvfp4/host/kernel_signature.hpp"
#include "nvfp4/host/sm100_plan.hpp"

#include <cukiln/nvfp4/nvfp4.hpp>
#include <cukiln/tensor_map.hpp>

#include "kernels_src/nvfp4/gemm_signatures.cuh"  // after TensorMap

namespace cukiln::nvfp4::detail {

using Sm100Gemm = kernels::KernelSignature<signatures::Nvfp4Gemm>;
using Sm100SwappedGemm = kernels::KernelSignature<signatures::Nvfp4GemmSwapped>;
using Sm100GroupedGemm = kernels::KernelSignature<signatures::Nvfp4GemmGrouped>;

/// A kernel's parameter `output`: a map, or D itself.
template <class Signature>
auto output_of(const Kernel& kernel, const Sm100Plan& plan) noexcept {
  if constexpr (std::is_same_v<Signature, Sm100SwappedGemm>) {
    return Result<std::uint16_t*>(static_cast<std::uint16_t*>(const_cast<void*>(plan.output.data)));
  } else {
    return tensor_map(kernel, plan.output);
  }
}

/// Launches a plan with the kernel of a signature; `more` are the parameters after k.
template <class Signature, class... More>
Result<void> launch_sm100(const Kernel& kernel, Stream stream, const Sm100Plan& plan,
                          const GlobalScale* a_scale, const GlobalScale* b_scale,
                          const std::uint16_t* bias, std::uint32_t m, std::uint32_t n,
                          std::uint32_t k, More... more) noexcept {
  CUKILN_TRY(const TensorMap rows, tensor_map(kernel, plan.rows));
  CUKILN_TRY(const TensorMap columns, tensor_map(kernel, plan.columns));
  CUKILN_TRY(const TensorMap row_scales, tensor_map(kernel, plan.row_scales));
  CUKILN_TRY(const TensorMap column_scales, tensor_map(kernel, plan.column_scales));
  CUKILN_TRY(const auto output, output_of<Signature>(kernel, plan));
  LaunchConfig config;  // the cluster of a pair is an attribute of the kernel
  config.grid.x = plan.grid;
  config.block.x = kSm100BlockThreads;
  if (plan.splits > 1) {
    config.cluster = {plan.splits, 1, 1};
  }
  config.shared_bytes = plan.kernel->shared_bytes;
  config.programmatic_launch = true;  // the kernel itself waits for what it reads
  return Signature::launch(kernel, stream, config, rows, columns, row_scales, column_scales, output,
                           &a_scale->encode, &b_scale->encode, bias, m, n, k, more...);
}

}  // namespace cukiln::nvfp4::detail
