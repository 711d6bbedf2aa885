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

// Scratch begins with the global scale of an input and the workspace of the kernel that computes
// it.
constexpr std::size_t kGlobalScaleWorkspace = 64;

std::size_t global_scale_bytes(const DeviceLaunchers& launchers) noexcept {
  return rounded_up(kGlobalScaleWorkspace + launchers.global_scale->workspace_bytes());
}

/// The given global scale, or that of x, which is computed into scratch.
const nvfp4::GlobalScale* input_scale(const CudaScope& scope, const MatrixView& x,
                                      const float* given, std::byte* scratch) {
  if (given != nullptr) {
    return reinterpret_cast<const nvfp4::GlobalScale*>(given);
  }
  auto* const scale = reinterpret_cast<nvfp4::GlobalScale*>(scratch);
  const nvfp4::ComputeGlobalScale& kernel = *scope.launchers.global_scale;
  require(kernel.launch(scope.stream, scale, x,
                        {scratch + kGlobalScaleWorkspace, kernel.workspace_bytes()}));
  return scale;
}

/// The same on the CPU.
nvfp4::GlobalScale input_scale_on_cpu(const MatrixView& x, const float* given) {
  return given != nullptr ? nvfp4::GlobalScale{given[0], given[1]}
                          : reference::compute_global_scale(x);
}

const std::uint8_t* bytes_at(const void* pointer) noexcept {
  return static_cast<const std::uint8_t*>(pointer);
}

