// SPDX-License-Identifier: Apache-2.0
// The launchers of the shipped kernels as C functions over plain values, for
// tests/nvfp4/bench/gpu.py, so that they are measured in one process, and one run, with PyTorch.
// Each returns null, or an error's message. Launchers are created once, for device 0.

#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nvfp4/host/device_kernels.hpp"
#include "nvfp4/host/sm100_launch.hpp"
#include "nvfp4/host/sm100_plan.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/nvfp4/moe.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>
#include <cukiln/nvfp4/sampling.hpp>
#include <cukiln/settings.hpp>

namespace {

using namespace cukiln;  // NOLINT: the file is a C interface

struct Launchers {
  Store store;
  KernelLoader loader;
  nvfp4::ComputeGlobalScale global_scale;
  nvfp4::Quantize quantize;
  nvfp4::Gemm gemm;
  nvfp4::W4a16Gemm w4a16;
  nvfp4::MoeGemm moe;
  nvfp4::DeinterleaveQuantize deinterleave;
  nvfp4::ComputeSwiGluGlobalScale swiglu_global_scale;
  sampling::Sampler sampler;
  sampling::TopLogProbabilities top_log_probabilities;
};

constexpr int kDevice = 0;
constexpr nvfp4::SwiGlu kGptOss = {7.0f, 1.702f, 1.0f};

using GroupedGemm = nvfp4::detail::Sm100GroupedGemm;  // a kernel's parameters

/// The kernels of which a grouped GEMM's launch takes one.
struct GroupedKernels {
  std::vector<Kernel> all;
  std::uint32_t num_sms = 0;
};

std::optional<Launchers> launchers;
GroupedKernels grouped;
std::string problem;

const char* message_of(const Result<void>& result) {
  if (result) {
    return nullptr;
  }
  problem = result.error().message() + "\n" + result.error().log();
  return problem.c_str();
}

template <class Launcher>
Result<void> make(Launcher& launcher, KernelLoader& loader) {
  auto made = Launcher::create(loader, kDevice);
  if (!made) {
    return std::move(made).error();
  }
  launcher = *made;
  return {};
}

/// None on devices without grouped GEMMs.
Result<void> open_grouped(KernelLoader& loader) {
  auto kernels = kernels::DeviceKernels::open(loader, kDevice);
  if (!kernels) return std::move(kernels).error();
  GroupedKernels made;
  made.num_sms = kernels->device().num_sms;
  const bool here = nvfp4::GroupedGemm::runs_on(kernels->info().capability);
  for (std::size_t i = nvfp4::kSm100Grouped; here && i < std::size(nvfp4::kSm100Kernels); ++i) {
    const nvfp4::Sm100Kernel& wanted = nvfp4::kSm100Kernels[i];
    auto kernel = kernels->get<GroupedGemm>(wanted.module, wanted.name);
    if (!kernel) return std::move(kernel).error();
    if (auto reserved = kernel->reserve_shared(wanted.shared_bytes); !reserved) return reserved;
    made.all.push_back(*kernel);
  }
  grouped = std::move(made);
  return {};
}

Result<void> open() {
  auto settings = Settings::load();
  if (!settings) return std::move(settings).error();
  settings->store.memory_only = true;
  settings->store.daemon = DaemonUse::off;  // whose store may have tactics for this card
  auto store = Store::open(settings->store);
  if (!store) return std::move(store).error();
  auto loader = KernelLoader::create(*store, settings->loader);
  if (!loader) return std::move(loader).error();
  Launchers made{*std::move(store), *std::move(loader), {}, {}, {}, {}, {}, {}, {}, {}, {}};
  for (const auto& result :
       {make(made.global_scale, made.loader), make(made.quantize, made.loader),
        make(made.gemm, made.loader), make(made.w4a16, made.loader), make(made.moe, made.loader),
        make(made.deinterleave, made.loader), make(made.swiglu_global_scale, made.loader),
        make(made.sampler, made.loader), make(made.top_log_probabilities, made.loader)}) {
    if (!result) return result;
  }
  launchers = std::move(made);
  return open_grouped(launchers->loader);
}

/// Either GEMM.
template <class Gemm, class A>
const char* multiply(const Gemm& gemm, Stream stream, std::uint16_t* output, const A& a,
                     const nvfp4::QuantizedMatrix& b, void* workspace, std::int64_t constant_b,
                     std::int64_t tactic) {
  nvfp4::GemmOptions options;
  options.constant_b = constant_b != 0;
  options.tactic = static_cast<int>(tactic);
  return message_of(gemm.launch(stream, {DataType::bf16, output, a.rows, b.rows}, a, b,
                                {workspace, gemm.workspace_bytes(a.rows, b.rows, b.columns)},
                                options));
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

const char* bench_open() { return message_of(open()); }

const char* bench_amax(Stream stream, nvfp4::GlobalScale* scale, const std::uint16_t* input,
                       std::int64_t rows, std::int64_t columns, void* workspace) {
  const nvfp4::ComputeGlobalScale& launcher = launchers->global_scale;
  return message_of(launcher.launch(stream, scale, {DataType::bf16, input, rows, columns},
                                    {workspace, launcher.workspace_bytes()}));
}

std::size_t bench_amax_workspace() { return launchers->global_scale.workspace_bytes(); }

const char* bench_quantize(Stream stream, std::uint8_t* data, std::uint8_t* scales,
                           const std::uint16_t* input, const nvfp4::GlobalScale* scale,
                           std::int64_t rows, std::int64_t columns) {
  return message_of(launchers->quantize.launch(stream, {data, scales, scale, rows, columns},
                                               {DataType::bf16, input, rows, columns}));
}

std::size_t bench_gemm_workspace(std::int64_t m, std::int64_t n, std::int64_t k) {
  return launchers->gemm.workspace_bytes(m, n, k);
}

const char* bench_gemm(Stream stream, std::uint16_t* output, const std::uint8_t* a_data,
                       const std::uint8_t* a_scales, const nvfp4::GlobalScale* a_scale,
                       const std::uint8_t* b_data, const std::uint8_t* b_scales,
                       const nvfp4::GlobalScale* b_scale, std::int64_t m, std::int64_t n,
                       std::int64_t k, void* workspace, std::int64_t constant_b,
                       std::int64_t tactic) {
  const nvfp4::QuantizedMatrix a = {a_data, a_scales, a_scale, m, k};
  return multiply(launchers->gemm, stream, output, a, {b_data, b_scales, b_scale, n, k}, workspace,
                  constant_b, tactic);
}

std::size_t bench_w4a16_workspace(std::int64_t m, std::int64_t n, std::int64_t k) {
  return launchers->w4a16.workspace_bytes(m, n, k);
}

const char* bench_w4a16(Stream stream, std::uint16_t* output, const std::uint16_t* a,
                        const std::uint8_t* b_data, const std::uint8_t* b_scales,
                        const nvfp4::GlobalScale* b_scale, std::int64_t m, std::int64_t n,
                        std::int64_t k, void* workspace, std::int64_t constant_b,
                        std::int64_t tactic) {
  return multiply(launchers->w4a16, stream, output, MatrixView(DataType::bf16, a, m, k),
                  {b_data, b_scales, b_scale, n, k}, workspace, constant_b, tactic);
}

// Layout 0: halves, 1: pairs. GPT-OSS's activation, or none. `columns`: of gate, and of up.
const char* bench_deinterleave(Stream stream, std::uint8_t* data, std::uint8_t* scales,
                               const std::uint16_t* input, const nvfp4::GlobalScale* scale,
                               std::int64_t rows, std::int64_t columns, std::int64_t layout,
                               std::int64_t swiglu) {
  const auto gate_up = static_cast<nvfp4::GateUpLayout>(layout);
  const MatrixView from(DataType::bf16, input, rows, 2 * columns);
  return message_of(swiglu != 0
                        ? launchers->deinterleave.launch_swiglu(
                              stream, {data, scales, scale, rows, columns}, from, gate_up, kGptOss)
                        : launchers->deinterleave.launch(
                              stream, {data, scales, scale, rows, 2 * columns}, from, gate_up));
}

const char* bench_swiglu_amax(Stream stream, nvfp4::GlobalScale* scale, const std::uint16_t* input,
                              std::int64_t rows, std::int64_t columns, std::int64_t layout,
                              void* workspace) {
  const nvfp4::ComputeSwiGluGlobalScale& launcher = launchers->swiglu_global_scale;
  return message_of(launcher.launch(stream, scale, {DataType::bf16, input, rows, 2 * columns},
                                    static_cast<nvfp4::GateUpLayout>(layout), kGptOss,
                                    {workspace, launcher.workspace_bytes()}));
}

const char* bench_sample(Stream stream, std::int32_t* tokens, const float* logits,
                         std::int64_t rows, std::int64_t vocabulary, const float* temperature,
                         const std::int32_t* top_k, const float* top_p, const float* min_p,
                         std::int64_t joint, sampling::State* state) {
  sampling::Parameters parameters;
  parameters.temperature = {DataType::f32, temperature, rows};
  parameters.top_k = {DataType::i32, top_k, rows};
  parameters.top_p = {DataType::f32, top_p, rows};
  parameters.min_p = {DataType::f32, min_p, rows};
  parameters.order = joint != 0 ? sampling::FilterOrder::joint : sampling::FilterOrder::top_k_first;
  return message_of(launchers->sampler.launch(stream, {DataType::i32, tokens, rows},
                                              {DataType::f32, logits, rows, vocabulary}, parameters,
                                              state));
}

const char* bench_top_log_probabilities(Stream stream, std::int32_t* top_tokens, float* top,
                                        float* of_tokens, const float* logits, std::int64_t rows,
                                        std::int64_t vocabulary, std::int64_t count,
                                        const std::int32_t* tokens) {
  return message_of(launchers->top_log_probabilities.launch(
      stream, {DataType::i32, top_tokens, rows, count}, {DataType::f32, top, rows, count},
      {DataType::f32, logits, rows, vocabulary}, {}, {DataType::i32, tokens, rows},
      {DataType::f32, of_tokens, rows}));
}

/// The name of a kernel of bench_grouped; null: there are no more.
const char* bench_grouped_kernel(std::int64_t index) {
  const auto at = static_cast<std::size_t>(index);
  return at < grouped.all.size() ? nvfp4::kSm100Kernels[nvfp4::kSm100Grouped + at].name : nullptr;
}

/// A grouped GEMM by one of its kernels; `experts` of each 128 rows of A.
const char* bench_grouped(Stream stream, std::int64_t index, std::uint16_t* output,
                          const std::uint8_t* a_data, const std::uint8_t* a_scales,
                          const nvfp4::GlobalScale* a_scale, const std::uint8_t* b_data,
                          const std::uint8_t* b_scales, const nvfp4::GlobalScale* b_of_experts,
                          const std::int32_t* row_experts, std::int64_t m, std::int64_t n,
                          std::int64_t k, std::int64_t experts) {
  const auto at = static_cast<std::size_t>(index);
  const nvfp4::Sm100Plan plan = nvfp4::plan_sm100(
      nvfp4::kSm100Kernels[nvfp4::kSm100Grouped + at], {a_data, a_scales, a_scale, m, k},
      {b_data, b_scales, b_of_experts, experts * n, k}, output, n, grouped.num_sms);
  const std::uint32_t* const all_row_tiles = nullptr;
  return message_of(nvfp4::detail::launch_sm100<GroupedGemm>(
      grouped.all[at], stream, plan, a_scale, b_of_experts, nullptr, static_cast<std::uint32_t>(m),
      static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(k), row_experts, 0u,
      all_row_tiles));
}

std::size_t bench_moe_workspace(std::int64_t tokens, std::int64_t topk, std::int64_t experts,
                                std::int64_t hidden, std::int64_t width, std::int64_t w4a16,
                                std::int64_t dynamic) {
  return launchers->moe.workspace_bytes(
      {tokens, topk, experts, hidden, width, 0, w4a16 != 0, dynamic != 0});
}

// W4A16: scales are null. A dynamic scale between the GEMMs: the second one is.
const char* bench_moe(Stream stream, std::uint16_t* output, std::int64_t tokens, std::int64_t topk,
                      std::int64_t experts, std::int64_t hidden, std::int64_t width,
                      const std::uint16_t* input, const nvfp4::GlobalScale* input_scale,
                      const std::int32_t* ids, const float* weights, const std::uint8_t* up_data,
                      const std::uint8_t* up_scales, const float* up_decode,
                      const std::uint8_t* down_data, const std::uint8_t* down_scales,
                      const float* down_decode, const nvfp4::GlobalScale* activation_scale,
                      void* workspace) {
  nvfp4::MoeLayer layer;
  layer.up = {up_data, up_scales, up_decode, experts, 2 * width, hidden};
  layer.down = {down_data, down_scales, down_decode, experts, hidden, width};
  layer.activation_scale = activation_scale;
  layer.dynamic_activation_scale = input_scale != nullptr && activation_scale == nullptr;
  return message_of(launchers->moe.launch(
      stream, {DataType::bf16, output, tokens, hidden},
      {{DataType::bf16, input, tokens, hidden},
       input_scale,
       {DataType::i32, ids, tokens, topk},
       {DataType::f32, weights, tokens, topk}},
      layer, {workspace, launchers->moe.workspace_bytes(layer.shape(tokens, topk))}));
}

}  // extern "C"
#pragma GCC visibility pop
