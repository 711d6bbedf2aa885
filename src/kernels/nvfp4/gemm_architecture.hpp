// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <cukiln/nvfp4.hpp>

namespace cukiln::nvfp4 {

/// One product, its arguments checked.
struct GemmCall {
  Stream stream;
  std::uint16_t* output;
  Matrix a;
  Matrix b;
  const std::uint16_t* bias;
  std::uint32_t m;
  std::uint32_t n;
  std::uint32_t k;
  void* workspace;
  GemmOptions options;
};

namespace detail {

struct GemmKernel {
  const char* module;
  const char* name;
  std::uint32_t shared_bytes;                   // dynamic
  Result<void> (*check)(const Kernel& kernel);  // number and sizes of the parameters
};

struct GemmArchitecture {
  int capability;
  const GemmKernel* kernels;
  std::size_t kernel_count;
  std::size_t (*workspace_bytes)(std::int64_t m, std::int64_t n, std::int64_t k);
  /// How many ways there are: what `GemmOptions::tactic` may name.
  std::size_t (*tactics)(std::uint32_t m, std::uint32_t n, std::uint32_t k,
                         std::uint32_t multiprocessors) noexcept;
  /// `kernels` in the order of the table above.
  Result<void> (*launch)(const Kernel* kernels, std::uint32_t multiprocessors,
                         const GemmCall& call) noexcept;
};

extern const GemmArchitecture kGemmSm90;
extern const GemmArchitecture kGemmSm100;
extern const GemmArchitecture kGemmSm103;  ///< the same kernels
extern const GemmArchitecture kGemmAny;    ///< those of sm_90's kernels that compile everywhere

template <class... Args>
Result<void> check_parameters(const Kernel& kernel) {
  const auto typed = TypedKernel<Args...>::create(kernel);
  return typed ? Result<void>() : Result<void>(typed.error());
}

/// A kernel whose parameters were checked: the arguments have exactly the types of that check.
template <class... Args>
Result<void> launch_checked(const Kernel& kernel, Stream stream, const LaunchConfig& config,
                            Args... args) noexcept {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&args))...};
  return kernel.launch(stream, config, pointers);
}

}  // namespace detail
}  // namespace cukiln::nvfp4
