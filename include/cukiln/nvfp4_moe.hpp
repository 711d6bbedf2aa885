// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <cukiln/nvfp4.hpp>

namespace cukiln::nvfp4 {
inline namespace v0 {

/// Sizes of a mixture of experts.
struct MoeShape {
  std::int64_t tokens = 0;   ///< of this launch; 0 launches nothing
  std::int64_t topk = 0;     ///< experts of a token
  std::int64_t experts = 0;  ///< that have weights here, at most 1024
  std::int64_t hidden = 0;   ///< columns of input and output, a multiple of 32
  std::int64_t width = 0;    ///< columns between the two products, a multiple of 32
  /// Ids count to this; 0 for `experts`. With an expert_map it is the map's length.
  std::int64_t global_experts = 0;
};

/// Weights of all experts, one after the other, and what scales each expert's: as `Quantize` lays
/// out a matrix [rows, columns] each, codes `codes_bytes` and scales `scales_bytes` apart.
struct MoeWeights {
  const std::uint8_t* codes = nullptr;   ///< 16-byte aligned
  const std::uint8_t* scales = nullptr;  ///< 16-byte aligned
  const float* decode = nullptr;         ///< [experts], the decode scale of each
};

struct MoeInput {
  const std::uint16_t* hidden = nullptr;     ///< bf16 [tokens, hidden], dense, 16-byte aligned
  const float* hidden_gsa = nullptr;         ///< {encode, decode} of it
  const std::int32_t* topk_ids = nullptr;    ///< [tokens, topk]
  const float* topk_weights = nullptr;       ///< [tokens, topk]
  const std::int32_t* expert_map = nullptr;  ///< [global_experts] → local expert, or null
};

/// A mixture of experts with NVFP4 weights, from hidden states to hidden states:
///
///     x = NVFP4(hidden)                             once a token, with hidden_gsa
///     y = NVFP4(SwiGLU(x · up[e]ᵀ))                 with activation_gsa
///     output = bf16(Σ over ranks of topk_weights[rank] · (y · down[e]ᵀ))
///
/// where e is the expert of the token's rank: topk_ids, through expert_map if there is one. Ranks
/// whose id is negative or not below global_experts, or that map to no expert here, are skipped: a
/// token without any gets zeros. Products are exact, sums in float, SwiGLU in float with one
/// rounding to bf16 before quantisation. On compute capability 10.0 and 10.3, with more than 16
/// tokens for each expert (and hidden a multiple of 128, width of 64), the tensor cores' own NVFP4
/// products are used: then the two products are rounded to bf16 too, before SwiGLU and before the
/// sum over ranks. The same inputs and shape give the same bytes.
///
/// Shapes: up [experts, 2 · width, hidden], gate and up rows as `layout` says; down [experts,
/// hidden, width]; output bf16 [tokens, hidden], dense, 16-byte aligned. Limits: topk 1 to 1024,
/// tokens · topk up to 2^20.
/// Workspace: `workspace_bytes`, 16-byte aligned, any contents. One a stream.
/// `launch` queues four kernels, or six where experts have many tokens; it needs nothing from the
/// device, can be captured, and a replay reads ids and weights anew. Threads, asynchrony, lifetime:
/// as in nvfp4.hpp. Source: vLLM, fused MoE.
class CUKILN_API MoeGemm {
 public:
  /// For the first visible device. Errors: those of `KernelLoader::get`; incompatible (a device
  /// below 9.0).
  static Result<MoeGemm> create(KernelLoader& loader);

  /// What `launch` needs for this shape; 0 for a shape that it refuses or has nothing to do for.
  std::size_t workspace_bytes(const MoeShape& shape) const noexcept;

  Result<void> launch(Stream stream, std::uint16_t* output, const MoeShape& shape,
                      const MoeInput& input, const MoeWeights& up, const MoeWeights& down,
                      const float* activation_gsa, GateUpLayout layout, const SwiGlu& activation,
                      void* workspace) const noexcept;

 private:
  static constexpr std::size_t kTileSizes = 5;  // 8, 16, 32; 64, 128 by warpgroups
  Kernel route_;
  Kernel expand_;  // empty where there are no warpgroup instructions, as the last two below
  Kernel up_[kTileSizes];
  Kernel down_[kTileSizes];
  Kernel combine_;
  // Empty but on sm_100a and sm_103a.
  Kernel gather_;
  Kernel activate_;
  Kernel combine_rows_;
  GroupedGemm grouped_;
  std::uint32_t multiprocessors_ = 0;
};

}  // namespace v0
}  // namespace cukiln::nvfp4
