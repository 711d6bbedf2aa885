// SPDX-License-Identifier: Apache-2.0
#include "core/base/result.hpp"
#include "nvfp4/host/sm90_launch.hpp"
#include "nvfp4/host/w4a16_plan.hpp"
#include "nvfp4/host/w4a16_table.hpp"

#include "kernels_src/nvfp4/gemm_signatures.cuh"  // after TensorMap

namespace cukiln::nvfp4::detail {
namespace {

struct W4a16 {
  static constexpr const sm90::Tiles& kTiles = w4a16::kTiles;
  static constexpr const GemmTable& kTable = w4a16::kTuned;
  static constexpr const char* kDecodeModules[] = {"nvfp4_w4a16_gemm", "nvfp4_w4a16_gemm_16"};
  static constexpr const char* kPrefillModules[] = {
      "nvfp4_w4a16_gemm_prefill", "nvfp4_w4a16_gemm_prefill_256", "nvfp4_w4a16_gemm_prefill_224"};
  static constexpr const char* kSkinnyModule = "nvfp4_w4a16_gemm_skinny";
  static constexpr TensorBox::Element kElement = TensorBox::Element::bf16;

  using Decode = kernels::KernelSignature<signatures::W4a16GemmDecode>;
  using Prefill = kernels::KernelSignature<signatures::W4a16GemmPrefill>;
  using Skinny = kernels::KernelSignature<signatures::W4a16GemmSkinny>;
  using Tail = kernels::KernelSignature<signatures::W4a16GemmTail>;

  static const std::uint16_t* a(const GemmCall& call) noexcept {
    return call.bf16_a.data_as<const std::uint16_t>();
  }
  static std::uint64_t a_stride(const GemmCall& call) noexcept {
    return static_cast<std::uint64_t>(call.bf16_a.row_stride);
  }

  static Result<void> decode(const Kernel& kernel, const LaunchConfig& config,
                             const TensorMap& weights, const GemmCall& call) noexcept {
    return Decode::launch(kernel, call.stream, config, call.output, a(call), a_stride(call),
                          weights, call.b.scales, &call.b.global_scale->encode, call.bias, call.m,
                          call.n, call.k, std::uint32_t{call.constant_b});
  }
  static constexpr auto check_of(const sm90::PrefillTile& tile) noexcept {
    return tile.is_skinny() ? &Skinny::check : tile.has_tail() ? &Tail::check : &Prefill::check;
  }
  static Result<void> prefill(const Kernel& kernel, const LaunchConfig& config,
                              const sm90::PrefillTile& tile, const TensorMap& tokens,
                              const TensorMap& weights, const GemmCall& call,
                              std::uint32_t output_stride) noexcept {
    if (tile.is_skinny()) {
      return Skinny::launch(kernel, call.stream, config, call.output, tokens, weights,
                            call.b.scales, &call.b.global_scale->encode, call.bias, call.m, call.n,
                            call.k, output_stride, std::uint32_t{call.constant_b});
    }
    return Prefill::launch(kernel, call.stream, config, call.output, tokens, weights, call.b.scales,
                           &call.b.global_scale->encode, call.bias, call.m, call.n, call.k,
                           output_stride);
  }
  static Result<void> launch_with_tail(const Kernel& kernel, const LaunchConfig& config,
                                       const TensorMap& tokens, const TensorMap& weights,
                                       const GemmCall& call, std::uint32_t output_stride,
                                       std::uint32_t tail_k_groups) noexcept {
    return Tail::launch(kernel, call.stream, config, call.output, tokens, weights, call.b.scales,
                        &call.b.global_scale->encode, call.bias, call.m, call.n, call.k,
                        output_stride, static_cast<float*>(call.workspace), tail_k_groups);
  }
};

}  // namespace

const GemmArchitecture kW4a16Sm90 = sm90::sm90_architecture<W4a16>();
const GemmArchitecture kW4a16Any = sm90::any_architecture<W4a16>();

}  // namespace cukiln::nvfp4::detail
