// SPDX-License-Identifier: Apache-2.0
#include "kernels/nvfp4/gemm_architecture.hpp"
#include "kernels/nvfp4/gemm_checks.hpp"
#include "kernels/nvfp4/moe_grouped.hpp"
#include "kernels/shipped_kernel.hpp"

#include <cukiln/nvfp4_moe.hpp>
#include <cukiln/tensor_map.hpp>

namespace cukiln::nvfp4 {
namespace {

constexpr int kWarpgroupCapability = 90;  // sm_90a alone

constexpr std::uint32_t kSimpleThreads = 256;  // of kernels that copy, sort or add up
constexpr std::uint32_t kActivateThreads = 512;
constexpr std::uint32_t kSkinnyThreads = 128;
constexpr std::uint32_t kWarpgroupThreads = 384;
constexpr std::uint32_t kWarpgroupShared = 196720;

struct TileModule {
  const char* module;
  const char* up;
  const char* down;
};
/// In the order of 8, 16, 32, 64 and 128 tokens; the last two need warpgroups.
constexpr TileModule kModules[] = {
    {"nvfp4_moe_gemm", "moe_up", "moe_down"},
    {"nvfp4_moe_gemm_16", "moe_up", "moe_down"},
    {"nvfp4_moe_gemm_32", "moe_up", "moe_down"},
    {"nvfp4_moe_prefill_64", "moe_prefill_up", "moe_prefill_down"},
    {"nvfp4_moe_prefill", "moe_prefill_up", "moe_prefill_down"},
};
constexpr std::size_t kFirstWarpgroupModule = 3;

std::size_t size_index(const MoePlan& plan) noexcept {
  std::size_t index = 0;
  while ((std::uint32_t{8} << index) < plan.tile_tokens) {
    ++index;
  }
  return index;
}

using Check = Result<void> (*)(const Kernel&);
constexpr Check kCheckRoute =
    detail::check_parameters<MoeTile*, std::uint32_t*, std::uint32_t*, std::int32_t*, std::uint8_t*,
                             std::uint8_t*, const std::uint16_t*, const float*, const std::int32_t*,
                             const std::int32_t*, std::uint32_t, std::uint32_t, std::uint32_t,
                             std::uint32_t, std::uint32_t, std::uint32_t>;
constexpr Check kCheckExpand =
    detail::check_parameters<std::uint8_t*, const std::uint8_t*, const std::uint8_t*,
                             const std::uint32_t*, const std::uint32_t*, std::uint32_t,
                             std::uint32_t>;
constexpr Check kCheckUp =
    detail::check_parameters<std::uint8_t*, std::uint8_t*, const MoeTile*, const std::uint32_t*,
                             const std::uint32_t*, const std::uint8_t*, const std::uint8_t*,
                             const float*, const std::uint8_t*, const std::uint8_t*, const float*,
                             const float*, std::uint32_t, std::uint32_t, std::uint32_t,
                             std::uint32_t, float, float, float>;
constexpr Check kCheckDown =
    detail::check_parameters<float*, const MoeTile*, const std::uint32_t*, const std::uint8_t*,
                             const std::uint8_t*, const float*, const std::uint8_t*,
                             const std::uint8_t*, const float*, std::uint32_t, std::uint32_t,
                             std::uint32_t, std::uint32_t>;
constexpr Check kCheckWarpgroupUp =
    detail::check_parameters<std::uint8_t*, std::uint8_t*, const MoeTile*, const std::uint32_t*,
                             TensorMap, const float*, TensorMap, const std::uint8_t*, const float*,
                             const float*, std::uint32_t, std::uint32_t, std::uint32_t, float,
                             float, float>;
constexpr Check kCheckWarpgroupDown =
    detail::check_parameters<float*, const MoeTile*, const std::uint32_t*, TensorMap, const float*,
                             TensorMap, const std::uint8_t*, const float*, std::uint32_t,
                             std::uint32_t>;
constexpr Check kCheckCombine =
    detail::check_parameters<std::uint16_t*, const float*, const float*, const std::int32_t*,
                             std::uint32_t, std::uint32_t, std::uint32_t>;
constexpr Check kCheckGather =
    detail::check_parameters<std::uint8_t*, std::uint8_t*, std::int32_t*, std::int32_t*, float*,
                             float*, const MoeTile*, const std::uint32_t*, const std::uint32_t*,
                             const std::uint8_t*, const std::uint8_t*, const float*, const float*,
                             std::uint32_t, std::uint32_t>;
constexpr Check kCheckActivate =
    detail::check_parameters<std::uint8_t*, std::uint8_t*, const std::uint16_t*,
                             const std::uint32_t*, const float*, std::uint32_t, std::uint32_t,
                             float, float, float>;
constexpr Check kCheckCombineRows =
    detail::check_parameters<std::uint16_t*, const std::uint16_t*, const float*,
                             const std::int32_t*, std::uint32_t, std::uint32_t>;

MoeShape filled_in(MoeShape shape) noexcept {
  if (shape.global_experts == 0) {
    shape.global_experts = shape.experts;
  }
  return shape;
}

Result<void> check_moe_shape(const MoeShape& shape) noexcept {
  CUKILN_CHECK(kernels::check_shape(shape.tokens, shape.hidden));
  CUKILN_CHECK(kernels::check_shape(shape.tokens, shape.width));
  if (shape.hidden == 0 || shape.hidden % 32 != 0) {
    return kernels::refuse("hidden is {}; a positive multiple of 32 is expected", shape.hidden);
  }
  if (shape.width == 0 || shape.width % 32 != 0) {
    return kernels::refuse("width is {}; a positive multiple of 32 is expected", shape.width);
  }
  if (shape.experts < 1 || shape.experts > kMoeMostExperts) {
    return kernels::refuse("experts is {}; 1 to {} are expected", shape.experts, kMoeMostExperts);
  }
  if (shape.experts * std::max(2 * shape.width, shape.hidden) > INT32_MAX) {
    return kernels::refuse(
        "{} experts with {} and {} rows of weights; at most {} in all are expected", shape.experts,
        2 * shape.width, shape.hidden, INT32_MAX);
  }
  if (shape.global_experts < 0 || shape.global_experts > INT32_MAX) {
    return kernels::refuse("global_experts is {}; 0 to {} are expected", shape.global_experts,
                           INT32_MAX);
  }
  if (shape.topk < 1 || shape.topk > 1024) {
    return kernels::refuse("topk is {}; 1 to 1024 are expected", shape.topk);
  }
  if (shape.tokens * shape.topk > kMoeMostSlots) {
    return kernels::refuse(
        "{} tokens with {} experts each are more than {}; launch parts of the tokens one by one",
        shape.tokens, shape.topk, kMoeMostSlots);
  }
  return {};
}

Result<void> check_weights(const char* codes, const char* scales, const char* decode,
                           const MoeWeights& weights) noexcept {
  CUKILN_CHECK(kernels::check_pointer(codes, weights.codes, 16));
  CUKILN_CHECK(kernels::check_pointer(scales, weights.scales, 16));
  return kernels::check_pointer(decode, weights.decode, 4);
}

/// fp16 [slots, columns], as moe_expand makes it, by tiles of `tokens`.
TensorBox token_box(const void* expanded, std::uint32_t slots, std::int64_t columns,
                    std::uint32_t tokens) noexcept {
  TensorBox box;
  box.element = TensorBox::Element::f16;
  box.swizzled = true;
  box.data = expanded;
  box.size[0] = std::uint64_t{ceil_div(columns, 128)} * 128;
  box.size[1] = slots;
  box.stride[0] = box.size[0] * 2;
  box.box[0] = 64;
  box.box[1] = tokens;
  return box;
}

/// Codes of all experts' rows, 64 at a time.
TensorBox code_box(const std::uint8_t* codes, std::int64_t rows, std::int64_t columns) noexcept {
  TensorBox box;
  box.data = codes;
  box.size[0] = static_cast<std::uint64_t>(columns / 2);
  box.size[1] = static_cast<std::uint64_t>(rows);
  box.stride[0] = box.size[0];
  box.box[0] = 64;
  box.box[1] = 64;
  return box;
}

template <class... Args>
Result<void> launch_simple(const Kernel& kernel, Stream stream, const MoeGrid& grid,
                           std::uint32_t threads, Args... args) noexcept {
  LaunchConfig config;
  config.grid = {grid.x, grid.y, 1};
  config.block.x = threads;
  return detail::launch_checked(kernel, stream, config, args...);
}

/// The kernels of nvfp4_moe_gemm.cu.
Result<void> launch_skinny(const MoePlan& plan, const MoeCall& call, const Kernel& up_kernel,
                           const Kernel& down_kernel) noexcept {
  const MoeShape& shape = call.shape;
  auto* const tiles = call.at<MoeTile>(plan.tiles);
  auto* const tile_count = call.at<std::uint32_t>(plan.tile_count);
  auto* const activation_codes = call.at<std::uint8_t>(plan.activation_codes);
  auto* const activation_scales = call.at<std::uint8_t>(plan.activation_scales);
  const auto hidden = static_cast<std::uint32_t>(shape.hidden);
  const auto width = static_cast<std::uint32_t>(shape.width);
  LaunchConfig config;
  config.block.x = kSkinnyThreads;
  config.cluster = {2 * plan.up_splits, 1, 1};
  config.grid = {ceil_div(shape.width, 128) * 2 * plan.up_splits, plan.most_tiles, 1};
  CUKILN_CHECK(detail::launch_checked(
      up_kernel, call.stream, config, activation_codes, activation_scales, tiles, tile_count,
      call.at<std::uint32_t>(plan.slot_of_position), call.at<std::uint8_t>(plan.token_codes),
      call.at<std::uint8_t>(plan.token_scales), call.input.hidden_gsa, call.up.codes,
      call.up.scales, call.up.decode, call.activation_gsa, static_cast<std::uint32_t>(shape.topk),
      hidden, width, static_cast<std::uint32_t>(call.layout), call.activation.limit,
      call.activation.alpha, call.activation.beta));
  config.cluster = {0, 0, 0};
  config.grid = {ceil_div(shape.hidden, 128) * plan.down_splits, plan.most_tiles, 1};
  return detail::launch_checked(down_kernel, call.stream, config, call.at<float>(plan.partial),
                                tiles, tile_count, activation_codes, activation_scales,
                                call.activation_gsa, call.down.codes, call.down.scales,
                                call.down.decode, plan.slots, hidden, width, plan.down_splits);
}

/// The kernels of nvfp4_moe_prefill.cu.
Result<void> launch_warpgroups(const MoePlan& plan, const MoeCall& call,
                               std::uint32_t multiprocessors, const Kernel& expand_kernel,
                               const Kernel& up_kernel, const Kernel& down_kernel) noexcept {
  const MoeShape& shape = call.shape;
  auto* const tiles = call.at<MoeTile>(plan.tiles);
  auto* const tile_count = call.at<std::uint32_t>(plan.tile_count);
  auto* const activation_codes = call.at<std::uint8_t>(plan.activation_codes);
  auto* const activation_scales = call.at<std::uint8_t>(plan.activation_scales);
  auto* const expanded = call.at<std::uint8_t>(plan.expanded);
  const auto topk = static_cast<std::uint32_t>(shape.topk);
  const auto hidden = static_cast<std::uint32_t>(shape.hidden);
  const auto width = static_cast<std::uint32_t>(shape.width);
  const std::uint32_t* const position_count = tile_count + 1;
  const std::uint32_t* const in_order = nullptr;
  const auto expand = [&](const std::uint8_t* codes, const std::uint8_t* scales,
                          const std::uint32_t* slots, std::uint32_t columns) {
    const MoeGrid grid{
        std::min(ceil_div(std::int64_t{plan.slots} * ceil_div(columns, 128) * 16, kSimpleThreads),
                 16 * multiprocessors)};
    return launch_simple(expand_kernel, call.stream, grid, kSimpleThreads, expanded, codes, scales,
                         slots, position_count, topk, columns);
  };
  LaunchConfig config;
  config.block.x = kWarpgroupThreads;
  config.shared_bytes = kWarpgroupShared;
  const auto persistent = [&](std::uint32_t row_tiles) {
    config.grid.x = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(multiprocessors, std::uint64_t{plan.most_tiles} * row_tiles));
  };

