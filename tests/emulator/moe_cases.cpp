// SPDX-License-Identifier: Apache-2.0
// Runs a mixture of experts on the CPU as a launch on sm_100a runs it, the launcher's own steps and
// workspace with the kernels' own sources, and compares with src/reference.
//
// usage: moe_cases LIBRARY, compiled from moe_device.cpp
// Exit code 0: all agree; 1: a wrong result; 2: the emulator found a broken rule.
#include "emulator/tensor_box.hpp"  // first: it defines names that the emulator only declares

#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "emulator/kernels.hpp"
#include "emulator/moe_device.hpp"
#include "kernels/nvfp4/moe_grouped.hpp"
#include "kernels/nvfp4/sm100_plan.hpp"
#include "kernels_src/nvfp4/moe_signatures.cuh"
#include "reference/formats.hpp"
#include "reference/gemm.hpp"

namespace cukiln::nvfp4 {
namespace {

constexpr std::uint32_t kNumSms = 2;    // few, so that a CTA computes several tiles
constexpr std::uint8_t kPoison = 0xFF;  // NaN as float, as bf16 and as a scale

std::size_t size_of(std::int64_t value) { return static_cast<std::size_t>(value); }

constexpr unsigned kThreads = 256;  // of kernels that copy, sort or add up
constexpr unsigned kActivateThreads = 512;

/// The launcher's steps, each in the emulator.
struct Steps {
  moe_device::Launch* launch;
  signatures::MoeRoute* route_kernel;
  signatures::MoeGather* gather_kernel;
  signatures::MoeActivate* activate_kernel;
  signatures::MoeCombineRows* combine_kernel;

  explicit Steps(const char* file) {
    void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(3);
    }
    const auto find = [&](auto*& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    };
    find(launch, "launch_grid");
    find(route_kernel, "moe_route");
    find(gather_kernel, "moe_gather");
    find(activate_kernel, "moe_activate");
    find(combine_kernel, "moe_combine_rows");
  }

  template <class... Args>
  Result<void> route(const MoeGrid& grid, Args... args) const {
    launch(grid.x, grid.y, kThreads, [=, this] { route_kernel(args...); });
    return {};
  }
  template <class... Args>
  Result<void> gather(const MoeGrid& grid, Args... args) const {
    launch(grid.x, grid.y, kThreads, [=, this] { gather_kernel(args...); });
    return {};
  }
  template <class... Args>
  Result<void> activate(const MoeGrid& grid, Args... args) const {
    launch(grid.x, grid.y, kActivateThreads, [=, this] { activate_kernel(args...); });
    return {};
  }
  template <class... Args>
  Result<void> combine(const MoeGrid& grid, Args... args) const {
    launch(grid.x, grid.y, kThreads, [=, this] { combine_kernel(args...); });
    return {};
  }
  /// As GroupedGemm::launch.
  Result<void> gemm(const MutableMatrixView& output, const QuantizedMatrix& a,
                    const QuantizedMatrix& b, const VectorView& row_experts) const {
    const Sm100Kernel& chosen =
        select_sm100_grouped(a.rows, output.columns, a.columns, b.rows / output.columns, kNumSms);
    const Sm100Plan plan = plan_sm100(chosen, a, b, output.data, output.columns, kNumSms);
    const TensorMap maps[] = {emulator::encode(plan.rows), emulator::encode(plan.columns),
                              emulator::encode(plan.row_scales),
                              emulator::encode(plan.column_scales), emulator::encode(plan.output)};
    GroupedGemmKernel* const kernel =
        chosen.columns == 128 ? nvfp4_gemm_grouped_128x128 : nvfp4_gemm_grouped_128x256;
    emulator::launch({plan.grid, 1, kSm100BlockThreads, chosen.shared_bytes}, [&] {
      kernel(maps[0], maps[1], maps[2], maps[3], maps[4], &a.global_scale->encode,
             &b.global_scale->encode, nullptr, static_cast<u32>(a.rows),
             static_cast<u32>(output.columns), static_cast<u32>(a.columns),
             row_experts.data_as<const std::int32_t>(), 0);
    });
    return {};
  }
};

/// Weights of all experts. Decode scales are powers of two, so that the two ways of multiplying by
/// them round alike.
struct Weights {
  Weights(std::int64_t experts, std::int64_t rows, std::int64_t columns, std::mt19937& random)
      : data(size_of(experts) * data_bytes(rows, columns)),
        scales(size_of(experts) * scales_bytes(rows, columns)),
        decode(size_of(experts)),
        view{data.data(), scales.data(), decode.data(), experts, rows, columns} {
    for (std::uint8_t& byte : data) byte = static_cast<std::uint8_t>(random());
    for (std::uint8_t& byte : scales) byte = static_cast<std::uint8_t>(0x30 + random() % 16);
    for (float& value : decode) value = std::ldexp(1.0f, -static_cast<int>(5 + random() % 3));
  }

