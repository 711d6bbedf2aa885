// SPDX-License-Identifier: Apache-2.0
#pragma once

// The kernels that a mixture of experts launches around grouped GEMMs, on whatever device is
// here: none of them needs a tensor core.

#include <cstdint>

#include <doctest/doctest.h>

#include <cukiln/kernel.hpp>

#include "gpu/support/loader.hpp"
#include "kernels/nvfp4/moe_grouped.hpp"
#include "kernels/shipped_kernel.hpp"

namespace cukiln::testing {

using MoeRoute = TypedKernel<nvfp4::MoeTile*, std::uint32_t*, std::uint32_t*, std::int32_t*,
                             std::uint8_t*, std::uint8_t*, const std::uint16_t*, const float*,
                             const std::int32_t*, const std::int32_t*, std::uint32_t, std::uint32_t,
                             std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
using MoeGather = TypedKernel<std::uint8_t*, std::uint8_t*, std::int32_t*, std::int32_t*, float*,
                              float*, const nvfp4::MoeTile*, const std::uint32_t*,
                              const std::uint32_t*, const std::uint8_t*, const std::uint8_t*,
                              const float*, const float*, std::uint32_t, std::uint32_t>;
using MoeActivate =
    TypedKernel<std::uint8_t*, std::uint8_t*, const std::uint16_t*, const std::uint32_t*,
                const float*, std::uint32_t, std::uint32_t, float, float, float>;
using MoeCombineRows = TypedKernel<std::uint16_t*, const std::uint16_t*, const float*,
                                   const std::int32_t*, std::uint32_t, std::uint32_t>;

inline LaunchConfig config_of(const nvfp4::MoeGrid& grid, std::uint32_t threads) {
  LaunchConfig config;
  config.grid = {grid.x, grid.y, 1};
  config.block.x = threads;
  return config;
}

/// A shipped kernel that takes these arguments. An error ends the test case.
template <class Typed>
Typed shipped(const char* module, const char* name) {
  const auto kernel = kernels::shipped_kernel(shipped_loader(), module, name);
  REQUIRE_MESSAGE(kernel, kernel.error().message(), "\n", kernel.error().log());
  const auto typed = Typed::create(*kernel);
  REQUIRE_MESSAGE(typed, typed.error().message());
  return *typed;
}

struct MoeGroupedKernels {
  MoeRoute route = shipped<MoeRoute>("nvfp4_moe_route", "moe_route");
  MoeGather gather = shipped<MoeGather>("nvfp4_moe_grouped", "moe_gather");
  MoeActivate activate = shipped<MoeActivate>("nvfp4_moe_grouped", "moe_activate");
  MoeCombineRows combine = shipped<MoeCombineRows>("nvfp4_moe_combine", "moe_combine_rows");
};

}  // namespace cukiln::testing
