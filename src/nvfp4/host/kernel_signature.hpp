// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

#include <cukiln/kernel.hpp>

namespace cukiln::kernels {

/// How a kernel with the parameters of a function type is launched: `check` once, then `launch`. A
/// launcher stores the plain handle, so that public headers do not name the parameters of kernels.
template <class Function>
struct KernelSignature;

template <class... Parameters>
struct KernelSignature<void(Parameters...)> {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "they are copied as bytes");

  /// Errors: invalid_argument, if number or sizes of the parameters differ.
  static Result<void> check(const Kernel& kernel) {
    const std::size_t sizes[] = {sizeof(Parameters)...};  // NOLINT(bugprone-sizeof-expression)
    return kernel.check_parameters(sizes, sizeof...(Parameters));
  }

  /// Launches a kernel that `check` accepted.
  static Result<void> launch(const Kernel& kernel, Stream stream, const LaunchConfig& config,
                             const Parameters&... parameters) noexcept {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&parameters))...};
    return kernel.launch(stream, config, pointers);
  }
};

}  // namespace cukiln::kernels