  std::vector<std::uint8_t> data;
  std::vector<std::uint8_t> scales;
  std::vector<float> decode;
  MoeWeights view;
};

enum class Routing { random, one_expert, none, some_outside };

struct Case {
  const char* name;
  MoeShape shape;
  Routing routing = Routing::random;
  GateUpLayout layout = GateUpLayout::halves;
  SwiGlu activation = {};
  std::vector<std::int32_t> map = {};
};

const Case kCases[] = {
    {"ragged tiles", {60, 2, 3, 128, 64, 3}},
    {"an expert with two tiles, pairs",
     {140, 2, 2, 256, 192, 2},
     Routing::random,
     GateUpLayout::pairs,
     {7, 1.702f, 1}},
    {"one expert has all", {70, 2, 4, 128, 64, 4}, Routing::one_expert},
    {"nobody has any", {20, 4, 2, 128, 64, 2}, Routing::none},
    {"some ids are outside", {40, 2, 3, 128, 128, 3}, Routing::some_outside},
    {"experts elsewhere",
     {60, 2, 3, 384, 64, 6},
     Routing::random,
     GateUpLayout::halves,
     {2, 1, 0},
     {-1, 2, 0, 7, 1, -1}},
};

std::vector<std::int32_t> ids_of(const Case& c, std::mt19937& random) {
  std::vector<std::int32_t> ids(size_of(c.shape.tokens * c.shape.topk));
  for (std::int32_t& id : ids) {
    switch (c.routing) {
      case Routing::random:
        id = static_cast<std::int32_t>(random() % c.shape.global_experts);
        break;
      case Routing::one_expert: id = 2; break;
      case Routing::none: id = -1; break;
      case Routing::some_outside: id = static_cast<std::int32_t>(random() % 6) - 2; break;
    }
  }
  return ids;
}

/// Elements that differ by more than a unit of bf16, or of float within the largest.
std::size_t differences(const std::vector<std::uint16_t>& given,
                        const std::vector<std::uint16_t>& wanted) {
  using reference::float_of_bf16;
  float largest = 0;
  for (const std::uint16_t bits : wanted) {
    largest = std::max(largest, std::fabs(float_of_bf16(bits)));
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const float want = float_of_bf16(wanted[i]);
    const float error = std::fabs(float_of_bf16(given[i]) - want);
    wrong += static_cast<std::size_t>(!(error <= std::fabs(want) / 128 + largest * 1e-6f));
  }
  return wrong;
}

bool agrees(const Case& c, const Steps& steps) {
  const MoeShape& shape = c.shape;
  std::mt19937 random(static_cast<unsigned>(shape.tokens));
  const MoePlan plan = moe_plan(shape, MoeKernels::grouped, kNumSms);
  if (plan.kernels != MoeKernels::grouped) {
    std::printf("%s: no grouped GEMMs\n", c.name);
    return false;
  }
  const Weights up(shape.experts, 2 * shape.width, shape.hidden, random);
  const Weights down(shape.experts, shape.hidden, shape.width, random);
  const GlobalScale hidden_scale = {512, 1.0f / 512};
  const GlobalScale activation_scale = {32, 1.0f / 32};
  MoeLayer layer;
  layer.up = up.view;
  layer.down = down.view;
  layer.activation_scale = &activation_scale;
  layer.global_experts = shape.global_experts;
  if (!c.map.empty()) {
    layer.expert_map = {DataType::i32, c.map.data(), static_cast<std::int64_t>(c.map.size())};
  }
  layer.layout = c.layout;
  layer.activation = c.activation;
  constexpr std::size_t kGuard = 256;
  // vector's memory is aligned for a byte: what lies on 256 is found within.
  std::vector<std::uint8_t> memory(plan.bytes + 2 * kGuard, kPoison);
  auto* const workspace = reinterpret_cast<std::uint8_t*>(
      (reinterpret_cast<std::uintptr_t>(memory.data()) + kGuard - 1) / kGuard * kGuard);

  bool good = true;
  for (int launch = 0; launch < 2; ++launch) {  // the second one with what the first one left
    std::vector<std::uint16_t> hidden(size_of(shape.tokens * shape.hidden));
    for (std::uint16_t& value : hidden) {
      value = reference::bf16_of_float(std::normal_distribution<float>()(random));
    }
    const std::vector<std::int32_t> ids = ids_of(c, random);
    std::vector<float> weights(ids.size());
    for (float& weight : weights) weight = std::uniform_real_distribution<float>(0, 1)(random);
    std::vector<std::uint16_t> output(hidden.size() + 1, 0x7FC1);
    MoeInput input;
    input.hidden = {DataType::bf16, hidden.data(), shape.tokens, shape.hidden};
    input.hidden_scale = &hidden_scale;
    input.topk_ids = {DataType::i32, ids.data(), shape.tokens, shape.topk};
    input.topk_weights = {DataType::f32, weights.data(), shape.tokens, shape.topk};
    const MoeCall call{nullptr, output.data(), shape, input, layer, workspace};
    const auto routed = run_moe_route(plan, call, kNumSms, [&](const MoeGrid& grid, auto... args) {
      return steps.route(grid, args...);
    });
    const auto ran = run_moe_grouped(plan, call, kNumSms, steps);
    const bool untouched = output.back() == 0x7FC1;
    output.pop_back();

    std::vector<std::uint16_t> wanted(hidden.size());
    reference::moe_gemm({DataType::bf16, wanted.data(), shape.tokens, shape.hidden}, input, layer,
                        true);
    const std::size_t wrong = differences(output, wanted);
    // Beyond the tiles that there are nothing is computed; beyond the workspace nothing is written.
    const std::uint32_t tiles = *call.at<std::uint32_t>(plan.tile_count);
    std::size_t stray = 0;
    const std::size_t used =
        size_of(tiles * kMoeGroupRows * std::max(2 * shape.width, shape.hidden) * 2);
    for (std::size_t i = plan.gemm_output + used; i < plan.bytes + kGuard / 2; ++i) {
      stray += static_cast<std::size_t>(workspace[i] != kPoison && launch == 0);
    }
    std::printf("%s, launch %d: %u of %u tiles, %zu wrong, %zu stray\n", c.name, launch, tiles,
                plan.max_tiles, wrong, stray);
    std::fflush(stdout);
    good = good && routed && ran && untouched && wrong == 0 && stray == 0;
  }
  return good;
}

}  // namespace
}  // namespace cukiln::nvfp4

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: moe_cases LIBRARY\n");
    return 3;
  }
  const cukiln::nvfp4::Steps steps(argv[1]);
  for (const auto& c : cukiln::nvfp4::kCases) {
    if (!agrees(c, steps)) {
      return 1;
    }
  }
  return 0;
}
