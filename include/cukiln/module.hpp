// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <cukiln/export.hpp>
#include <cukiln/kernel.hpp>
#include <cukiln/result.hpp>

namespace cukiln {

class LoadedModule;

inline namespace v0 {

/// A `__device__` or `__constant__` variable on one device.
struct Global {
  std::uint64_t address = 0;  ///< a `CUdeviceptr`: for cuMemcpyHtoD, cuMemcpyDtoH and kernels
  std::size_t size_bytes = 0;
};

/// A handle to a loaded module: one pointer, cheap to copy.
///
/// Threads: every member may be called concurrently.
/// Lifetime: valid while the KernelLoader that returned it exists and the module is not unloaded.
class CUKILN_API Module {
 public:
  Module() noexcept = default;
  explicit Module(const LoadedModule* loaded) noexcept : loaded_(loaded) {}

  explicit operator bool() const noexcept { return loaded_ != nullptr; }

  /// Returns the kernels, in the order of the names that were asked for.
  std::vector<Kernel> kernels() const;

  /// Returns a variable on device `ordinal`. `name` is a name expression in any spelling, with or
  /// without `&`, among the module's names; or the symbol of a variable, which outside of
  /// namespaces is its name. Not for the hot path.
  /// Errors: not_found (no such variable: it must be used by a kernel or be among the names),
  /// invalid_argument (not loaded on that device, or an empty handle), driver.
  Result<Global> global(std::string_view name, int ordinal) const;
  /// The same on the device of the calling thread's current context. Errors: also invalid_argument
  /// if there is none.
  Result<Global> global(std::string_view name) const;

 private:
  const LoadedModule* loaded_ = nullptr;
};

}  // namespace v0
}  // namespace cukiln
