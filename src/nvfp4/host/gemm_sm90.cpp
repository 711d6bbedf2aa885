// SPDX-License-Identifier: Apache-2.0
#include "core/base/result.hpp"
#include "nvfp4/host/sm90_launch.hpp"
#include "nvfp4/host/sm90_table.hpp"

#include "kernels_src/nvfp4/gemm_signatures.cuh"  // after TensorMap

namespace cukiln::nvfp4::detail {
namespace {

struct W4a4 {
  static constexpr const sm90::Tiles& kTiles = sm90::kTiles;
  static constexpr const GemmTable& kTable = sm90::kTuned;
  static constexpr const char* kDecodeModules[] = {"nvfp4_gemm", "nvfp4_gemm_16", "nvfp4_gemm_32"};
  static constexpr const char* kPrefillModules[] = {"nvfp4_gemm_prefill", "nvfp4_gemm_prefill_256"};
  static constexpr const char* kSkinnyModule = nullptr;
  static constexpr const char* kPrepareKernel = "nvfp4_gemm_expand";
  static constexpr std::uint64_t kPrepareColumns = 8;
  static constexpr TensorBox::Element kElement = TensorBox::Element::f16;

  using Decode = kernels::KernelSignature<signatures::Nvfp4GemmDecode>;
  using Prepare = kernels::KernelSignature<signatures::Nvfp4GemmExpand>;
  using Prefill = kernels::KernelSignature<signatures::Nvfp4GemmPrefill>;

  static Result<void> decode(const Kernel& kernel, const LaunchConfig& config,
                             const TensorMap& weights, const GemmCall& call) noexcept {
    return Decode::launch(kernel, call.stream, config, call.output, call.a.data, weights,
                          call.a.scales, call.b.scales, &call.a.global_scale->encode,
                          &call.b.global_scale->encode, call.bias, call.m, call.n, call.k,
                          std::uint32_t{call.constant_b});
  }
  static Result<void> prepare(const Kernel& kernel, const LaunchConfig& config,
                              const GemmCall& call) noexcept {
    return Prepare::launch(kernel, call.stream, config, static_cast<std::uint32_t*>(call.workspace),
                           call.a.data, call.a.scales, call.m, call.k);
  }
  static constexpr auto check_of(const sm90::PrefillTile& /*tile*/) noexcept {
    return &Prefill::check;
  }
  static Result<void> prefill(const Kernel& kernel, const LaunchConfig& config,
                              const sm90::PrefillTile& /*tile*/, const TensorMap& tokens,
                              const TensorMap& weights, const GemmCall& call,
                              std::uint32_t output_stride) noexcept {
    return Prefill::launch(kernel, call.stream, config, call.output, tokens, weights, call.b.scales,
                           &call.a.global_scale->encode, &call.b.global_scale->encode, call.bias,
                           call.m, call.n, call.k, output_stride);
  }
};

}  // namespace

const GemmArchitecture kGemmSm90 = sm90::sm90_architecture<W4a4>();
const GemmArchitecture kGemmAny = sm90::any_architecture<W4a4>();

}  // namespace cukiln::nvfp4::detail
