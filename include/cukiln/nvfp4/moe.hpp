// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <cukiln/nvfp4/nvfp4.hpp>

namespace cukiln::nvfp4 {
inline namespace v0 {

/// Sizes of a mixture of experts.
struct MoeShape {
  std::int64_t tokens = 0;   ///< of this launch; 0 launches nothing
  std::int64_t topk = 0;     ///< experts of a token
  std::int64_t experts = 0;  ///< that have weights here, at most 1024
  std::int64_t hidden = 0;   ///< columns of input and output, a multiple of 32
  std::int64_t width = 0;    ///< columns between the two GEMMs, a multiple of 32
  /// Ids are below this; 0: below `experts`. With an expert map it is the map's length.
  std::int64_t global_experts = 0;
  bool w4a16 = false;                     ///< hidden states and SwiGLU's results stay in bf16
  bool dynamic_activation_scale = false;  ///< as of `MoeLayer`
};

/// The weights of all experts: matrices [rows, columns], one after the other, each as `Quantize`
/// lays it out, `data_bytes` and `scales_bytes` apart.
struct MoeWeights {
  const std::uint8_t* data = nullptr;    ///< 16-byte aligned
  const std::uint8_t* scales = nullptr;  ///< 16-byte aligned
  const float* decode = nullptr;         ///< [experts], the decode scale of each
  std::int64_t experts = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const std::uint16_t* bias = nullptr;  ///< bf16 [experts, rows], 16-byte aligned; null: none
};

/// A layer's weights and constants, the same for every launch.
struct MoeLayer {
  MoeWeights up;    ///< [experts, 2 · width, hidden], gate and up rows as `layout` says
  MoeWeights down;  ///< [experts, hidden, width]
  /// Global scale of SwiGLU's results. Null: W4A16, nothing but the weights is quantised, unless
  /// the scale is dynamic.
  const GlobalScale* activation_scale = nullptr;
  /// Quantises each row of SwiGLU's results with its own global scale (from the row's amax, as
  /// `ComputeGlobalScale` has it), so rows are independent. `activation_scale` is not read.
  bool dynamic_activation_scale = false;
  VectorView expert_map;  ///< i32 [global_experts] → local expert; absent: ids are local experts
  /// Ids are below this; 0: below the map's length, or the number of experts here.
  std::int64_t global_experts = 0;
  GateUpLayout layout = GateUpLayout::halves;
  SwiGlu activation;

  constexpr bool is_w4a16() const noexcept {
    return activation_scale == nullptr && !dynamic_activation_scale;
  }

  constexpr MoeShape shape(std::int64_t tokens, std::int64_t topk) const noexcept {
    return {tokens,       topk,
            up.experts,   up.columns,
            down.columns, global_experts != 0 ? global_experts : expert_map.size,
            is_w4a16(),   dynamic_activation_scale};
  }
};

/// What a launch reads besides the layer.
struct MoeInput {
  MatrixView hidden;                          ///< bf16 [tokens, hidden], dense, 16-byte aligned
  const GlobalScale* hidden_scale = nullptr;  ///< of `hidden`; not read with W4A16
  MatrixView topk_ids;                        ///< i32 [tokens, topk], dense
  MatrixView topk_weights;                    ///< f32 [tokens, topk], dense
};

/// Computes a mixture of experts with NVFP4 weights, from hidden states to hidden states:
///
///     x = NVFP4(hidden)                             once a token, with hidden_scale
///     y = NVFP4(SwiGLU(x · up[e]ᵀ + up.bias[e]))    with activation_scale, or one of each row
///     output = bf16(Σ over ranks of topk_weights[rank] · (y · down[e]ᵀ + down.bias[e]))
///
/// where biases are 0 unless given, and e is the expert of the token's rank: topk_ids, through
/// expert_map if there is one. Ranks whose id is negative or not below global_experts, or that map
/// to no expert here, are skipped: a token without any gets zeros. Products are exact, sums in
/// float, SwiGLU in float with one rounding to bf16 before quantisation; biases are added to the
/// sums. W4A16, of a layer without activation_scale or a dynamic one, is the same without
/// quantisation: x = hidden and y = bf16(SwiGLU(…)), multiplied by the exact weights. With more
/// than 16 tokens for each expert (and width a multiple of 64), its second GEMM's results are
/// rounded to bf16 before the sum over ranks, on sm_90a. On devices of GroupedGemm, with more than
/// 16 tokens for each expert (and hidden a multiple of 128, width of 64), grouped GEMMs are used
/// for W4A4: their results are rounded to bf16 too, before SwiGLU and before the sum over ranks,
/// and the dynamic scale of a row is a power of two, the largest with which no block's scale rounds
/// above 448. The same inputs and shape give the same bytes.
///
/// Shapes: output bf16 [tokens, hidden], dense, 16-byte aligned. Limits: topk 1 to 1024, tokens ·
/// topk up to 2^20.
/// Workspace: `workspace_bytes(shape)`, 16-byte aligned, any contents. It is enough for any
/// routing: where experts are on several devices, for one in which every rank's expert is here.
/// `launch` queues four kernels, or five (W4A16) or six where experts have many tokens on sm_90a,
/// and one more with a dynamic scale, except where GEMMs are grouped; it needs nothing from the
/// device, and a replayed capture reads ids and weights anew. The rules of nvfp4.hpp apply.
/// Source: vLLM, fused MoE.
class CUKILN_API MoeGemm {
 public:
  /// Errors: incompatible (a device below 9.0).
  static Result<MoeGemm> create(KernelLoader& loader, int device);
  /// For 1 to `most.tokens` tokens.
  static ModuleNames modules(int capability, const MoeShape& most);

  /// Bytes of workspace for this shape; 0 for a shape that `launch` refuses or launches nothing
  /// for.
  std::size_t workspace_bytes(const MoeShape& shape) const noexcept;

  /// The most that this many tokens or fewer need: fewer may need more, because other kernels
  /// compute them. Not for the hot path: it plans every number of tokens.
  std::size_t max_workspace_bytes(const MoeShape& shape) const noexcept;

  Result<void> launch(Stream stream, const MutableMatrixView& output, const MoeInput& input,
                      const MoeLayer& layer, const Workspace& workspace) const noexcept;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace v0
}  // namespace cukiln::nvfp4
