// SPDX-License-Identifier: Apache-2.0
// Runs a mixture of experts on the CPU as a launch on sm_100a runs it, the launcher's own steps and
// workspace with the kernels' own sources, and compares with src/reference.
//
// usage: moe_cases LIBRARY UP_LIBRARY SEED [NAME]; without a name every case, else those whose name
// contains it; the libraries compiled from moe_device.cpp and
// moe_up_device.cpp, the seed that of the delays of loads and MMAs in the first GEMM.
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
#include "kernels_src/nvfp4/moe_grouped_signatures.cuh"
#include "kernels_src/nvfp4/moe_signatures.cuh"
#include "kernels_src/nvfp4/quantize_signatures.cuh"
#include "reference/formats.hpp"
#include "reference/gemm.hpp"

namespace cukiln::nvfp4 {
namespace {

constexpr std::uint32_t kNumSms = 2;    // few, so that a CTA computes several tiles
constexpr std::uint8_t kPoison = 0xFF;  // NaN as float, as bf16 and as a scale

std::size_t size_of(std::int64_t value) { return static_cast<std::size_t>(value); }

/// At most seven elements further.
std::uint16_t* aligned_to_16(std::uint16_t* from) {
  return reinterpret_cast<std::uint16_t*>((reinterpret_cast<std::uintptr_t>(from) + 15) / 16 * 16);
}

constexpr unsigned kRouteThreads = 512;
constexpr unsigned kQuantizeThreads = 512;
constexpr unsigned kCombineThreads = 256;

/// Opens a library; an error ends the process with code 3.
class Library {
 public:
  explicit Library(const char* file) : handle_(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(3);
    }
  }

  template <class Function>
  void find(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(dlsym(handle_, name));
    if (function == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(3);
    }
  }

 private:
  void* handle_;
};

/// The launcher's steps, each on the CPU.
struct Steps {
  moe_device::Launch* launch;
  signatures::MoeRouteRows* route_kernel;
  signatures::SwigluQuantizeFromBuffer* quantize_kernel;
  signatures::MoeCombineRows* combine_kernel;
  moe_device::LaunchEmulated* launch_up;
  signatures::MoeGroupedUp* up_kernel;
  std::uint32_t seed;
  mutable std::size_t up_differences = 0;  // bytes of the first GEMM's result
  mutable const emulator::Pages* workspace = nullptr;

  Steps(const char* device_file, const char* up_file, std::uint32_t up_seed) : seed(up_seed) {
    const Library device(device_file);
    device.find(launch, "launch_grid");
    device.find(route_kernel, "moe_route_rows");
    device.find(quantize_kernel, "swiglu_quantize_from_buffer");
    device.find(combine_kernel, "moe_combine_rows");
    const Library emulated(up_file);
    emulated.find(launch_up, "launch_emulated");
    emulated.find(up_kernel, "moe_grouped_up");
  }

  template <class... Args>
  Result<void> route(const MoeGrid& grid, Args... args) const {
    launch(grid.x, grid.y, kRouteThreads, [=, this] { route_kernel(args...); });
    return {};
  }
  template <class... Args>
  Result<void> combine(const MoeGrid& grid, Args... args) const {
    launch(grid.x, grid.y, kCombineThreads, [=, this] { combine_kernel(args...); });
    return {};
  }

  template <class... Args>
  Result<void> up(const Sm100Plan& plan, std::uint8_t* data, std::uint8_t* scales,
                  Args... args) const {
    const TensorMap maps[] = {emulator::encode(plan.rows), emulator::encode(plan.columns),
                              emulator::encode(plan.row_scales),
                              emulator::encode(plan.column_scales)};
    launch_up({plan.grid, 1, kSm100BlockThreads, plan.kernel->shared_bytes, seed, {workspace}},
              [&] { up_kernel(data, scales, maps[0], maps[1], maps[2], maps[3], args...); });
    compare_up(plan, data, scales, args...);
    return {};
  }

