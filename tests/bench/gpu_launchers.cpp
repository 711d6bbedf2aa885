// SPDX-License-Identifier: Apache-2.0
// The launchers of the shipped kernels as C functions over plain values, for tests/bench/gpu.py,
// which has PyTorch beside it in one process and so in one run. Each returns null, or why it could
// not. A launcher made here is made once, for the process's current device.

#include <memory>
#include <optional>
#include <string>

#include <cukiln/loader.hpp>
#include <cukiln/nvfp4.hpp>
#include <cukiln/nvfp4_moe.hpp>
#include <cukiln/sampling.hpp>
#include <cukiln/settings.hpp>

#include "kernels/nvfp4/sm90_plan.hpp"

namespace {

using namespace cukiln;  // NOLINT: the file is a C interface

struct Launchers {
  Store store;
  KernelLoader loader;
  nvfp4::AmaxGsa amax;
  nvfp4::Quantize quantize;
  nvfp4::Gemm gemm;
  nvfp4::MoeGemm moe;
  nvfp4::DeinterleaveQuantize deinterleave;
  nvfp4::SwiGluAmaxGsa swiglu_amax;
  sampling::Sampler sampler;
};

std::optional<Launchers> launchers;
std::string problem;

const char* told(const Result<void>& result) {
  if (result) {
    return nullptr;
  }
  problem = result.error().message() + "\n" + result.error().log();
  return problem.c_str();
}

template <class Launcher>
Result<void> make(Launcher& launcher, KernelLoader& loader) {
  auto made = Launcher::create(loader);
  if (!made) {
    return std::move(made).error();
  }
  launcher = *made;
  return {};
}

Result<void> open() {
  auto settings = Settings::load();
  if (!settings) return std::move(settings).error();
  settings->store.memory_only = true;
  auto store = Store::open(settings->store);
  if (!store) return std::move(store).error();
  auto loader = KernelLoader::create(*store, settings->loader);
  if (!loader) return std::move(loader).error();
  Launchers made{*std::move(store), *std::move(loader), {}, {}, {}, {}, {}, {}, {}};
  for (const auto& result :
       {make(made.amax, made.loader), make(made.quantize, made.loader),
        make(made.gemm, made.loader), make(made.moe, made.loader),
        make(made.deinterleave, made.loader), make(made.swiglu_amax, made.loader),
        make(made.sampler, made.loader)}) {
    if (!result) return result;
  }
  launchers = std::move(made);
  return {};
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

const char* bench_open() { return told(open()); }

const char* bench_amax(Stream stream, float* gsa, const std::uint16_t* input, std::int64_t rows,
                       std::int64_t columns, std::uint32_t* workspace) {
  return told(launchers->amax.launch(stream, gsa, input, rows, columns, workspace));
}

std::size_t bench_amax_workspace() { return nvfp4::AmaxGsa::kWorkspaceBytes; }

const char* bench_quantize(Stream stream, std::uint8_t* codes, std::uint8_t* scales,
                           const std::uint16_t* input, const float* gsa, std::int64_t rows,
                           std::int64_t columns) {
  return told(launchers->quantize.launch(stream, codes, scales, input, gsa, rows, columns));
}

std::size_t bench_gemm_workspace(std::int64_t m, std::int64_t n, std::int64_t k) {
  return launchers->gemm.workspace_bytes(m, n, k);
}

const char* bench_gemm(Stream stream, std::uint16_t* output, const std::uint8_t* a_codes,
                       const std::uint8_t* a_scales, const float* a_gsa,
                       const std::uint8_t* b_codes, const std::uint8_t* b_scales,
                       const float* b_gsa, std::int64_t m, std::int64_t n, std::int64_t k,
                       void* workspace, std::int64_t constant_b, std::int64_t tactic) {
  return told(launchers->gemm.launch(stream, output, {a_codes, a_scales, a_gsa},
                                     {b_codes, b_scales, b_gsa}, nullptr, m, n, k, workspace,
                                     {constant_b != 0, static_cast<int>(tactic)}));
}

std::int64_t bench_gemm_tactics(std::int64_t m, std::int64_t n, std::int64_t k) {
  return launchers->gemm.tactics(m, n, k);
}

// On sm_90: tile and splits of a tactic, as the table has them; splits in the second byte.
std::int64_t bench_gemm_sm90_tactic(std::int64_t m, std::int64_t n, std::int64_t k,
                                    std::int64_t multiprocessors, std::int64_t tactic) {
  const auto unsigned_of = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const auto tactics = nvfp4::sm90::tactics_of({unsigned_of(m), unsigned_of(n), unsigned_of(k),
                                                static_cast<std::uint32_t>(multiprocessors)});
  const nvfp4::GemmTactic& named = tactics.all[tactic];
  return named.tile | named.splits << 8;
}

// Layout 0: halves, 1: pairs. GPT-OSS's activation, or none.
const char* bench_deinterleave(Stream stream, std::uint8_t* codes, std::uint8_t* scales,
                               const std::uint16_t* input, const float* gsa, std::int64_t rows,
                               std::int64_t columns, std::int64_t layout, std::int64_t swiglu) {
  const auto gate_up = static_cast<nvfp4::GateUpLayout>(layout);
  return told(swiglu != 0 ? launchers->deinterleave.launch_swiglu(stream, codes, scales, input, gsa,
                                                                  rows, columns, 2 * columns,
                                                                  gate_up, {7.0f, 1.702f, 1.0f})
                          : launchers->deinterleave.launch(stream, codes, scales, input, gsa, rows,
                                                           columns, 2 * columns, gate_up));
}

const char* bench_swiglu_amax(Stream stream, float* gsa, const std::uint16_t* input,
                              std::int64_t rows, std::int64_t columns, std::int64_t layout,
                              std::uint32_t* workspace) {
  return told(launchers->swiglu_amax.launch(stream, gsa, input, rows, columns, 2 * columns,
                                            static_cast<nvfp4::GateUpLayout>(layout),
                                            {7.0f, 1.702f, 1.0f}, workspace));
}

const char* bench_sample(Stream stream, std::int32_t* tokens, const float* logits,
                         std::int64_t rows, std::int64_t vocabulary, const float* temperature,
                         const std::int32_t* top_k, const float* top_p, sampling::State* state) {
  sampling::Parameters parameters;
  parameters.temperature = temperature;
  parameters.top_k = top_k;
  parameters.top_p = top_p;
  return told(launchers->sampler.launch(stream, tokens, logits, rows, vocabulary, vocabulary,
                                        parameters, state));
}

std::size_t bench_moe_workspace(std::int64_t tokens, std::int64_t topk, std::int64_t experts,
                                std::int64_t hidden, std::int64_t width) {
  return launchers->moe.workspace_bytes({tokens, topk, experts, hidden, width});
}

const char* bench_moe(Stream stream, std::uint16_t* output, std::int64_t tokens, std::int64_t topk,
                      std::int64_t experts, std::int64_t hidden, std::int64_t width,
                      const std::uint16_t* input, const float* gsa, const std::int32_t* ids,
                      const float* weights, const std::uint8_t* up_codes,
                      const std::uint8_t* up_scales, const float* up_decode,
                      const std::uint8_t* down_codes, const std::uint8_t* down_scales,
                      const float* down_decode, const float* activation_gsa, void* workspace) {
  return told(launchers->moe.launch(stream, output, {tokens, topk, experts, hidden, width},
                                    {input, gsa, ids, weights}, {up_codes, up_scales, up_decode},
                                    {down_codes, down_scales, down_decode}, activation_gsa,
                                    nvfp4::GateUpLayout::halves, {}, workspace));
}

}  // extern "C"
#pragma GCC visibility pop