  CUKILN_TRY(
      const TensorMap token_map,
      tensor_map(up_kernel, token_box(expanded, plan.slots, shape.hidden, plan.tile_tokens)));
  CUKILN_TRY(const TensorMap up_map,
             tensor_map(up_kernel,
                        code_box(call.up.codes, shape.experts * 2 * shape.width, shape.hidden)));
  CUKILN_CHECK(expand(call.at<std::uint8_t>(plan.token_codes),
                      call.at<std::uint8_t>(plan.token_scales),
                      call.at<std::uint32_t>(plan.slot_of_position), hidden));
  persistent(width / 64);
  CUKILN_CHECK(detail::launch_checked(
      up_kernel, call.stream, config, activation_codes, activation_scales, tiles, tile_count,
      token_map, call.input.hidden_gsa, up_map, call.up.scales, call.up.decode, call.activation_gsa,
      hidden, width, static_cast<std::uint32_t>(call.layout), call.activation.limit,
      call.activation.alpha, call.activation.beta));

  CUKILN_TRY(
      const TensorMap activation_map,
      tensor_map(down_kernel, token_box(expanded, plan.slots, shape.width, plan.tile_tokens)));
  CUKILN_TRY(const TensorMap down_map,
             tensor_map(down_kernel,
                        code_box(call.down.codes, shape.experts * shape.hidden, shape.width)));
  CUKILN_CHECK(expand(activation_codes, activation_scales, in_order, width));
  persistent(ceil_div(shape.hidden, 128));
  return detail::launch_checked(down_kernel, call.stream, config, call.at<float>(plan.partial),
                                tiles, tile_count, activation_map, call.activation_gsa, down_map,
                                call.down.scales, call.down.decode, hidden, width);
}

/// The steps of run_moe_grouped, on a device.
struct GroupedSteps {
  Stream stream;
  const Kernel& gather_kernel;
  const Kernel& activate_kernel;
  const Kernel& combine_kernel;
  const GroupedGemm& gemm;

