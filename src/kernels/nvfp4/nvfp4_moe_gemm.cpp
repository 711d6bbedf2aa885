#include "driver/tensor_map.hpp"
#include "kernels/checks.hpp"
#include "kernels/nvfp4/gemm_architecture.hpp"
#include "kernels/nvfp4/moe_plan.hpp"
#include "kernels/shipped_kernel.hpp"
#include "loader/loader_impl.hpp"

#include <cukiln/nvfp4_moe.hpp>

namespace cukiln::nvfp4 {
namespace {

constexpr int kLowestCapability = 90;
constexpr int kWarpgroupCapability = 90;  // sm_90a alone

constexpr std::uint32_t kRouteThreads = 256;
constexpr std::uint32_t kSkinnyThreads = 128;
constexpr std::uint32_t kWarpgroupThreads = 384;
constexpr std::uint32_t kWarpgroupShared = 196720;
constexpr std::uint32_t kBlocksPerMultiprocessor = 8;  // of kernels that take what they find

/// {expert, first position, tokens, unused}, of the device alone.
struct Tile;

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
    detail::check_parameters<Tile*, std::uint32_t*, std::uint32_t*, std::int32_t*, std::uint8_t*,
                             std::uint8_t*, const std::uint16_t*, const float*, const std::int32_t*,
                             const std::int32_t*, std::uint32_t, std::uint32_t, std::uint32_t,
                             std::uint32_t, std::uint32_t, std::uint32_t>;
constexpr Check kCheckExpand =
    detail::check_parameters<std::uint8_t*, const std::uint8_t*, const std::uint8_t*,
                             const std::uint32_t*, const std::uint32_t*, std::uint32_t,
                             std::uint32_t>;
constexpr Check kCheckUp =
    detail::check_parameters<std::uint8_t*, std::uint8_t*, const Tile*, const std::uint32_t*,
                             const std::uint32_t*, const std::uint8_t*, const std::uint8_t*,
                             const float*, const std::uint8_t*, const std::uint8_t*, const float*,
                             const float*, std::uint32_t, std::uint32_t, std::uint32_t,
                             std::uint32_t, float, float, float>;
constexpr Check kCheckDown =
    detail::check_parameters<float*, const Tile*, const std::uint32_t*, const std::uint8_t*,
                             const std::uint8_t*, const float*, const std::uint8_t*,
                             const std::uint8_t*, const float*, std::uint32_t, std::uint32_t,
                             std::uint32_t, std::uint32_t>;
constexpr Check kCheckWarpgroupUp =
    detail::check_parameters<std::uint8_t*, std::uint8_t*, const Tile*, const std::uint32_t*,
                             TensorMap, const float*, TensorMap, const std::uint8_t*, const float*,
                             const float*, std::uint32_t, std::uint32_t, std::uint32_t, float,
                             float, float>;
constexpr Check kCheckWarpgroupDown =
    detail::check_parameters<float*, const Tile*, const std::uint32_t*, TensorMap, const float*,
                             TensorMap, const std::uint8_t*, const float*, std::uint32_t,
                             std::uint32_t>;
constexpr Check kCheckCombine =
    detail::check_parameters<std::uint16_t*, const float*, const float*, const std::int32_t*,
                             std::uint32_t, std::uint32_t, std::uint32_t>;

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

std::uint32_t ceil_div(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::uint32_t>((a + b - 1) / b);
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

}  // namespace

Result<MoeGemm> MoeGemm::create(KernelLoader& loader) {
  return guarded([&]() -> Result<MoeGemm> {
    CUKILN_TRY(const auto driver, loader.impl().driver());
    CUKILN_TRY(const auto devices, loader.impl().devices({}));
    if (devices.empty() || devices.front().capability < kLowestCapability) {
      return make_error(
          ErrorCode::incompatible, "nvfp4_moe_gemm runs on compute capability 9.0 and later; {}",
          devices.empty()
              ? "no device is visible"
              : "the first visible device, " + devices.front().name + ", has a lower one");
    }
    int multiprocessors = 0;
    const CUresult result = driver->call.cuDeviceGetAttribute(
        &multiprocessors, kDeviceMultiprocessors, devices.front().ordinal);
    if (result != kCudaSuccess) {
      return driver->error("cuDeviceGetAttribute", result);
    }
    MoeGemm made;
    made.multiprocessors_ = static_cast<std::uint32_t>(multiprocessors);
    const auto get = [&](Kernel& kernel, const char* module, const char* name,
                         Check check) -> Result<void> {
      CUKILN_TRY(kernel, kernels::shipped_kernel(loader, module, name));
      return check(kernel);
    };
    CUKILN_CHECK(get(made.route_, "nvfp4_moe_route", "moe_route", kCheckRoute));
    CUKILN_CHECK(get(made.combine_, "nvfp4_moe_route", "moe_combine", kCheckCombine));
    for (std::size_t i = 0; i < kFirstWarpgroupModule; ++i) {
      CUKILN_CHECK(get(made.up_[i], kModules[i].module, kModules[i].up, kCheckUp));
      CUKILN_CHECK(get(made.down_[i], kModules[i].module, kModules[i].down, kCheckDown));
    }
    if (devices.front().capability == kWarpgroupCapability) {
      CUKILN_CHECK(get(made.expand_, "nvfp4_moe_prefill", "moe_expand", kCheckExpand));
      for (std::size_t i = kFirstWarpgroupModule; i < kTileSizes; ++i) {
        CUKILN_CHECK(get(made.up_[i], kModules[i].module, kModules[i].up, kCheckWarpgroupUp));
        CUKILN_CHECK(get(made.down_[i], kModules[i].module, kModules[i].down, kCheckWarpgroupDown));
        CUKILN_CHECK(made.up_[i].reserve_shared(kWarpgroupShared));
        CUKILN_CHECK(made.down_[i].reserve_shared(kWarpgroupShared));
      }
    }
    return made;
  });
}

std::size_t MoeGemm::workspace_bytes(const MoeShape& shape) const noexcept {
  return !route_ || shape.tokens == 0 || !check_moe_shape(shape)
             ? 0
             : moe_plan(filled_in(shape), static_cast<bool>(expand_)).bytes;
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

  const MoeShape shape = filled_in(given);
  const MoePlan plan = moe_plan(shape, static_cast<bool>(expand_));
  auto* const base = static_cast<std::uint8_t*>(workspace);
  auto* const tiles = reinterpret_cast<Tile*>(base + plan.tiles);
  auto* const tile_count = reinterpret_cast<std::uint32_t*>(base + plan.tile_count);
  auto* const slots = reinterpret_cast<std::uint32_t*>(base + plan.slot_of_position);
  auto* const positions = reinterpret_cast<std::int32_t*>(base + plan.position_of_slot);
  auto* const partial = reinterpret_cast<float*>(base + plan.partial);
  std::uint8_t* const token_codes = base + plan.token_codes;
  std::uint8_t* const token_scales = base + plan.token_scales;
  std::uint8_t* const activation_codes = base + plan.activation_codes;
  std::uint8_t* const activation_scales = base + plan.activation_scales;
  const auto tokens = static_cast<std::uint32_t>(shape.tokens);
  const auto topk = static_cast<std::uint32_t>(shape.topk);
  const auto hidden = static_cast<std::uint32_t>(shape.hidden);
  const auto width = static_cast<std::uint32_t>(shape.width);
  const Kernel& up_kernel = up_[size_index(plan)];
  const Kernel& down_kernel = down_[size_index(plan)];
  const std::uint32_t most_blocks = multiprocessors_ * kBlocksPerMultiprocessor;

  LaunchConfig simple;
  simple.block.x = kRouteThreads;
  simple.grid.x =
      1 + std::min(ceil_div(shape.tokens * (shape.hidden / 16), kRouteThreads), most_blocks);
  CUKILN_CHECK(detail::launch_checked(route_, stream, simple, tiles, tile_count, slots, positions,
                                      token_codes, token_scales, input.hidden, input.hidden_gsa,
                                      input.topk_ids, input.expert_map, tokens, topk, hidden,
                                      static_cast<std::uint32_t>(shape.global_experts),
                                      static_cast<std::uint32_t>(shape.experts), plan.tile_tokens));

  LaunchConfig config;
  if (plan.by_warpgroups) {
    std::uint8_t* const expanded = base + plan.expanded;
    const std::uint32_t* const position_count = tile_count + 1;
    const std::uint32_t* const in_order = nullptr;
    const auto persistent = [&](std::uint32_t row_tiles) {
      config.grid.x = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(multiprocessors_, std::uint64_t{plan.most_tiles} * row_tiles));
    };
    config.block.x = kWarpgroupThreads;
    config.shared_bytes = kWarpgroupShared;

    CUKILN_TRY(
        const TensorMap token_map,
        tensor_map(up_kernel, token_box(expanded, plan.slots, shape.hidden, plan.tile_tokens)));
    CUKILN_TRY(
        const TensorMap up_map,
        tensor_map(up_kernel, code_box(up.codes, shape.experts * 2 * shape.width, shape.hidden)));
    simple.grid.x = std::min(
        ceil_div(std::int64_t{plan.slots} * ceil_div(shape.hidden, 128) * 16, kRouteThreads),
        2 * most_blocks);
    CUKILN_CHECK(detail::launch_checked(expand_, stream, simple, expanded, token_codes,
                                        token_scales, slots, position_count, topk, hidden));
    persistent(width / 64);
    CUKILN_CHECK(detail::launch_checked(
        up_kernel, stream, config, activation_codes, activation_scales, tiles, tile_count,
        token_map, input.hidden_gsa, up_map, up.scales, up.decode, activation_gsa, hidden, width,
        static_cast<std::uint32_t>(layout), activation.limit, activation.alpha, activation.beta));

    CUKILN_TRY(
        const TensorMap activation_map,
        tensor_map(down_kernel, token_box(expanded, plan.slots, shape.width, plan.tile_tokens)));
    CUKILN_TRY(
        const TensorMap down_map,
        tensor_map(down_kernel, code_box(down.codes, shape.experts * shape.hidden, shape.width)));
    simple.grid.x = std::min(
        ceil_div(std::int64_t{plan.slots} * ceil_div(shape.width, 128) * 16, kRouteThreads),
        2 * most_blocks);
    CUKILN_CHECK(detail::launch_checked(expand_, stream, simple, expanded, activation_codes,
                                        activation_scales, in_order, position_count, topk, width));
    persistent(ceil_div(shape.hidden, 128));
    CUKILN_CHECK(detail::launch_checked(down_kernel, stream, config, partial, tiles, tile_count,
                                        activation_map, activation_gsa, down_map, down.scales,
                                        down.decode, hidden, width));
  } else {
    config.block.x = kSkinnyThreads;
    config.cluster = {2 * plan.up_splits, 1, 1};
    config.grid = {ceil_div(shape.width, 128) * 2 * plan.up_splits, plan.most_tiles, 1};
    CUKILN_CHECK(detail::launch_checked(
        up_kernel, stream, config, activation_codes, activation_scales, tiles, tile_count, slots,
        token_codes, token_scales, input.hidden_gsa, up.codes, up.scales, up.decode, activation_gsa,
        topk, hidden, width, static_cast<std::uint32_t>(layout), activation.limit, activation.alpha,
        activation.beta));
    config.cluster = {0, 0, 0};
    config.grid = {ceil_div(shape.hidden, 128) * plan.down_splits, plan.most_tiles, 1};
    CUKILN_CHECK(detail::launch_checked(down_kernel, stream, config, partial, tiles, tile_count,
                                        activation_codes, activation_scales, activation_gsa,
                                        down.codes, down.scales, down.decode, plan.slots, hidden,
                                        width, plan.down_splits));
  }

  simple.grid = {tokens, ceil_div(shape.hidden, 4 * kRouteThreads), 1};
  return detail::launch_checked(combine_, stream, simple, output, partial, input.topk_weights,
                                positions, topk, hidden, plan.down_splits);
}

}  // namespace cukiln::nvfp4
