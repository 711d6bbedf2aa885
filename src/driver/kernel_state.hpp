// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver/device_contexts.hpp"
#include "driver/driver_api.hpp"

#include <cukiln/kernel.hpp>

namespace cukiln::detail {

/// What a Kernel points to. Never changed once a Kernel was handed out.
struct alignas(64) KernelState {
  // What a launch reads, in one cache line.
  CUkernel kernel = nullptr;
  decltype(DriverFunctions::cuLaunchKernel) launch = nullptr;
  decltype(DriverFunctions::cuLaunchKernelEx) launch_ex = nullptr;
  bool starts_early = false;  ///< what asks for a programmatic launch gets one

  const DriverApi* api = nullptr;
  const DeviceContexts* devices = nullptr;
  std::string name;
  bool parameters_known = false;  ///< false where the driver is older than 12.4
  std::vector<std::size_t> parameter_bytes;
  mutable std::mutex reserve_mutex;  ///< reading and raising the limit are two driver calls
};

/// The state of a handle, for this layer and the launchers above it.
struct KernelAccess {
  static const KernelState* state(const Kernel& kernel) noexcept { return kernel.state_; }
};

}  // namespace cukiln::detail
