// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <cukiln/nvfp4/nvfp4.hpp>

/// What a call of a runner needs besides its output. It begins with the global scale of an input.
namespace cukiln::torch {

constexpr std::size_t rounded_up(std::size_t bytes) noexcept { return (bytes + 255) / 256 * 256; }

inline constexpr std::size_t kScratchGlobalScale = rounded_up(sizeof(nvfp4::GlobalScale));

/// Offsets in the scratch of a linear layer.
struct LinearScratch {
  std::size_t workspace;  ///< of the GEMM
  std::size_t workspace_bytes;
  std::size_t data;
  std::size_t scales;
  std::size_t end;
};

constexpr LinearScratch linear_scratch(std::int64_t tokens, std::int64_t in_features,
                                       std::size_t gemm_workspace_bytes) noexcept {
  LinearScratch layout{};
  layout.workspace = kScratchGlobalScale;
  layout.workspace_bytes = gemm_workspace_bytes;
  layout.data = layout.workspace + rounded_up(gemm_workspace_bytes);
  layout.scales = layout.data + rounded_up(nvfp4::data_bytes(tokens, in_features));
  layout.end = layout.scales + rounded_up(nvfp4::scales_bytes(tokens, in_features));
  return layout;
}

}  // namespace cukiln::torch