  template <class... Args>
  Result<void> gather(const MoeGrid& grid, Args... args) const noexcept {
    return launch_simple(gather_kernel, stream, grid, kSimpleThreads, args...);
  }
  template <class... Args>
  Result<void> activate(const MoeGrid& grid, Args... args) const noexcept {
    return launch_simple(activate_kernel, stream, grid, kActivateThreads, args...);
  }
  template <class... Args>
  Result<void> combine(const MoeGrid& grid, Args... args) const noexcept {
    return launch_simple(combine_kernel, stream, grid, kSimpleThreads, args...);
  }
  Result<void> product(std::uint16_t* output, const Matrix& a, const Matrix& b,
                       const std::int32_t* row_experts,
                       const GroupedGemm::Shape& shape) const noexcept {
    return gemm.launch(stream, output, a, b, nullptr, row_experts, shape);
  }
};

}  // namespace

Result<MoeGemm> MoeGemm::create(KernelLoader& loader) {
  return guarded([&]() -> Result<MoeGemm> {
    CUKILN_TRY(const DeviceInfo device, detail::hopper_or_later(loader, "nvfp4_moe_gemm"));
    MoeGemm made;
    made.multiprocessors_ = device.num_sms;
    const auto get = [&](Kernel& kernel, const char* module, const char* name,
                         Check check) -> Result<void> {
      CUKILN_TRY(kernel, kernels::shipped_kernel(loader, module, name));
      return check(kernel);
    };
    CUKILN_CHECK(get(made.route_, "nvfp4_moe_route", "moe_route", kCheckRoute));
    CUKILN_CHECK(get(made.combine_, "nvfp4_moe_combine", "moe_combine", kCheckCombine));
    for (std::size_t i = 0; i < kFirstWarpgroupModule; ++i) {
      CUKILN_CHECK(get(made.up_[i], kModules[i].module, kModules[i].up, kCheckUp));
      CUKILN_CHECK(get(made.down_[i], kModules[i].module, kModules[i].down, kCheckDown));
    }
    if (device.capability == kWarpgroupCapability) {
      CUKILN_CHECK(get(made.expand_, "nvfp4_moe_prefill", "moe_expand", kCheckExpand));
      for (std::size_t i = kFirstWarpgroupModule; i < kTileSizes; ++i) {
        CUKILN_CHECK(get(made.up_[i], kModules[i].module, kModules[i].up, kCheckWarpgroupUp));
        CUKILN_CHECK(get(made.down_[i], kModules[i].module, kModules[i].down, kCheckWarpgroupDown));
        CUKILN_CHECK(made.up_[i].reserve_shared(kWarpgroupShared));
        CUKILN_CHECK(made.down_[i].reserve_shared(kWarpgroupShared));
      }
    }
    if (GroupedGemm::runs_on(device.capability)) {
      CUKILN_TRY(made.grouped_, GroupedGemm::create(loader));
      CUKILN_CHECK(get(made.gather_, "nvfp4_moe_grouped", "moe_gather", kCheckGather));
      CUKILN_CHECK(get(made.activate_, "nvfp4_moe_grouped", "moe_activate", kCheckActivate));
      CUKILN_CHECK(
          get(made.combine_rows_, "nvfp4_moe_combine", "moe_combine_rows", kCheckCombineRows));
    }
    return made;
  });
}

