// SPDX-License-Identifier: Apache-2.0
// Runs a mixture of experts on the CPU as a launch on sm_100a runs it, the launcher's own steps and
// workspace with the kernels' own sources, and compares with src/nvfp4/reference.
//
// usage: moe_cases LIBRARY UP_LIBRARY SEED [NAME]; without a name every case, else those whose name
// contains it; the libraries compiled from moe_device.cpp and
// moe_up_device.cpp, the seed that of the delays of loads and MMAs in the first GEMM.
// Exit code 0: all agree; 1: a wrong result; 2: the emulator found a broken rule.
#include "emulator/tensor_box.hpp"  // first: it defines names that the emulator only declares

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "emulator/kernels.hpp"
#include "emulator/moe_device.hpp"
#include "kernels_src/nvfp4/moe_grouped_signatures.cuh"
#include "kernels_src/nvfp4/moe_signatures.cuh"
#include "kernels_src/nvfp4/quantize_signatures.cuh"
#include "nvfp4/host/moe_grouped.hpp"
#include "nvfp4/host/sm100_select.hpp"
#include "nvfp4/reference/formats.hpp"
#include "nvfp4/reference/gemm.hpp"

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
  signatures::MoeGroupedUp* up_dynamic_kernel;
  std::uint32_t seed;
  mutable std::size_t up_differences = 0;  // bytes of the first GEMM's result, or rows
  mutable std::size_t subnormal_blocks = 0;
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
    emulated.find(up_dynamic_kernel, "moe_grouped_up_dynamic");
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
    const bool dynamic = plan.kernel == &kMoeGroupedUpDynamic;
    signatures::MoeGroupedUp* const kernel = dynamic ? up_dynamic_kernel : up_kernel;
    const TensorMap maps[] = {emulator::encode(plan.rows), emulator::encode(plan.columns),
                              emulator::encode(plan.row_scales),
                              emulator::encode(plan.column_scales)};
    launch_up({plan.grid, 1, kSm100BlockThreads, plan.kernel->shared_bytes, seed, {workspace}},
              [&] { kernel(data, scales, maps[0], maps[1], maps[2], maps[3], args...); });
    compare_up(plan, data, scales, args...);
    return {};
  }

  /// The first GEMM's results before SwiGLU, by a grouped GEMM.
  struct Sums {
    Sums(const Steps& with, const Sm100Plan& plan, const float* token_scale,
         const float* weight_decode, const std::uint16_t* bias, const std::int32_t* row_experts,
         const std::uint32_t* tile_count, u32 all_rows, u32 hidden, u32 of_width)
        : rows(*tile_count * 128),
          width(of_width),
          memory(size_of(std::int64_t{all_rows} * 2 * width) + 8) {
      const std::int64_t experts = static_cast<std::int64_t>(plan.columns.size[1]) / (2 * width);
      std::vector<GlobalScale> decode;
      for (std::int64_t e = 0; e < experts; ++e) decode.push_back({0, weight_decode[e]});
      const auto in = [](const TensorBox& box) {
        return static_cast<const std::uint8_t*>(box.data);
      };
      const QuantizedMatrix a{in(plan.rows), in(plan.row_scales),
                              reinterpret_cast<const GlobalScale*>(token_scale), all_rows, hidden};
      const QuantizedMatrix b{in(plan.columns), in(plan.column_scales), decode.data(),
                              experts * 2 * width, hidden};
      values = aligned_to_16(memory.data());
      GroupedGemmOptions options;
      options.bias = {DataType::bf16, bias, experts, 2 * width};
      options.group_count = tile_count;
      static_cast<void>(with.gemm({DataType::bf16, values, all_rows, 2 * width}, a, b,
                                  {DataType::i32, row_experts, all_rows / 128}, options));
    }

    u32 rows;  // that there are
    u32 width;
    std::vector<std::uint16_t> memory;
    std::uint16_t* values;
  };

  /// What swiglu_quantize_from_buffer makes of them.
  struct Activations {
    Activations(const Steps& with, const Sums& sums, const float* scale, u32 layout, float limit,
                float alpha, float beta)
        : data(size_of(std::int64_t{sums.rows} * sums.width / 2)),
          scales(size_of(std::int64_t{sums.rows} * sums.width / 16)) {
      with.launch(2, 1, kQuantizeThreads, [&] {
        with.quantize_kernel(data.data(), scales.data(), sums.values, scale, sums.rows, sums.width,
                             2 * sums.width, layout, limit, alpha, beta);
      });
    }

    std::vector<std::uint8_t> data;
    std::vector<std::uint8_t> scales;
  };

  /// Counts the bytes that are not those of a grouped GEMM and swiglu_quantize_from_buffer. With a
  /// dynamic scale, the rows.
  void compare_up(const Sm100Plan& plan, const std::uint8_t* data, const std::uint8_t* scales,
                  const float* token_scale, const float* weight_decode, const std::uint16_t* bias,
                  const float* scale, const std::int32_t* row_experts,
                  const std::uint32_t* tile_count, u32 rows, u32 hidden, u32 width, u32 layout,
                  float limit, float alpha, float beta, const float* row_scales,
                  const std::uint16_t*, const std::uint32_t*) const {
    const Sums sums(*this, plan, token_scale, weight_decode, bias, row_experts, tile_count, rows,
                    hidden, width);
    if (scale == nullptr) {
      compare_rows(sums, data, scales, row_scales, layout, limit, alpha, beta);
      return;
    }
    const Activations wanted(*this, sums, scale, layout, limit, alpha, beta);
    for (std::size_t i = 0; i < wanted.data.size(); ++i) {
      up_differences += static_cast<std::size_t>(data[i] != wanted.data[i]);
    }
    for (std::size_t i = 0; i < wanted.scales.size(); ++i) {
      up_differences += static_cast<std::size_t>(scales[i] != wanted.scales[i]);
    }
  }

  /// Each row has a scale of its own: a power of two that makes the largest byte of a block 0x77 to
  /// 0x7E. A subnormal byte, up to 8, was rounded twice, after its elements; those of a NaN do not
  /// count.
  void compare_rows(const Sums& sums, const std::uint8_t* data, const std::uint8_t* scales,
                    const float* row_scales, u32 layout, float limit, float alpha,
                    float beta) const {
    const u32 width = sums.width;
    std::map<float, Activations> by_scale;
    for (u32 row = 0; row < sums.rows; ++row) {
      const float* const scale = row_scales + 2 * row;
      const Activations& wanted =
          by_scale.try_emplace(scale[0], *this, sums, scale, layout, limit, alpha, beta)
              .first->second;
      int exponent = 0;
      bool right = std::frexp(scale[0], &exponent) == 0.5f && scale[0] * scale[1] == 1;
      std::uint8_t largest = 0;
      for (u32 block = 0; block < width / 16; ++block) {
        const std::size_t at = scale_offset(row, block, width);
        const std::uint8_t byte = scales[at];
        largest = std::max(largest, byte);
        if (byte <= 8) {
          right = right && std::abs(byte - wanted.scales[at]) <= 1;
          ++subnormal_blocks;
          continue;
        }
        right = right && byte == wanted.scales[at];
        if (byte == 0x7F) continue;
        const std::size_t first = (std::size_t{row} * width + block * 16) / 2;
        right = right && std::equal(data + first, data + first + 8, wanted.data.data() + first);
      }
      right = right && (largest >= 0x77 || scale[0] == 0x1p120f);
      up_differences += static_cast<std::size_t>(!right);
    }
  }

  /// As GroupedGemm::launch.
  Result<void> gemm(const MutableMatrixView& output, const QuantizedMatrix& a,
                    const QuantizedMatrix& b, const VectorView& row_experts,
                    const GroupedGemmOptions& options) const {
    const Sm100Kernel& chosen =
        select_sm100_grouped({a.rows, output.columns, a.columns, kNumSms, b.rows / output.columns});
    const Sm100Plan plan = plan_sm100(chosen, a, b, output.data, output.columns, kNumSms);
    const TensorMap maps[] = {emulator::encode(plan.rows), emulator::encode(plan.columns),
                              emulator::encode(plan.row_scales),
                              emulator::encode(plan.column_scales), emulator::encode(plan.output)};
    GroupedGemmKernel* const kernel =
        chosen.columns == 128 ? nvfp4_gemm_grouped_128x128 : nvfp4_gemm_grouped_128x256;
    emulator::launch({plan.grid, 1, kSm100BlockThreads, chosen.shared_bytes}, [&] {
      kernel(maps[0], maps[1], maps[2], maps[3], maps[4], &a.global_scale->encode,
             &b.global_scale->encode, options.bias.data_as<const std::uint16_t>(),
             static_cast<u32>(a.rows), static_cast<u32>(output.columns),
             static_cast<u32>(a.columns), row_experts.data_as<const std::int32_t>(),
             options.a_scale_per_row ? 2 : 0, options.group_count);
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

  /// Each sixteen rows have smaller scales than those before them, the last ones than all.
  void spread() {
    const std::size_t of_expert = scales_bytes(view.rows, view.columns);
    for (std::int64_t row = 0; row < view.rows; ++row) {
      const auto byte = static_cast<std::uint8_t>(0x70 - row / 16 % 12 * 8);
      for (std::int64_t e = 0; e < view.experts; ++e) {
        for (std::int64_t block = 0; block < view.columns / 16; ++block) {
          scales[size_of(e) * of_expert + scale_offset(row, block, view.columns)] = byte;
        }
      }
    }
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
  bool spread = false;  // blocks of y differ by up to 2^22 within a row
};

Case dynamic(Case of) {
  of.shape.dynamic_activation_scale = true;
  return of;
}

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
    {"no expert has a token", {20, 4, 2, 128, 64, 2}, Routing::none},
    {"some ids are outside", {40, 2, 3, 128, 128, 3}, Routing::some_outside},
    {"experts elsewhere",
     {60, 2, 3, 384, 64, 6},
     Routing::random,
     GateUpLayout::halves,
     {2, 1, 0},
     {-1, 2, 0, 7, 1, -1}},
    {"experts of other warps", {1140, 1, 66, 128, 64, 66}, Routing::far_apart},
    dynamic({"a scale of each row, ragged tiles", {60, 2, 3, 128, 64, 3}}),
    dynamic({"a scale of each row, two column tiles, pairs",
             {140, 2, 2, 256, 192, 2},
             Routing::random,
             GateUpLayout::pairs,
             {7, 1.702f, 1},
             {},
             true}),
    dynamic({"a scale of each row, more atoms than loads ahead, blocks of very different sizes",
             {90, 2, 2, 128, 576, 2},
             Routing::random,
             GateUpLayout::halves,
             {},
             {},
             false,
             true}),
    dynamic({"a scale of each row, of no rows", {20, 4, 2, 128, 64, 2}, Routing::none}),
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

/// Elements that differ by more than a unit of bf16, or this share of the largest.
std::size_t differences(const std::vector<std::uint16_t>& given,
                        const std::vector<std::uint16_t>& wanted, float of_largest) {
  using reference::float_of_bf16;
  float largest = 0;
  for (const std::uint16_t bits : wanted) {
    largest = std::max(largest, std::fabs(float_of_bf16(bits)));
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const float want = float_of_bf16(wanted[i]);
    const float error = std::fabs(float_of_bf16(given[i]) - want);
    wrong += static_cast<std::size_t>(!(error <= std::fabs(want) / 128 + largest * of_largest));
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
  Weights up(shape.experts, 2 * shape.width, shape.hidden, c.has_biases, random);
  const Weights down(shape.experts, shape.hidden, shape.width, c.has_biases, random);
  const GlobalScale hidden_scale = {512, 1.0f / 512};
  const GlobalScale activation_scale = {32, 1.0f / 32};
  if (c.spread) up.spread();
  MoeLayer layer;
  layer.up = up.view;
  layer.down = down.view;
  layer.dynamic_activation_scale = shape.dynamic_activation_scale;
  if (!layer.dynamic_activation_scale) layer.activation_scale = &activation_scale;
  layer.global_experts = shape.global_experts;
  if (!c.map.empty()) {
    layer.expert_map = {DataType::i32, c.map.data(), static_cast<std::int64_t>(c.map.size())};
  }
  layer.layout = c.layout;
  layer.activation = c.activation;
  constexpr std::size_t kGuard = 256;
  const emulator::Pages memory(std::vector<std::uint8_t>(plan.total_bytes + kGuard, kPoison));
  auto* const workspace = memory.as<std::uint8_t>();

  bool good = true;
  for (int launch = 0; launch < 2; ++launch) {  // the second one with what the first one left
    std::vector<std::uint16_t> hidden(size_of(shape.tokens * shape.hidden));
    for (std::uint16_t& value : hidden) {
      value = reference::bf16_of_float(std::normal_distribution<float>()(random));
    }
    if (shape.dynamic_activation_scale) {  // rows without a largest value
      std::fill_n(hidden.begin() + 5 * shape.hidden, shape.hidden, std::uint16_t{0});
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
    steps.subnormal_blocks = 0;
    steps.workspace = &memory;
    const auto ran = run_moe_grouped(plan, call, kNumSms, steps);
    const bool untouched = output.back() == 0x7FC1;
    output.pop_back();

    std::vector<std::uint16_t> wanted(hidden.size());
    reference::moe_gemm({DataType::bf16, wanted.data(), shape.tokens, shape.hidden}, input, layer,
                        true);
    const std::size_t wrong = differences(output, wanted, c.spread ? 1e-3f : 1e-6f);
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
    const bool dynamic = shape.dynamic_activation_scale;
    count_stray(plan.gemm_output, 32 * shape.hidden, plan.wide_scales);
    count_stray(plan.wide_scales, dynamic ? 2 * shape.width : 0, plan.row_states);
    count_stray(plan.row_states, dynamic ? 128 : 0, plan.activation_row_scales);
    count_stray(plan.activation_row_scales, dynamic ? 128 : 0, plan.total_bytes + kGuard / 2);
    std::printf("%s, launch %d: %u of %u tiles, %zu wrong, %zu bytes of y differ, %zu stray\n",
                c.name, launch, tiles, plan.max_tiles, wrong, steps.up_differences, stray);
    std::fflush(stdout);
    good = good && ran && untouched && wrong == 0 && steps.up_differences == 0 && stray == 0 &&
           (!c.spread || steps.subnormal_blocks != 0);
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
