// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/nvfp4/gemm_architecture.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/nvfp4.hpp>
#include <cukiln/store.hpp>

/// What Gemm and W4a16Gemm have in common. <cukiln/nvfp4.hpp> documents it.
namespace cukiln::nvfp4::detail {

Result<GemmKernels> create_gemm(KernelLoader& loader, int device, const GemmFamily& family);

std::size_t workspace_bytes(const GemmKernels& gemm, std::int64_t m, std::int64_t n,
                            std::int64_t k) noexcept;
int tactic_count(const GemmKernels& gemm, std::int64_t m, std::int64_t n, std::int64_t k) noexcept;
Result<GemmTacticName> tactic_name(const GemmKernels& gemm, std::int64_t m, std::int64_t n,
                                   std::int64_t k, int tactic);
Result<void> keep_tactics(const GemmKernels& gemm, Store& store,
                          const std::vector<MeasuredGemm>& rows);
Result<std::vector<MeasuredGemm>> kept_tactics(const GemmKernels& gemm, Store& store);

/// Launches a GEMM whose `stream`, A, B and `m` are in `call`, their sizes checked. Checks all
/// else.
Result<void> launch_gemm(const GemmKernels& gemm, GemmCall call, const MutableMatrixView& output,
                         const Workspace& workspace, const GemmOptions& options) noexcept;

}  // namespace cukiln::nvfp4::detail
