// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "core/driver/driver_api.hpp"

#include <cukiln/device.hpp>
#include <cukiln/result.hpp>
#include <cukiln/target.hpp>

namespace cukiln {

/// Lists the visible devices. Errors: driver.
Result<std::vector<DeviceInfo>> list_devices(const DriverApi& api);

/// Returns a device's own target, with the architecture-specific suffix from 9.0 on: 90 → sm_90a,
/// 86 → sm_86.
Target target_of(const DeviceInfo& device) noexcept;

/// One context for each chosen device, kept while modules are loaded: the calling thread's current
/// context if it is the device's, else the device's primary context, which is retained.
/// Threads: immutable once opened. A loader opens it in the host's thread and uses it in others.
class DeviceContexts {
 public:
  struct Entry {
    int ordinal = 0;
    CUdevice device = 0;
    CUcontext context = nullptr;
    bool retained = false;
  };

  /// Creates missing primary contexts in parallel, because each takes 0.2 s.
  /// Errors: invalid_argument (no such device, or none given), driver.
  static Result<std::shared_ptr<const DeviceContexts>> open(std::shared_ptr<const DriverApi> api,
                                                            const std::vector<int>& ordinals);
  ~DeviceContexts();
  DeviceContexts(const DeviceContexts&) = delete;
  DeviceContexts& operator=(const DeviceContexts&) = delete;

  const std::vector<Entry>& entries() const noexcept { return entries_; }

 private:
  explicit DeviceContexts(std::shared_ptr<const DriverApi> api) : api_(std::move(api)) {}
  std::shared_ptr<const DriverApi> api_;
  std::vector<Entry> entries_;
};

/// Makes a context current in this thread until the end of the scope.
class CurrentContext {
 public:
  CurrentContext(const DriverApi& api, CUcontext context) noexcept
      : api_(api), result_(api.call.cuCtxPushCurrent(context)) {}
  ~CurrentContext() {
    if (result_ == kCudaSuccess) {
      CUcontext popped = nullptr;
      api_.call.cuCtxPopCurrent(&popped);
    }
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  CUresult result() const noexcept { return result_; }

 private:
  const DriverApi& api_;
  CUresult result_;
};

}  // namespace cukiln
