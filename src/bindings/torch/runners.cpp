// SPDX-License-Identifier: Apache-2.0
#include "bindings/torch/runners.hpp"

#include <algorithm>
#include <vector>

#include "base/result.hpp"
#include "bindings/torch/host.hpp"
#include "bindings/torch/quantize.hpp"
#include "reference/gemm.hpp"
#include "reference/quantize.hpp"

namespace cukiln::torch {

namespace {

constexpr std::size_t rounded_up(std::size_t bytes) noexcept { return (bytes + 255) / 256 * 256; }

/// What `AmaxGsa` writes and needs, at the beginning of scratch: {encode, decode}, then its
/// workspace.
constexpr std::size_t kGsaWorkspace = 64;
constexpr std::size_t kGsaBytes = rounded_up(kGsaWorkspace + nvfp4::AmaxGsa::kWorkspaceBytes);

/// The global scale of x: the given one, or its own into scratch.
const float* input_scale(const Cuda& cuda, Stream stream, const Bf16Matrix& x, const float* given,
                         std::byte* scratch) {
  if (given != nullptr) {
    return given;
  }
  auto* const gsa = reinterpret_cast<float*>(scratch);
  require(cuda.amax->launch(stream, gsa, x.data, x.rows, x.columns, x.row_stride,
                            reinterpret_cast<std::uint32_t*>(scratch + kGsaWorkspace)));
  return gsa;
}

}  // namespace

DeviceRunner::DeviceRunner(const Cuda* cuda, int device) : cuda_(cuda), device_(device) {
  if (cuda != nullptr) {
    scratch_.emplace(*cuda, device);
  }
}

void DeviceRunner::check_device(const Tensor& tensor, const char* name) const {
  if (tensor.device() != device_) {
    refuse("{} is {}, and the runner's weights are on {}: move one of them", name,
           tensor.describe(), device_ < 0 ? "cpu" : fmt::format("cuda:{}", device_));
  }
}

// ---- Linear

LinearRunner::LinearRunner(const Cuda* cuda, const cukiln_torch_linear& weights)
    : DeviceRunner(cuda, weights.device), weights_(weights) {}

struct LinearRunner::Parts {
  std::size_t workspace;
  std::size_t codes;
  std::size_t scales;
  std::size_t end;
};

LinearRunner::Parts LinearRunner::lay_out(std::int64_t tokens) const noexcept {
  Parts parts{};
  parts.workspace = kGsaBytes;
  parts.codes = parts.workspace + rounded_up(cuda_->gemm->workspace_bytes(
                                      tokens, weights_.out_features, weights_.in_features));
  parts.scales = parts.codes + rounded_up(nvfp4::codes_bytes(tokens, weights_.in_features));
  parts.end = parts.scales + rounded_up(nvfp4::scales_bytes(tokens, weights_.in_features));
  return parts;
}

Result<void> LinearRunner::reserve(std::int64_t tokens) {
  if (cuda_ == nullptr || scratch_->current().tokens >= tokens) {
    return {};
  }
  const CudaScope scope(*cuda_, device_);
  CUKILN_TRY([[maybe_unused]] const auto block,
             scratch_->grow(scope.stream, tokens, lay_out(tokens).end));
  return {};
}

void LinearRunner::run(const Bf16Matrix& x, std::uint16_t* output) {
  if (cuda_ == nullptr) {
    return run_on_cpu(x, output);
  }
  const CudaScope scope(*cuda_, device_);
  Scratch::Block block = scratch_->current();
  if (block.tokens < x.rows) {
    // At least doubled: what a growing batch leaves behind is then no more than what it has.
    const std::int64_t tokens = std::max(x.rows, 2 * block.tokens);
    block = require(scratch_->grow(scope.stream, tokens, lay_out(tokens).end));
  }
  const Parts parts = lay_out(block.tokens);
  const auto at = [&](std::size_t offset) {
    return reinterpret_cast<std::uint8_t*>(block.memory + offset);
  };
  const float* const gsa = input_scale(*cuda_, scope.stream, x, weights_.input_gsa, block.memory);
  require(cuda_->quantize->launch(scope.stream, at(parts.codes), at(parts.scales), x.data, gsa,
                                  x.rows, x.columns, x.row_stride));
  nvfp4::GemmOptions options;
  options.constant_b = true;
  require(cuda_->gemm->launch(scope.stream, output, {at(parts.codes), at(parts.scales), gsa},
                              {static_cast<const std::uint8_t*>(weights_.codes),
                               static_cast<const std::uint8_t*>(weights_.scales), weights_.gsa},
                              static_cast<const std::uint16_t*>(weights_.bias), x.rows,
                              weights_.out_features, x.columns, at(parts.workspace), options));
}

void LinearRunner::run_on_cpu(const Bf16Matrix& x, std::uint16_t* output) const {
  std::vector<std::uint8_t> codes(nvfp4::codes_bytes(x.rows, x.columns));
  std::vector<std::uint8_t> scales(nvfp4::scales_bytes(x.rows, x.columns));
  const reference::GlobalScale scale =
      weights_.input_gsa != nullptr
          ? reference::GlobalScale{weights_.input_gsa[0], weights_.input_gsa[1]}
          : reference::amax_gsa(view_of(x));
  reference::quantize(codes.data(), scales.data(), view_of(x), scale);
  const float gsa[2] = {scale.encode, scale.decode};
  reference::gemm(output, {codes.data(), scales.data(), gsa},
                  {static_cast<const std::uint8_t*>(weights_.codes),
                   static_cast<const std::uint8_t*>(weights_.scales), weights_.gsa},
                  static_cast<const std::uint16_t*>(weights_.bias), x.rows, weights_.out_features,
                  x.columns);
}

// ---- Mixture of experts

MoeRunner::MoeRunner(const Cuda* cuda, const cukiln_torch_moe& weights)
    : DeviceRunner(cuda, weights.device), weights_(weights) {}

nvfp4::MoeShape MoeRunner::shape_of(std::int64_t tokens, std::int64_t topk) const noexcept {
  return {tokens, topk, weights_.experts, weights_.hidden, weights_.width, weights_.global_experts};
}

/// For that many tokens and for fewer, which other kernels may take.
std::size_t MoeRunner::scratch_bytes(std::int64_t tokens, std::int64_t topk) const noexcept {
  std::size_t most = 0;
  for (std::int64_t fewer = tokens; fewer > 0; fewer /= 2) {
    most = std::max(most, cuda_->moe->workspace_bytes(shape_of(fewer, topk)));
  }
  return kGsaBytes + most;
}

Result<void> MoeRunner::reserve(std::int64_t tokens) {
  if (cuda_ == nullptr || scratch_->current().tokens >= tokens) {
    return {};
  }
  const CudaScope scope(*cuda_, device_);
  const std::int64_t topk = weights_.max_topk != 0 ? weights_.max_topk : 8;
  CUKILN_TRY([[maybe_unused]] const auto block,
             scratch_->grow(scope.stream, tokens, scratch_bytes(tokens, topk)));
  return {};
}

void MoeRunner::run(const std::uint16_t* hidden_states, std::int64_t tokens, std::int64_t topk,
                    const std::int32_t* topk_ids, const float* topk_weights,
                    std::uint16_t* output) {
  const nvfp4::MoeShape shape = shape_of(tokens, topk);
  const auto bytes = [](const void* pointer) { return static_cast<const std::uint8_t*>(pointer); };
  const nvfp4::MoeWeights up = {bytes(weights_.up_codes), bytes(weights_.up_scales),
                                weights_.up_decode};
  const nvfp4::MoeWeights down = {bytes(weights_.down_codes), bytes(weights_.down_scales),
                                  weights_.down_decode};
  const auto layout =
      weights_.interleaved != 0 ? nvfp4::GateUpLayout::pairs : nvfp4::GateUpLayout::halves;
  const nvfp4::SwiGlu activation = {weights_.limit, weights_.alpha, weights_.beta};
  const Bf16Matrix x = {hidden_states, tokens, weights_.hidden, weights_.hidden};
  nvfp4::MoeInput input = {hidden_states, weights_.hidden_gsa, topk_ids, topk_weights,
                           weights_.expert_map};
  if (cuda_ == nullptr) {
    float gsa[2];
    if (input.hidden_gsa == nullptr) {
      const reference::GlobalScale scale = reference::amax_gsa(view_of(x));
      gsa[0] = scale.encode;
      gsa[1] = scale.decode;
      input.hidden_gsa = gsa;
    }
    reference::moe_gemm(output, shape, input, up, down, weights_.activation_gsa, layout,
                        activation);
    return;
  }
  const CudaScope scope(*cuda_, device_);
  Scratch::Block block = scratch_->current();
  if (block.bytes < kGsaBytes + cuda_->moe->workspace_bytes(shape)) {
    const std::int64_t reserved = std::max(tokens, 2 * block.tokens);
    block = require(scratch_->grow(scope.stream, reserved, scratch_bytes(reserved, topk)));
  }
  input.hidden_gsa = input_scale(*cuda_, scope.stream, x, weights_.hidden_gsa, block.memory);
  require(cuda_->moe->launch(scope.stream, output, shape, input, up, down, weights_.activation_gsa,
                             layout, activation, block.memory + kGsaBytes));
}

// ---- By number

namespace {

Runner& runner(std::int64_t id) {
  Runner* const found = host().registry.find(id);
  if (found == nullptr) {
    throw std::out_of_range(no_runner(id).message());
  }
  return *found;
}

}  // namespace

LinearRunner& linear_runner(std::int64_t id) {
  LinearRunner* const linear = runner(id).as_linear();
  if (linear == nullptr) {
    refuse("runner {} is a mixture of experts; linear_gemm takes a linear layer's", id);
  }
  return *linear;
}

MoeRunner& moe_runner(std::int64_t id) {
  MoeRunner* const moe = runner(id).as_moe();
  if (moe == nullptr) {
    refuse("runner {} is a linear layer; moe_gemm takes a mixture of experts'", id);
  }
  return *moe;
}

}  // namespace cukiln::torch
