// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.hpp"
#include "core/driver/device_contexts.hpp"
#include "core/driver/driver_api.hpp"

#include <cukiln/kernel.hpp>
#include <cukiln/module.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

/// A loaded cubin: one `CUlibrary` for every device and context.
/// Threads: safe. Lifetime: must outlive its kernels, which point into it.
class LoadedModule {
 public:
  struct KernelName {
    std::string name;    ///< for messages and lookups
    std::string symbol;  ///< the lowered name in the image
  };
  using VariableName = KernelName;

  /// Loads every kernel's code on every given device, in parallel and regardless of
  /// CUDA_MODULE_LOADING, so that no later launch in the devices' contexts loads anything.
  /// Captures of other streams stay valid, because the loading threads use relaxed capture mode.
  /// Errors: driver; incompatible (another architecture, too new for the driver) and corrupt
  /// (invalid image), after which the caller compiles once more; not_found (no such symbol in the
  /// image); invalid_argument if `capture_guard` or the legacy stream is being captured, or there
  /// is no such device.
  static Result<std::shared_ptr<LoadedModule>> load(std::shared_ptr<const DriverApi> api,
                                                    ByteView image,
                                                    const std::vector<KernelName>& kernels,
                                                    std::shared_ptr<const DeviceContexts> devices,
                                                    Stream capture_guard);
  /// Does the same with `DeviceContexts::open(devices)`, called in the calling thread.
  static Result<std::shared_ptr<LoadedModule>> load(std::shared_ptr<const DriverApi> api,
                                                    ByteView image,
                                                    const std::vector<KernelName>& kernels,
                                                    const std::vector<int>& devices,
                                                    Stream capture_guard);
  ~LoadedModule();
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;

  const std::vector<Kernel>& kernels() const noexcept { return kernels_; }
  /// The devices that it is loaded on.
  const std::shared_ptr<const DeviceContexts>& devices() const noexcept;

  /// Has the kernels run the functions of the same names in `next`, or, if that is this module, its
  /// own again; each from its next launch on. What was set on a function (limit of dynamic shared
  /// memory, clusters, …) is set on the next. Launches of other threads go on meanwhile. `next`
  /// must be loaded on the same devices and stay loaded. Threads: one at a time. Errors, after
  /// which all is as before: incompatible (a name that `next` lacks, other parameters, a driver
  /// before 12.4, which does not report them, a variable whose address was given out); driver (what
  /// was set is more than the next function may have).
  Result<void> exchange(const LoadedModule& next);

  /// Sets the names by which `global` knows variables. Called once, before other threads have the
  /// module.
  void set_variables(std::vector<VariableName> variables);
  const std::vector<VariableName>& variables() const noexcept { return variables_; }
  /// As Module::global, by a name in the canonical spelling; without an ordinal on the device of
  /// the current context.
  Result<Global> global(std::string_view name, std::optional<int> ordinal) const;

 private:
  LoadedModule();
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::vector<Kernel> kernels_;
  std::vector<VariableName> variables_;
};

/// Returns an error if a load now would invalidate a capture: if `capture_guard` is being captured,
/// or the legacy stream of the calling thread's current context reports a capture. Errors:
/// invalid_argument, driver.
Result<void> check_not_capturing(const DriverApi& api, Stream capture_guard);

}  // namespace cukiln