  /// Counts the bytes that are not those of a grouped GEMM and swiglu_quantize_from_buffer.
  void compare_up(const Sm100Plan& plan, const std::uint8_t* data, const std::uint8_t* scales,
                  const float* token_scale, const float* weight_decode, const std::uint16_t* bias,
                  const float* scale, const std::int32_t* row_experts,
                  const std::uint32_t* tile_count, u32 rows, u32 hidden, u32 width, u32 layout,
                  float limit, float alpha, float beta) const {
    const std::int64_t experts = static_cast<std::int64_t>(plan.columns.size[1]) / (2 * width);
    std::vector<GlobalScale> decode;
    for (std::int64_t e = 0; e < experts; ++e) decode.push_back({0, weight_decode[e]});
    const auto in = [](const TensorBox& box) { return static_cast<const std::uint8_t*>(box.data); };
    const QuantizedMatrix a{in(plan.rows), in(plan.row_scales),
                            reinterpret_cast<const GlobalScale*>(token_scale), rows, hidden};
    const QuantizedMatrix b{in(plan.columns), in(plan.column_scales), decode.data(),
                            experts * 2 * width, hidden};
    std::vector<std::uint16_t> h(size_of(std::int64_t{rows} * 2 * width) + 8);
    std::uint16_t* const aligned = aligned_to_16(h.data());
    static_cast<void>(gemm({DataType::bf16, aligned, rows, 2 * width}, a, b,
                           {DataType::bf16, bias, experts, 2 * width},
                           {DataType::i32, row_experts, rows / 128}, tile_count));
    const std::uint32_t there = *tile_count * 128;
    std::vector<std::uint8_t> wanted_data(size_of(std::int64_t{there} * width / 2));
    std::vector<std::uint8_t> wanted_scales(size_of(std::int64_t{there} * width / 16));
    launch(2, 1, kQuantizeThreads, [&] {
      quantize_kernel(wanted_data.data(), wanted_scales.data(), aligned, scale, there, width,
                      2 * width, layout, limit, alpha, beta);
    });
    for (std::size_t i = 0; i < wanted_data.size(); ++i) {
      up_differences += static_cast<std::size_t>(data[i] != wanted_data[i]);
    }
    for (std::size_t i = 0; i < wanted_scales.size(); ++i) {
      up_differences += static_cast<std::size_t>(scales[i] != wanted_scales[i]);
    }
  }

  /// As GroupedGemm::launch.
  Result<void> gemm(const MutableMatrixView& output, const QuantizedMatrix& a,
                    const QuantizedMatrix& b, const MatrixView& bias, const VectorView& row_experts,
                    const std::uint32_t* tile_count) const {
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
             &b.global_scale->encode, bias.data_as<const std::uint16_t>(), static_cast<u32>(a.rows),
             static_cast<u32>(output.columns), static_cast<u32>(a.columns),
             row_experts.data_as<const std::int32_t>(), 0, tile_count);
    });
    return {};
  }
};

/// Weights of all experts. Decode scales are powers of two, so that the two ways of multiplying by
/// them round alike.
struct Weights {
  Weights(std::int64_t experts, std::int64_t rows, std::int64_t columns, bool has_bias,
          std::mt19937& random)
      : data(size_of(experts) * data_bytes(rows, columns)),
        scales(size_of(experts) * scales_bytes(rows, columns)),
        decode(size_of(experts)),
        bias(has_bias ? size_of(experts * rows) + 8 : 0),
        view{data.data(), scales.data(), decode.data(), experts, rows, columns} {
    for (std::uint8_t& byte : data) byte = static_cast<std::uint8_t>(random());
    for (std::uint8_t& byte : scales) byte = static_cast<std::uint8_t>(0x30 + random() % 16);
    for (float& value : decode) value = std::ldexp(1.0f, -static_cast<int>(5 + random() % 3));
    for (std::uint16_t& value : bias) {
      value = reference::bf16_of_float(std::normal_distribution<float>()(random));
    }
    if (has_bias) view.bias = aligned_to_16(bias.data());
  }