nvfp4::MoeLayer layer_of(const cukiln_torch_moe& given) noexcept {
  nvfp4::MoeLayer layer;
  layer.up = {bytes_at(given.up_codes), bytes_at(given.up_scales),
              given.up_decode,          given.experts,
              2 * given.width,          given.hidden};
  layer.down = {bytes_at(given.down_codes),
                bytes_at(given.down_scales),
                given.down_decode,
                given.experts,
                given.hidden,
                given.width};
  layer.activation_scale = reinterpret_cast<const nvfp4::GlobalScale*>(given.activation_gsa);
  layer.global_experts = given.global_experts;
  if (given.expert_map != nullptr) {
    layer.expert_map = {DataType::i32, given.expert_map,
                        given.global_experts != 0 ? given.global_experts : given.experts};
  }
  layer.layout = given.interleaved != 0 ? nvfp4::GateUpLayout::pairs : nvfp4::GateUpLayout::halves;
  layer.activation = {given.limit, given.alpha, given.beta};
  return layer;
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

nvfp4::QuantizedMatrix LinearRunner::weight() const noexcept {
  return {bytes_at(weights_.codes), bytes_at(weights_.scales),
          reinterpret_cast<const nvfp4::GlobalScale*>(weights_.gsa), weights_.out_features,
          weights_.in_features};
}

VectorView LinearRunner::bias() const noexcept {
  return weights_.bias != nullptr ? VectorView(DataType::bf16, weights_.bias, weights_.out_features)
                                  : VectorView();
}

/// Offsets into scratch, after the global scale.
struct LinearRunner::ScratchLayout {
  std::size_t workspace;
  std::size_t workspace_bytes;
  std::size_t data;
  std::size_t scales;
  std::size_t end;
};

LinearRunner::ScratchLayout LinearRunner::lay_out(const DeviceLaunchers& launchers,
                                                  std::int64_t tokens) const noexcept {
  ScratchLayout layout{};
  layout.workspace = global_scale_bytes(launchers);
  layout.workspace_bytes =
      launchers.gemm->workspace_bytes(tokens, weights_.out_features, weights_.in_features);
  layout.data = layout.workspace + rounded_up(layout.workspace_bytes);
  layout.scales = layout.data + rounded_up(nvfp4::data_bytes(tokens, weights_.in_features));
  layout.end = layout.scales + rounded_up(nvfp4::scales_bytes(tokens, weights_.in_features));
  return layout;
}

Result<void> LinearRunner::reserve(std::int64_t tokens) {
  if (cuda_ == nullptr || scratch_->current().tokens >= tokens) {
    return {};
  }
  const CudaScope scope(*cuda_, device_);
  CUKILN_TRY([[maybe_unused]] const auto block,
             scratch_->grow(scope.stream, tokens, lay_out(scope.launchers, tokens).end));
  return {};
}

void LinearRunner::run(const MatrixView& x, const MutableMatrixView& output) {
  if (cuda_ == nullptr) {
    return run_on_cpu(x, output);
  }
  const CudaScope scope(*cuda_, device_);
  Scratch::Block block = scratch_->current();
  if (block.tokens < x.rows) {
    // At least doubled: the blocks that a growing batch leaves behind are then no larger than the
    // latest.
    const std::int64_t tokens = std::max(x.rows, 2 * block.tokens);
    block = require(scratch_->grow(scope.stream, tokens, lay_out(scope.launchers, tokens).end));
  }
  const ScratchLayout layout = lay_out(scope.launchers, block.tokens);
  const auto at = [&](std::size_t offset) {
    return reinterpret_cast<std::uint8_t*>(block.memory + offset);
  };
  const nvfp4::MutableQuantizedMatrix quantized = {
      at(layout.data), at(layout.scales), input_scale(scope, x, weights_.input_gsa, block.memory),
      x.rows, x.columns};
  require(scope.launchers.quantize->launch(scope.stream, quantized, x));
  nvfp4::GemmOptions options;
  options.bias = bias();
  options.constant_b = true;
  require(scope.launchers.gemm->launch(scope.stream, output, quantized, weight(),
                                       {at(layout.workspace), layout.workspace_bytes}, options));
}

void LinearRunner::run_on_cpu(const MatrixView& x, const MutableMatrixView& output) const {
  std::vector<std::uint8_t> data(nvfp4::data_bytes(x.rows, x.columns));
  std::vector<std::uint8_t> scales(nvfp4::scales_bytes(x.rows, x.columns));
  const nvfp4::GlobalScale scale = input_scale_on_cpu(x, weights_.input_gsa);
  const nvfp4::MutableQuantizedMatrix quantized = {data.data(), scales.data(), &scale, x.rows,
                                                   x.columns};
  reference::quantize(quantized, x);
  reference::gemm(output, quantized, weight(), bias());
}

// ---- Mixture of experts

MoeRunner::MoeRunner(const Cuda* cuda, const cukiln_torch_moe& weights)
    : DeviceRunner(cuda, weights.device), weights_(weights), layer_(layer_of(weights)) {}

/// Enough for that many tokens and for fewer, which other kernels may compute.
std::size_t MoeRunner::scratch_bytes(const DeviceLaunchers& launchers, std::int64_t tokens,
                                     std::int64_t topk) const noexcept {
  std::size_t most = 0;
  for (std::int64_t fewer = tokens; fewer > 0; fewer /= 2) {
    most = std::max(most, launchers.moe->workspace_bytes(layer_.shape(fewer, topk)));
  }
  return global_scale_bytes(launchers) + most;
}

Result<void> MoeRunner::reserve(std::int64_t tokens) {
  if (cuda_ == nullptr || scratch_->current().tokens >= tokens) {
    return {};
  }
  const CudaScope scope(*cuda_, device_);
  const std::int64_t topk = weights_.max_topk != 0 ? weights_.max_topk : 8;
  CUKILN_TRY([[maybe_unused]] const auto block,
             scratch_->grow(scope.stream, tokens, scratch_bytes(scope.launchers, tokens, topk)));
  return {};
}

void MoeRunner::run(nvfp4::MoeInput input, const MutableMatrixView& output) {
  if (cuda_ == nullptr) {
    const nvfp4::GlobalScale scale = input_scale_on_cpu(input.hidden, weights_.hidden_gsa);
    input.hidden_scale = &scale;
    reference::moe_gemm(output, input, layer_);
    return;
  }
  const std::int64_t tokens = input.hidden.rows;
  const std::int64_t topk = input.topk_ids.columns;
  const CudaScope scope(*cuda_, device_);
  const nvfp4::MoeGemm& moe = *scope.launchers.moe;
  const std::size_t workspace = global_scale_bytes(scope.launchers);
  const std::size_t workspace_bytes = moe.workspace_bytes(layer_.shape(tokens, topk));
  Scratch::Block block = scratch_->current();
  if (block.bytes < workspace + workspace_bytes) {
    const std::int64_t reserved = std::max(tokens, 2 * block.tokens);
    block = require(
        scratch_->grow(scope.stream, reserved, scratch_bytes(scope.launchers, reserved, topk)));
  }
  input.hidden_scale = input_scale(scope, input.hidden, weights_.hidden_gsa, block.memory);
  require(
      moe.launch(scope.stream, output, input, layer_, {block.memory + workspace, workspace_bytes}));
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
