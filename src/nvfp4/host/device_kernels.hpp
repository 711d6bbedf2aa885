// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "core/base/result.hpp"
#include "nvfp4/host/checks.hpp"
#include "nvfp4/host/kernel_signature.hpp"

#include <cukiln/device.hpp>
#include <cukiln/loader.hpp>

namespace cukiln::kernels {

/// The CUDA device that a launcher was created for.
struct LaunchDevice {
  int ordinal = -1;  ///< as in KernelLoader::devices()
  int handle = 0;    ///< CUdevice
  std::uint32_t num_sms = 0;
  unsigned (*current_device)(int* handle) = nullptr;  ///< cuCtxGetDevice
};

/// Gets shipped kernels for one device, for the `create` of a launcher.
class DeviceKernels {
 public:
  /// Errors: invalid_argument (no such device); driver.
  static Result<DeviceKernels> open(KernelLoader& loader, int device);

  const DeviceInfo& info() const noexcept { return info_; }
  const LaunchDevice& device() const noexcept { return device_; }

  /// Returns a kernel that is loaded on the device: one that is loaded already, else compiled and
  /// loaded now. Errors: not_found (no such module in this build); invalid_argument (the module is
  /// loaded, on other devices only); those of `KernelLoader::get`.
  Result<Kernel> get(const std::string& module, const std::string& kernel) const;

  /// A kernel with these parameters. Errors: also invalid_argument, see KernelSignature::check.
  template <class Signature>
  Result<Kernel> get(const std::string& module, const std::string& kernel) const {
    CUKILN_TRY(const Kernel found, get(module, kernel));
    CUKILN_CHECK(Signature::check(found));
    return found;
  }

  /// Returns how many blocks of so many threads the whole device holds at the same time.
  Result<std::uint32_t> wave_blocks(const Kernel& kernel, std::uint32_t block_threads) const;

 private:
  explicit DeviceKernels(KernelLoader& loader) : loader_(&loader) {}

  KernelLoader* loader_;
  DeviceInfo info_;
  LaunchDevice device_;
};

/// Checks that this thread's current context is one of the device. `name`: the launcher's class.
Result<void> check_current_device(const char* name, const LaunchDevice& device) noexcept;

/// Checks that a launcher was created, and check_current_device. `impl`: its private part, null in
/// an empty launcher.
template <class Impl>
Result<void> check_launch_device(const char* name, const Impl* impl) noexcept {
  return impl == nullptr ? refuse("an empty {0}; expected one that {0}::create made", name)
                         : check_current_device(name, impl->device);
}

}  // namespace cukiln::kernels
