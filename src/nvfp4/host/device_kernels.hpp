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

  /// As `get`, with dynamic shared memory reserved. An empty kernel where the loader is sealed and
  /// has none: the launcher then serves the numbers of tokens that need others.
  template <class Check>
  Result<Kernel> get_unless_sealed(const char* module, const char* kernel, Check check,
                                   std::uint32_t shared_bytes) const {
    CUKILN_TRY(const Kernel found, get_unless_sealed(module, kernel));
    if (found) {
      CUKILN_CHECK(check(found));
      CUKILN_CHECK(found.reserve_shared(shared_bytes));
    }
    return found;
  }

  /// Returns how many blocks of so many threads the whole device holds at the same time.
  Result<std::uint32_t> wave_blocks(const Kernel& kernel, std::uint32_t block_threads) const;

 private:
  explicit DeviceKernels(KernelLoader& loader) : loader_(&loader) {}

  /// A kernel that is loaded already; else empty.
  Kernel find_loaded(const std::string& module, const std::string& kernel) const;
  Result<Kernel> get_unless_sealed(const char* module, const char* kernel) const;

  KernelLoader* loader_;
  mutable bool refuses_ = false;  // the loader, after seal(): it is asked once
  DeviceInfo info_;
  LaunchDevice device_;
};

/// Errors: sealed, if get_unless_sealed returned an empty kernel.
inline Result<void> check_ready(const Kernel& kernel, std::int64_t tokens) noexcept {
  return kernel ? Result<void>() : guarded([&]() -> Result<void> {
    return make_error(ErrorCode::sealed,
                      "the kernel for {} tokens was not loaded before seal(): preload a manifest "
                      "for as many, as cukiln.torch.manifest_for writes it",
                      tokens);
  });
}

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
