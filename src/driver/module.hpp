// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "driver/device_contexts.hpp"
#include "driver/driver_api.hpp"

#include <cukiln/device.hpp>
#include <cukiln/kernel.hpp>
#include <cukiln/result.hpp>
#include <cukiln/target.hpp>

namespace cukiln {

/// The visible devices. Errors: driver.
Result<std::vector<DeviceInfo>> list_devices(const DriverApi& api);

/// A device's own target with the arch-specific suffix from 9.0 on: 90 → sm_90a, 86 → sm_86.
Target target_of(const DeviceInfo& device) noexcept;

/// A loaded cubin: one `CUlibrary`, which serves every device and context.
/// Threads: safe. Lifetime: kernels point into it.
class Module {
 public:
  struct KernelName {
    std::string name;    ///< to show
    std::string symbol;  ///< in the image
  };

  /// Loads `image` completely (every kernel's code, on every given device in parallel, whatever
  /// CUDA_MODULE_LOADING says), so that no launch in the devices' contexts loads anything later.
  /// Captures of other streams stay valid: the loading threads are in relaxed capture mode.
  /// Errors: driver; incompatible (another architecture, too new for the driver) and corrupt
  /// (invalid image), which the caller answers by one rebuild; not_found (no such symbol in the
  /// image); invalid_argument when `capture_guard` or the legacy stream captures, or a device is
  /// not there.
  static Result<std::shared_ptr<Module>> load(std::shared_ptr<const DriverApi> api, ByteView image,
                                              const std::vector<KernelName>& kernels,
                                              std::shared_ptr<const DeviceContexts> devices,
                                              Stream capture_guard);
  /// The same with `DeviceContexts::open(devices)` of the calling thread.
  static Result<std::shared_ptr<Module>> load(std::shared_ptr<const DriverApi> api, ByteView image,
                                              const std::vector<KernelName>& kernels,
                                              const std::vector<int>& devices,
                                              Stream capture_guard);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::vector<Kernel>& kernels() const noexcept { return kernels_; }

 private:
  Module();
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::vector<Kernel> kernels_;
};

/// Refuses when a load now would break a capture: when `capture_guard` captures, or the legacy
/// stream of the calling thread's current context reports one. Errors: invalid_argument, driver.
Result<void> check_not_capturing(const DriverApi& api, Stream capture_guard);

}  // namespace cukiln