namespace {

MoeKernels kernels_for_many(const Kernel& expand, const Kernel& gather) noexcept {
  return expand ? MoeKernels::warpgroups : gather ? MoeKernels::grouped : MoeKernels::skinny;
}

}  // namespace

std::size_t MoeGemm::workspace_bytes(const MoeShape& shape) const noexcept {
  return !route_ || shape.tokens == 0 || !check_moe_shape(shape)
             ? 0
             : moe_plan(filled_in(shape), kernels_for_many(expand_, gather_)).bytes;
}

Result<void> MoeGemm::launch(Stream stream, std::uint16_t* output, const MoeShape& given,
                             const MoeInput& input, const MoeWeights& up, const MoeWeights& down,
                             const float* activation_gsa, GateUpLayout layout,
                             const SwiGlu& activation, void* workspace) const noexcept {
  if (!route_) {
    return kernels::refuse("an empty MoeGemm: make it with MoeGemm::create");
  }
  CUKILN_CHECK(check_moe_shape(given));
  if (!(activation.limit > 0)) {
    return kernels::refuse("limit is {}; a positive number is expected, infinity for no limit",
                           activation.limit);
  }
  if (given.tokens == 0) {
    return {};
  }
  CUKILN_CHECK(kernels::check_pointer("output", output, 16));
  CUKILN_CHECK(kernels::check_pointer("hidden", input.hidden, 16));
  CUKILN_CHECK(kernels::check_pointer("hidden_gsa", input.hidden_gsa, 4));
  CUKILN_CHECK(kernels::check_pointer("topk_ids", input.topk_ids, 4));
  CUKILN_CHECK(kernels::check_pointer("topk_weights", input.topk_weights, 4));
  CUKILN_CHECK(check_weights("up.codes", "up.scales", "up.decode", up));
  CUKILN_CHECK(check_weights("down.codes", "down.scales", "down.decode", down));
  CUKILN_CHECK(kernels::check_pointer("activation_gsa", activation_gsa, 4));
  CUKILN_CHECK(kernels::check_pointer("workspace", workspace, 16));

  const MoeCall call{
      stream, output,         filled_in(given), input,      up,
      down,   activation_gsa, layout,           activation, static_cast<std::uint8_t*>(workspace)};
  const MoePlan plan = moe_plan(call.shape, kernels_for_many(expand_, gather_));
  CUKILN_CHECK(
      run_moe_route(plan, call, multiprocessors_, [&](const MoeGrid& grid, auto... args) noexcept {
        return launch_simple(route_, stream, grid, kSimpleThreads, args...);
      }));
  if (plan.kernels == MoeKernels::grouped) {
    return run_moe_grouped(plan, call, multiprocessors_,
                           GroupedSteps{stream, gather_, activate_, combine_rows_, grouped_});
  }
  const Kernel& up_kernel = up_[size_index(plan)];
  const Kernel& down_kernel = down_[size_index(plan)];
  CUKILN_CHECK(
      plan.kernels == MoeKernels::warpgroups
          ? launch_warpgroups(plan, call, multiprocessors_, expand_, up_kernel, down_kernel)
          : launch_skinny(plan, call, up_kernel, down_kernel));
  const auto hidden = static_cast<std::uint32_t>(given.hidden);
  const MoeGrid grid{static_cast<std::uint32_t>(given.tokens),
                     ceil_div(hidden, 4 * kSimpleThreads)};
  return launch_simple(combine_, stream, grid, kSimpleThreads, output, call.at<float>(plan.partial),
                       input.topk_weights, call.at<std::int32_t>(plan.position_of_slot),
                       static_cast<std::uint32_t>(given.topk), hidden, plan.down_splits);
}

}  // namespace cukiln::nvfp4
