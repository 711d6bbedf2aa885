// SPDX-License-Identifier: Apache-2.0
#pragma once

// The kernels that a mixture of experts launches before and after grouped GEMMs. None needs a
// tensor core: they run on every device.

#include <cstdint>

#include <doctest/doctest.h>

#include <cukiln/kernel.hpp>

#include "gpu/support/loader.hpp"
#include "kernels_src/nvfp4/moe_signatures.cuh"
#include "nvfp4/host/device_kernels.hpp"
#include "nvfp4/host/moe_grouped.hpp"

namespace cukiln::testing {

using MoeRouteRows = kernels::KernelSignature<signatures::MoeRouteRows>;
using MoeCombineRows = kernels::KernelSignature<signatures::MoeCombineRows>;

inline LaunchConfig config_of(const nvfp4::MoeGrid& grid, std::uint32_t threads) {
  LaunchConfig config;
  config.grid = {grid.x, grid.y, 1};
  config.block.x = threads;
  return config;
}

/// A shipped kernel with these parameters. An error ends the test case.
template <class Signature>
struct ShippedKernel {
  ShippedKernel(const char* module, const char* name) {
    const auto kernels = kernels::DeviceKernels::open(shipped_loader(), 0);
    REQUIRE_MESSAGE(kernels, kernels.error().message());
    const auto found = kernels->get<Signature>(module, name);
    REQUIRE_MESSAGE(found, found.error().message(), "\n", found.error().log());
    kernel = *found;
  }

  template <class... Args>
  Result<void> launch(Stream stream, const LaunchConfig& config, Args... args) const noexcept {
    return Signature::launch(kernel, stream, config, args...);
  }

  Kernel kernel;
};

struct MoeGroupedKernels {
  ShippedKernel<MoeRouteRows> route{"nvfp4_moe_grouped", "moe_route_rows"};
  ShippedKernel<MoeCombineRows> combine{"nvfp4_moe_combine", "moe_combine_rows"};
};

}  // namespace cukiln::testing
