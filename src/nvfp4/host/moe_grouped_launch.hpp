// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nvfp4/host/moe_grouped.hpp"

#include <cukiln/tensor_map.hpp>

namespace cukiln::nvfp4 {

/// Calls launch(config, maps of the first GEMM…) for its kernel, one of those above.
template <class Launch>
Result<void> launch_grouped_up(const Sm100Plan& plan, const Kernel& kernel,
                               Launch&& launch) noexcept {
  CUKILN_TRY(const TensorMap rows, tensor_map(kernel, plan.rows));
  CUKILN_TRY(const TensorMap weights, tensor_map(kernel, plan.columns));
  CUKILN_TRY(const TensorMap row_scales, tensor_map(kernel, plan.row_scales));
  CUKILN_TRY(const TensorMap weight_scales, tensor_map(kernel, plan.column_scales));
  LaunchConfig config;
  config.grid.x = plan.grid;
  config.block.x = kSm100BlockThreads;
  config.shared_bytes = plan.kernel->shared_bytes;
  config.programmatic_launch = true;  // it waits for what it reads
  return launch(config, rows, weights, row_scales, weight_scales);
}

}  // namespace cukiln::nvfp4
