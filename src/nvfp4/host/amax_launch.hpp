// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "nvfp4/host/ceil_div.hpp"
#include "nvfp4/host/checks.hpp"

#include <cukiln/kernel.hpp>

namespace cukiln::nvfp4 {

inline constexpr std::uint32_t kAmaxThreads = 512;

/// A word for each thread block: see `write_global_scale` in kernels_src/nvfp4/amax.cuh.
constexpr std::size_t amax_workspace_bytes(std::uint32_t max_blocks) noexcept {
  return std::size_t{4} * max_blocks;
}

/// The launch of a kernel whose blocks take `block_units` units of work at a time.
inline LaunchConfig amax_config(std::int64_t units, std::int64_t block_units,
                                std::uint32_t max_blocks) noexcept {
  LaunchConfig config;
  config.grid.x = kernels::clamped_grid(kernels::ceil_div(units, block_units), max_blocks);
  config.block.x = kAmaxThreads;
  config.programmatic_launch = true;  // the kernels wait for what they read
  return config;
}

}  // namespace cukiln::nvfp4
