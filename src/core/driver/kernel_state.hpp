// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/mutex.hpp"
#include "core/driver/device_contexts.hpp"
#include "core/driver/driver_api.hpp"

#include <cukiln/kernel.hpp>

namespace cukiln::detail {

/// The state behind Kernel handles. Constant once a handle exists, but for the function.
struct alignas(64) KernelState {
  // The members that a launch reads come first, in one cache line.
  /// The function of now, which LoadedModule::exchange replaces with a release store. Its readers
  /// follow the pointer, and no processor reads behind it what was there before: relaxed loads do.
  std::atomic<CUkernel> kernel{nullptr};
  decltype(DriverFunctions::cuLaunchKernel) launch = nullptr;
  decltype(DriverFunctions::cuLaunchKernelEx) launch_ex = nullptr;
  bool starts_early = false;  ///< the driver supports programmatic dependent launch in graphs too

  const DriverApi* api = nullptr;
  const DeviceContexts* devices = nullptr;
  std::string name;
  bool parameters_known = false;  ///< false if the driver is older than 12.4
  std::vector<std::size_t> parameter_bytes;
  CUkernel own = nullptr;       ///< the function in this module's image
  mutable Mutex reserve_mutex;  ///< guards what reads and raises a limit, and `exchange`

  CUkernel current() const noexcept { return kernel.load(std::memory_order_relaxed); }
};

/// Access to the state of a handle, for this layer and the launchers above it.
struct KernelAccess {
  static const KernelState* state(const Kernel& kernel) noexcept { return kernel.state_; }
};

}  // namespace cukiln::detail
