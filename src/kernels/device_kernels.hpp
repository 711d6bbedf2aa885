// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"
#include "kernels/kernel_signature.hpp"

#include <cukiln/device.hpp>
#include <cukiln/launch_device.hpp>
#include <cukiln/loader.hpp>

namespace cukiln::kernels {

/// Gets shipped kernels for one device, for the `create` of a launcher.
class DeviceKernels {
 public:
  /// Errors: invalid_argument (no such device); driver.
  static Result<DeviceKernels> open(KernelLoader& loader, int device);

  const DeviceInfo& info() const noexcept { return info_; }
  const detail::LaunchDevice& device() const noexcept { return device_; }

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
  detail::LaunchDevice device_;
};

/// Checks that `launcher` was created, and that the calling thread's current context is one of its
/// device. `name`: its class, for the error.
Result<void> check_launch_device(const char* name, const detail::LaunchDevice& device) noexcept;

}  // namespace cukiln::kernels
