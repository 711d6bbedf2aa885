// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "nvfp4/host/device_kernels.hpp"
#include "nvfp4/host/gemm_architecture.hpp"
#include "nvfp4/host/stored_tactics.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>

/// What Gemm and W4a16Gemm have in common. <cukiln/nvfp4/nvfp4.hpp> documents it.
namespace cukiln::nvfp4::detail {

/// The private part of a GemmLauncher.
struct GemmKernels {
  kernels::LaunchDevice device;
  const GemmArchitecture* architecture = nullptr;
  std::shared_ptr<const StoredTactics> stored;
  std::vector<Kernel> kernels;  // in the architecture's order
};

Result<std::shared_ptr<const GemmKernels>> create_gemm(KernelLoader& loader, int device,
                                                       const GemmFamily& family);

/// What GemmLaunchers have as `modules`.
ModuleNames modules_of(const GemmFamily& family, int capability, std::int64_t max_tokens,
                       std::int64_t n, std::int64_t k);

/// Launches a GEMM whose `stream`, A, B and `m` are in `call`, their sizes checked. Checks all
/// else.
Result<void> launch_gemm(const GemmKernels& gemm, GemmCall call, const MutableMatrixView& output,
                         const Workspace& workspace, const GemmOptions& options) noexcept;

}  // namespace cukiln::nvfp4::detail
