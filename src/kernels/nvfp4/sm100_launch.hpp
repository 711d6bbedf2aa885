// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.hpp"
#include "kernels/nvfp4/gemm_architecture.hpp"
#include "kernels/nvfp4/sm100_plan.hpp"

#include <cukiln/tensor_map.hpp>

namespace cukiln::nvfp4::detail {

/// Of a kernel of gemm_sm100.cuh: its parameters, `More` after those that all have.
template <class... More>
Result<void> check_sm100(const Kernel& kernel) {
  return check_parameters<TensorMap, TensorMap, TensorMap, TensorMap, TensorMap, const float*,
                          const float*, const std::uint16_t*, std::uint32_t, std::uint32_t,
                          std::uint32_t, More...>(kernel);
}

/// Launches what was planned; `args` follow the tensor maps.
template <class... Args>
Result<void> launch_sm100(const Kernel& kernel, Stream stream, const Sm100Plan& plan,
                          Args... args) noexcept {
  CUKILN_TRY(const TensorMap rows, tensor_map(kernel, plan.rows));
  CUKILN_TRY(const TensorMap columns, tensor_map(kernel, plan.columns));
  CUKILN_TRY(const TensorMap row_scales, tensor_map(kernel, plan.row_scales));
  CUKILN_TRY(const TensorMap column_scales, tensor_map(kernel, plan.column_scales));
  CUKILN_TRY(const TensorMap output, tensor_map(kernel, plan.output));
  LaunchConfig config;  // the pairs of CTAs are the kernel's own attribute
  config.grid.x = plan.grid;
  config.block.x = kSm100BlockThreads;
  config.shared_bytes = plan.kernel->shared_bytes;
  return launch_checked(kernel, stream, config, rows, columns, row_scales, column_scales, output,
                        args...);
}

}  // namespace cukiln::nvfp4::detail
