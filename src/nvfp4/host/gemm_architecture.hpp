// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "nvfp4/host/gemm_table.hpp"
#include "nvfp4/host/kernel_signature.hpp"

#include <cukiln/nvfp4/nvfp4.hpp>

namespace cukiln::nvfp4 {

/// One GEMM, its arguments checked.
struct GemmCall {
  Stream stream;
  std::uint16_t* output;
  QuantizedMatrix a;  ///< W4A4
  QuantizedMatrix b;
  const std::uint16_t* bias;
  std::uint32_t m;
  std::uint32_t n;
  std::uint32_t k;
  void* workspace;
  bool constant_b;
  GemmTactic tactic;
  MatrixView bf16_a;  ///< W4A16
};

namespace detail {

/// A kernel that an architecture needs.
struct GemmKernel {
  const char* module;
  const char* name;
  std::uint32_t shared_bytes;                   // dynamic
  Result<void> (*check)(const Kernel& kernel);  // KernelSignature::check
};

/// The kernels of one architecture, and how a GEMM is launched with them.
struct GemmArchitecture {
  bool (*runs_on)(int capability) noexcept;
  const GemmKernel* kernels;
  std::size_t kernel_count;
  std::size_t (*workspace_bytes)(std::int64_t m, std::int64_t n, std::int64_t k);
  GemmTactics (*tactics)(std::uint32_t m, std::uint32_t n, std::uint32_t k,
                         std::uint32_t num_sms) noexcept;
  /// Selects the tactic of the built-in table, else the one that should be fastest.
  GemmTactic (*select)(std::uint32_t m, std::uint32_t n, std::uint32_t k,
                       std::uint32_t num_sms) noexcept;
  /// `kernels` in the order of the table above.
  Result<void> (*launch)(const Kernel* kernels, std::uint32_t num_sms,
                         const GemmCall& call) noexcept;
};

extern const GemmArchitecture kGemmSm90;
extern const GemmArchitecture kGemmSm100;  ///< where GroupedGemm::runs_on
extern const GemmArchitecture kGemmAny;    ///< those of sm_90's kernels that compile everywhere
extern const GemmArchitecture kW4a16Sm90;
extern const GemmArchitecture kW4a16Any;  ///< as kGemmAny

/// The architectures that compute one kind of GEMM.
struct GemmFamily {
  const char* name;  ///< of the kernels, for errors and in the keys of stored tactics
  /// The last one is for every device that has no kernels of its own.
  const GemmArchitecture* architectures[3];
};

inline constexpr GemmFamily kGemmFamily = {"nvfp4_gemm", {&kGemmSm90, &kGemmSm100, &kGemmAny}};
inline constexpr GemmFamily kW4a16Family = {"nvfp4_w4a16_gemm", {&kW4a16Sm90, &kW4a16Any}};

/// The architecture for a device.
inline const GemmArchitecture& architecture_of(const GemmFamily& family, int capability) noexcept {
  const GemmArchitecture* const* at = family.architectures;
  while (!(*at)->runs_on(capability)) {
    ++at;
  }
  return **at;
}

}  // namespace detail
}  // namespace cukiln::nvfp4
