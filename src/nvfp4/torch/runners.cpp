// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/torch/runners.hpp"

#include <vector>

#include "core/base/result.hpp"
#include "nvfp4/reference/gemm.hpp"
#include "nvfp4/reference/quantize.hpp"
#include "nvfp4/torch/host.hpp"
#include "nvfp4/torch/quantize.hpp"

namespace cukiln::torch {

namespace {

/// The given global scale, or that of x, which is computed into `computed`.
const nvfp4::GlobalScale* input_scale(const CudaScope& scope, const MatrixView& x,
                                      const float* given, void* computed) {
  if (given != nullptr) {
    return reinterpret_cast<const nvfp4::GlobalScale*>(given);
  }
  auto* const scale = static_cast<nvfp4::GlobalScale*>(computed);
  require(scope.launchers.global_scale->launch(scope.stream, scale, x, scope.zeroed_workspace()));
  return scale;
}

/// The global scale of an input on the CPU.
nvfp4::GlobalScale input_scale_on_cpu(const MatrixView& x, const float* given) {
  return given != nullptr ? nvfp4::GlobalScale{given[0], given[1]}
                          : reference::compute_global_scale(x);
}

const std::uint8_t* bytes_at(const void* pointer) noexcept {
  return static_cast<const std::uint8_t*>(pointer);
}

nvfp4::MoeLayer layer_of(const cukiln_torch_moe& given) noexcept {
  nvfp4::MoeLayer layer;
  layer.up = {bytes_at(given.up_data),
              bytes_at(given.up_scales),
              given.up_decode,
              given.experts,
              2 * given.width,
              given.hidden,
              static_cast<const std::uint16_t*>(given.up_bias)};
  layer.down = {bytes_at(given.down_data),
                bytes_at(given.down_scales),
                given.down_decode,
                given.experts,
                given.hidden,
                given.width,
                static_cast<const std::uint16_t*>(given.down_bias)};
  layer.activation_scale =
      reinterpret_cast<const nvfp4::GlobalScale*>(given.activation_global_scale);
  layer.dynamic_activation_scale = given.dynamic_activations != 0;
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

DeviceRunner::DeviceRunner(const Cuda* cuda, int device) : cuda_(cuda), device_(device) {}

Result<void> DeviceRunner::reserve(std::int64_t tokens) {
  if (cuda_ == nullptr || tokens <= 0) {
    return {};
  }
  try {
    const CudaScope scope(*cuda_, device_);
    const Tensor kept = scratch(host().shim, device_, most_scratch(scope.launchers, tokens));
    return {};
  } catch (const std::runtime_error& refused) {
    return Error(ErrorCode::driver, refused.what());
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
  return {bytes_at(weights_.data), bytes_at(weights_.scales),
          reinterpret_cast<const nvfp4::GlobalScale*>(weights_.global_scale), weights_.out_features,
          weights_.in_features};
}

VectorView LinearRunner::bias() const noexcept {
  return weights_.bias != nullptr ? VectorView(DataType::bf16, weights_.bias, weights_.out_features)
                                  : VectorView();
}

LinearScratch LinearRunner::lay_out(const DeviceLaunchers& launchers,
                                    std::int64_t tokens) const noexcept {
  return linear_scratch(
      tokens, weights_.in_features,
      launchers.gemm->workspace_bytes(tokens, weights_.out_features, weights_.in_features));
}

std::size_t LinearRunner::most_scratch(const DeviceLaunchers& launchers,
                                       std::int64_t tokens) const noexcept {
  if (weights_.w4a16 != 0) {
    return launchers.w4a16_gemm->workspace_bytes(tokens, weights_.out_features,
                                                 weights_.in_features);
  }
  return lay_out(launchers, tokens).end;
}

void LinearRunner::run(const MatrixView& x, const MutableMatrixView& output) const {
  if (cuda_ == nullptr) {
    return run_on_cpu(x, output);
  }
  const CudaScope scope(*cuda_, device_);
  nvfp4::GemmOptions options;
  options.bias = bias();
  options.constant_b = true;
  if (weights_.w4a16 != 0) {
    const std::size_t bytes = most_scratch(scope.launchers, x.rows);
    const Tensor memory = scratch(host().shim, device_, bytes);
    require(scope.launchers.w4a16_gemm->launch(scope.stream, output, x, weight(),
                                               {memory.data<void>(), bytes}, options));
    return;
  }
  const LinearScratch layout = lay_out(scope.launchers, x.rows);
  const Tensor memory = scratch(host().shim, device_, layout.end);
  auto* const start = memory.data<std::uint8_t>();
  const nvfp4::MutableQuantizedMatrix quantized = {
      start + layout.data, start + layout.scales,
      input_scale(scope, x, weights_.input_global_scale, start), x.rows, x.columns};
  require(scope.launchers.quantize->launch(scope.stream, quantized, x));
  require(scope.launchers.gemm->launch(scope.stream, output, quantized, weight(),
                                       {start + layout.workspace, layout.workspace_bytes},
                                       options));
}

void LinearRunner::run_on_cpu(const MatrixView& x, const MutableMatrixView& output) const {
  if (weights_.w4a16 != 0) {
    reference::gemm(output, x, weight(), bias());
    return;
  }
  std::vector<std::uint8_t> data(nvfp4::data_bytes(x.rows, x.columns));
  std::vector<std::uint8_t> scales(nvfp4::scales_bytes(x.rows, x.columns));
  const nvfp4::GlobalScale scale = input_scale_on_cpu(x, weights_.input_global_scale);
  const nvfp4::MutableQuantizedMatrix quantized = {data.data(), scales.data(), &scale, x.rows,
                                                   x.columns};
  reference::quantize(quantized, x);
  reference::gemm(output, quantized, weight(), bias());
}

// ---- Mixture of experts

MoeRunner::MoeRunner(const Cuda* cuda, const cukiln_torch_moe& weights)
    : DeviceRunner(cuda, weights.device), weights_(weights), layer_(layer_of(weights)) {}

std::size_t MoeRunner::most_scratch(const DeviceLaunchers& launchers,
                                    std::int64_t tokens) const noexcept {
  const std::int64_t topk = weights_.max_topk != 0 ? weights_.max_topk : 8;
  return kScratchGlobalScale + launchers.moe->max_workspace_bytes(layer_.shape(tokens, topk));
}

void MoeRunner::run(nvfp4::MoeInput input, const MutableMatrixView& output) const {
  const bool w4a16 = layer_.is_w4a16();
  if (cuda_ == nullptr) {
    const nvfp4::GlobalScale scale =
        w4a16 ? nvfp4::GlobalScale{}
              : input_scale_on_cpu(input.hidden, weights_.hidden_global_scale);
    input.hidden_scale = &scale;
    reference::moe_gemm(output, input, layer_);
    return;
  }
  const CudaScope scope(*cuda_, device_);
  const nvfp4::MoeGemm& moe = *scope.launchers.moe;
  const std::size_t bytes =
      moe.workspace_bytes(layer_.shape(input.hidden.rows, input.topk_ids.columns));
  const Tensor memory = scratch(host().shim, device_, kScratchGlobalScale + bytes);
  auto* const start = memory.data<std::byte>();
  if (!w4a16) {
    input.hidden_scale = input_scale(scope, input.hidden, weights_.hidden_global_scale, start);
  }
  require(moe.launch(scope.stream, output, input, layer_, {start + kScratchGlobalScale, bytes}));
}

// ---- Modules

namespace {

constexpr const char* kGlobalScaleModule = "amax_gsa";  // without it Cuda::create fails

}  // namespace

nvfp4::ModuleNames modules_of(const cukiln_torch_linear& weights, int capability) {
  const auto modules = weights.w4a16 != 0 ? nvfp4::W4a16Gemm::modules : nvfp4::Gemm::modules;
  nvfp4::ModuleNames names =
      modules(capability, weights.max_tokens, weights.out_features, weights.in_features);
  names.insert(kGlobalScaleModule);
  if (weights.w4a16 == 0) {
    names.insert("fused_amax_quantize");
  }
  return names;
}

nvfp4::ModuleNames modules_of(const cukiln_torch_moe& weights, int capability) {
  nvfp4::ModuleNames names = nvfp4::MoeGemm::modules(
      capability, layer_of(weights).shape(weights.max_tokens, weights.max_topk));
  names.insert(kGlobalScaleModule);
  return names;
}

// ---- By number

namespace {

Runner& runner(std::int64_t id, std::int64_t fingerprint) {
  Runner* const found = host().registry.find(id);
  if (found == nullptr) {
    throw std::out_of_range(no_runner(id).message());
  }
  if (fingerprint != 0 && fingerprint != found->fingerprint()) {
    throw std::out_of_range(foreign_runner(id).message());
  }
  return *found;
}

}  // namespace

LinearRunner& linear_runner(std::int64_t id, std::int64_t fingerprint) {
  LinearRunner* const linear = runner(id, fingerprint).as_linear();
  if (linear == nullptr) {
    refuse("runner {} is a mixture of experts; linear_gemm takes a linear layer's", id);
  }
  return *linear;
}

MoeRunner& moe_runner(std::int64_t id, std::int64_t fingerprint) {
  MoeRunner* const moe = runner(id, fingerprint).as_moe();
  if (moe == nullptr) {
    refuse("runner {} is a linear layer; moe_gemm takes a mixture of experts'", id);
  }
  return *moe;
}

}  // namespace cukiln::torch