  std::vector<std::uint8_t> data;
  std::vector<std::uint8_t> scales;
  std::vector<float> decode;
  std::vector<std::uint16_t> bias;
  MoeWeights view;
};

enum class Routing { random, one_expert, none, some_outside, far_apart };

struct Case {
  const char* name;
  MoeShape shape;
  Routing routing = Routing::random;
  GateUpLayout layout = GateUpLayout::halves;
  SwiGlu activation = {};
  std::vector<std::int32_t> map = {};
  bool has_biases = false;
};

const Case kCases[] = {
    {"ragged tiles", {60, 2, 3, 128, 64, 3}},
    {"an expert with two tiles, pairs",
     {140, 2, 2, 256, 192, 2},
     Routing::random,
     GateUpLayout::pairs,
     {7, 1.702f, 1},
     {},
     true},
    {"halves that begin in the middle of an atom, more stages than there are",
     {90, 1, 2, 1408, 192, 2},
     Routing::random,
     GateUpLayout::halves,
     {3, 1, 0.5f},
     {},
     true},
    {"one expert has all", {70, 2, 4, 128, 64, 4}, Routing::one_expert},
    {"nobody has any", {20, 4, 2, 128, 64, 2}, Routing::none},
    {"some ids are outside", {40, 2, 3, 128, 128, 3}, Routing::some_outside},
    {"experts elsewhere",
     {60, 2, 3, 384, 64, 6},
     Routing::random,
     GateUpLayout::halves,
     {2, 1, 0},
     {-1, 2, 0, 7, 1, -1}},
    {"experts of other warps", {1140, 1, 66, 128, 64, 66}, Routing::far_apart},
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
      case Routing::far_apart: id = random() % 3 == 0 ? 1 : 65; break;
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
  const Weights up(shape.experts, 2 * shape.width, shape.hidden, c.has_biases, random);
  const Weights down(shape.experts, shape.hidden, shape.width, c.has_biases, random);
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
  const emulator::Pages memory(std::vector<std::uint8_t>(plan.bytes + kGuard, kPoison));
  auto* const workspace = memory.as<std::uint8_t>();

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
    steps.up_differences = 0;
    steps.workspace = &memory;
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
    const auto count_stray = [&](std::size_t begin, std::int64_t columns, std::size_t end) {
      for (std::size_t i = begin + size_of(tiles * kMoeGroupRows * columns / 16); i < end; ++i) {
        stray += static_cast<std::size_t>(workspace[i] != kPoison && launch == 0);
      }
    };
    count_stray(plan.activation_data, 8 * shape.width, plan.activation_scales);
    count_stray(plan.activation_scales, shape.width, plan.expanded);
    count_stray(plan.row_data, 8 * shape.hidden, plan.row_scales);
    count_stray(plan.row_scales, shape.hidden, plan.gemm_output);
    count_stray(plan.gemm_output, 32 * shape.hidden, plan.bytes + kGuard / 2);
    std::printf("%s, launch %d: %u of %u tiles, %zu wrong, %zu bytes of y differ, %zu stray\n",
                c.name, launch, tiles, plan.max_tiles, wrong, steps.up_differences, stray);
    std::fflush(stdout);
    good = good && ran && untouched && wrong == 0 && steps.up_differences == 0 && stray == 0;
  }
  return good;
}

}  // namespace
}  // namespace cukiln::nvfp4

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) {
    std::fprintf(stderr, "usage: moe_cases LIBRARY UP_LIBRARY SEED [NAME]\n");
    return 3;
  }
  const cukiln::nvfp4::Steps steps(argv[1], argv[2],
                                   static_cast<std::uint32_t>(std::stoul(argv[3])));
  for (const auto& c : cukiln::nvfp4::kCases) {
    const bool is_wanted = argc == 4 || std::string(c.name).find(argv[4]) != std::string::npos;
    if (is_wanted && !agrees(c, steps)) {
      return 1;
    }
  }
  return 0;
}
