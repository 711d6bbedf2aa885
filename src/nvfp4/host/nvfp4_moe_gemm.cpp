// SPDX-License-Identifier: Apache-2.0
#include <cassert>
#include <memory>
#include <utility>

#include "nvfp4/host/device_kernels.hpp"
#include "nvfp4/host/moe_checks.hpp"
#include "nvfp4/host/moe_grouped_launch.hpp"

#include <cukiln/nvfp4/moe.hpp>
#include <cukiln/tensor_map.hpp>

#include "kernels_src/nvfp4/moe_grouped_signatures.cuh"  // after TensorMap
#include "kernels_src/nvfp4/moe_prefill_signatures.cuh"
#include "kernels_src/nvfp4/moe_signatures.cuh"

namespace cukiln::nvfp4 {
namespace {

using kernels::DeviceKernels;

using Route = kernels::KernelSignature<signatures::MoeRoute>;
using QuantizeRows = kernels::KernelSignature<signatures::MoeQuantizeRows>;
using Expand = kernels::KernelSignature<signatures::MoeExpand>;
using Up = kernels::KernelSignature<signatures::MoeUp>;
using Down = kernels::KernelSignature<signatures::MoeDown>;
using WarpgroupUp = kernels::KernelSignature<signatures::MoePrefillUp>;
using WarpgroupDown = kernels::KernelSignature<signatures::MoePrefillDown>;
using W4a16Gather = kernels::KernelSignature<signatures::MoeW4a16Gather>;
using W4a16Up = kernels::KernelSignature<signatures::MoeW4a16Up>;
using W4a16Down = kernels::KernelSignature<signatures::MoeW4a16Down>;
using W4a16WarpgroupUp = kernels::KernelSignature<signatures::MoeW4a16PrefillUp>;
using W4a16WarpgroupDown = kernels::KernelSignature<signatures::MoeW4a16PrefillDown>;
using Combine = kernels::KernelSignature<signatures::MoeCombine>;
using RouteRows = kernels::KernelSignature<signatures::MoeRouteRows>;
using GroupedUp = kernels::KernelSignature<signatures::MoeGroupedUp>;
using CombineRows = kernels::KernelSignature<signatures::MoeCombineRows>;

constexpr int kWarpgroupCapability = 90;  // sm_90a alone

constexpr std::uint32_t kSimpleThreads = 256;  // of kernels that copy, sort or add up
constexpr std::uint32_t kRouteRowsThreads = 512;
constexpr std::uint32_t kSortedSlots = 64;  // by each thread block of moe_route that sorts
constexpr std::uint32_t kQuantizeRowsThreads = 128;
constexpr std::uint32_t kSkinnyThreads = 128;

struct TileModule {
  const char* module;
  const char* up;
  const char* down;
  // Only for persistent kernels.
  std::uint32_t shared_bytes = 0;  ///< dynamic shared memory of both
  std::uint32_t threads = 0;
  std::uint32_t weight_rows = 0;  ///< of a tile, which has two boxes of them
};
/// In the order of 8, 16, 32, 64 and 128 tokens; the last two need warpgroup MMA. W4A4, W4A16.
constexpr std::size_t kMoeTileSizes = 5;
constexpr TileModule kModules[2][kMoeTileSizes] = {
    {
        {"nvfp4_moe_gemm", "moe_up", "moe_down"},
        {"nvfp4_moe_gemm_16", "moe_up", "moe_down"},
        {"nvfp4_moe_gemm_32", "moe_up", "moe_down"},
        {"nvfp4_moe_prefill_64", "moe_prefill_up", "moe_prefill_down", 219216, 640, 256},
        {"nvfp4_moe_prefill", "moe_prefill_up", "moe_prefill_down", 207936, 384, 128},
    },
    {
        {"nvfp4_moe_w4a16", "moe_w4a16_up", "moe_w4a16_down"},
        {"nvfp4_moe_w4a16_16", "moe_w4a16_up", "moe_w4a16_down"},
        {"nvfp4_moe_w4a16_32", "moe_w4a16_up", "moe_w4a16_down"},
        {"nvfp4_moe_w4a16_prefill_64", "moe_w4a16_prefill_up", "moe_w4a16_prefill_down", 219216,
         640, 256},
        {"nvfp4_moe_w4a16_prefill", "moe_w4a16_prefill_up", "moe_w4a16_prefill_down", 207936, 384,
         128},
    }};
constexpr std::size_t kFirstWarpgroupModule = 3;
constexpr const char* kGroupedModule = "nvfp4_moe_grouped";

std::size_t module_index(const MoePlan& plan) noexcept {
  assert(plan.kernels != MoeKernels::grouped);
  std::size_t index = 0;
  while ((std::uint32_t{8} << index) < plan.tile_tokens) {
    ++index;
  }
  return index;
}

/// The kernels of a device for many tokens.
MoeKernels kernels_for_many(int capability) noexcept {
  return capability == kWarpgroupCapability ? MoeKernels::warpgroups
         : GroupedGemm::runs_on(capability) ? MoeKernels::grouped
                                            : MoeKernels::skinny;
}

MoeShape filled_in(MoeShape shape) noexcept {
  if (shape.global_experts == 0) {
    shape.global_experts = shape.experts;
  }
  return shape;
}

/// fp16 [slots, columns], as moe_expand writes it, or bf16, in boxes of `tokens`.
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

/// The packed data of all experts' rows, in boxes of `rows`.
TensorBox weight_box(const MoeWeights& weights, std::uint32_t rows) noexcept {
  TensorBox box;
  box.data = weights.data;
  box.size[0] = static_cast<std::uint64_t>(weights.columns / 2);
  box.size[1] = static_cast<std::uint64_t>(weights.experts * weights.rows);
  box.stride[0] = box.size[0];
  box.box[0] = 64;
  box.box[1] = rows;
  box.fetches_256_bytes = true;
  return box;
}

LaunchConfig simple_config(const MoeGrid& grid, std::uint32_t threads) noexcept {
  LaunchConfig config;
  config.grid = {grid.x, grid.y, 1};
  config.block.x = threads;
  return config;
}

/// The launch of a kernel that waits for what it reads, and so may start early.
LaunchConfig early_config(const MoeGrid& grid, std::uint32_t threads = kSimpleThreads) noexcept {
  LaunchConfig config = simple_config(grid, threads);
  config.programmatic_launch = true;
  return config;
}

/// moe_route, which only sorts with W4A16. Each thread block that sorts reads all of topk_ids, and
/// places its share of the slots.
Result<void> launch_route(const MoePlan& plan, const MoeCall& call, std::uint32_t num_sms,
                          const Kernel& kernel) noexcept {
  const MoeShape& shape = call.shape;
  const std::int64_t blocks = shape.w4a16 ? 0 : shape.tokens * (shape.hidden / 16);
  const std::uint32_t sorters = std::min(ceil_div(plan.slots, kSortedSlots), num_sms);
  const MoeGrid grid{sorters + std::min(ceil_div(blocks, kSimpleThreads), 8 * num_sms)};
  return Route::launch(
      kernel, call.stream, early_config(grid), call.at<MoeTile>(plan.tiles),
      call.at<std::uint32_t>(plan.tile_count), call.at<std::uint32_t>(plan.slot_of_position),
      call.at<std::int32_t>(plan.position_of_slot), call.at<std::uint8_t>(plan.token_data),
      call.at<std::uint8_t>(plan.token_scales), call.input.hidden.data_as<const std::uint16_t>(),
      shape.w4a16 ? nullptr : &call.input.hidden_scale->encode,
      call.input.topk_ids.data_as<const std::int32_t>(),
      call.layer.expert_map.data_as<const std::int32_t>(), static_cast<std::uint32_t>(shape.tokens),
      static_cast<std::uint32_t>(shape.topk), static_cast<std::uint32_t>(shape.hidden),
      static_cast<std::uint32_t>(shape.global_experts), static_cast<std::uint32_t>(shape.experts),
      plan.tile_tokens, sorters);
}

/// What lies between the GEMMs, as their kernels take it: the scale of all rows, or null and what
/// moe_quantize_rows makes of rows in bf16. W4A16 has no scale.
struct Activations {
  std::uint8_t* first_output;  ///< of the first GEMM
  const float* scale;          ///< {encode, decode}
  const float* row_decode;     ///< of each row

  Activations(const MoePlan& plan, const MoeCall& call) noexcept {
    const bool dynamic = call.shape.dynamic_activation_scale;
    first_output = call.at<std::uint8_t>(dynamic ? plan.activation_rows : plan.activation_data);
    scale = dynamic || call.shape.w4a16 ? nullptr : &call.layer.activation_scale->encode;
    row_decode = dynamic ? call.at<float>(plan.activation_decode) : nullptr;
  }
};

/// Quantises rows whose scale is dynamic; else the first GEMM has done so.
Result<void> quantize_rows(const MoePlan& plan, const MoeCall& call, std::uint32_t num_sms,
                           const Kernel& kernel) noexcept {
  if (!call.shape.dynamic_activation_scale) {
    return {};
  }
  const MoeGrid grid{std::min(plan.slots, 16 * num_sms)};
  return QuantizeRows::launch(
      kernel, call.stream, early_config(grid, kQuantizeRowsThreads),
      call.at<std::uint8_t>(plan.activation_data), call.at<std::uint8_t>(plan.activation_scales),
      call.at<float>(plan.activation_decode), call.at<std::uint16_t>(plan.activation_rows),
      call.at<std::uint32_t>(plan.tile_count) + 1, static_cast<std::uint32_t>(call.shape.width));
}

LaunchConfig skinny_up_config(const MoePlan& plan, const MoeShape& shape) noexcept {
  LaunchConfig config;
  config.block.x = kSkinnyThreads;
  config.cluster = {2 * plan.up_splits, 1, 1};
  config.grid = {ceil_div(shape.width, 128) * 2 * plan.up_splits, plan.max_tiles, 1};
  config.programmatic_launch = true;  // the kernels wait for what they read
  return config;
}

LaunchConfig skinny_down_config(const MoePlan& plan, const MoeShape& shape) noexcept {
  LaunchConfig config;
  config.block.x = kSkinnyThreads;
  config.grid = {ceil_div(shape.hidden, 128) * plan.down_splits, plan.max_tiles, 1};
  config.programmatic_launch = true;
  return config;
}

/// The kernels of nvfp4_moe_gemm.cu.
Result<void> launch_skinny(const MoePlan& plan, const MoeCall& call, std::uint32_t num_sms,
                           const Kernel& up_kernel, const Kernel& quantize_kernel,
                           const Kernel& down_kernel) noexcept {
  const MoeShape& shape = call.shape;
  const MoeLayer& layer = call.layer;
  const Activations between(plan, call);
  auto* const tiles = call.at<MoeTile>(plan.tiles);
  auto* const tile_count = call.at<std::uint32_t>(plan.tile_count);
  auto* const activation_data = call.at<std::uint8_t>(plan.activation_data);
  auto* const activation_scales = call.at<std::uint8_t>(plan.activation_scales);
  const auto hidden = static_cast<std::uint32_t>(shape.hidden);
  const auto width = static_cast<std::uint32_t>(shape.width);
  CUKILN_CHECK(Up::launch(
      up_kernel, call.stream, skinny_up_config(plan, shape), between.first_output,
      activation_scales, tiles, tile_count, call.at<std::uint32_t>(plan.slot_of_position),
      call.at<std::uint8_t>(plan.token_data), call.at<std::uint8_t>(plan.token_scales),
      &call.input.hidden_scale->encode, layer.up.data, layer.up.scales, layer.up.decode,
      layer.up.bias, between.scale, static_cast<std::uint32_t>(shape.topk), hidden, width,
      static_cast<std::uint32_t>(layer.layout), layer.activation.limit, layer.activation.alpha,
      layer.activation.beta));
  CUKILN_CHECK(quantize_rows(plan, call, num_sms, quantize_kernel));
  return Down::launch(down_kernel, call.stream, skinny_down_config(plan, shape),
                      call.at<float>(plan.partial), tiles, tile_count, activation_data,
                      activation_scales, between.scale, between.row_decode, layer.down.data,
                      layer.down.scales, layer.down.decode, layer.down.bias, plan.slots, hidden,
                      width, plan.down_splits);
}

/// The kernels of nvfp4_moe_w4a16.cu.
Result<void> launch_w4a16_skinny(const MoePlan& plan, const MoeCall& call, const Kernel& up_kernel,
                                 const Kernel& down_kernel) noexcept {
  const MoeShape& shape = call.shape;
  const MoeLayer& layer = call.layer;
  auto* const tiles = call.at<MoeTile>(plan.tiles);
  auto* const tile_count = call.at<std::uint32_t>(plan.tile_count);
  auto* const activations = call.at<std::uint16_t>(plan.activation_data);
  const auto hidden = static_cast<std::uint32_t>(shape.hidden);
  const auto width = static_cast<std::uint32_t>(shape.width);
  CUKILN_CHECK(W4a16Up::launch(up_kernel, call.stream, skinny_up_config(plan, shape), activations,
                               tiles, tile_count, call.at<std::uint32_t>(plan.slot_of_position),
                               call.input.hidden.data_as<const std::uint16_t>(), layer.up.data,
                               layer.up.scales, layer.up.decode, layer.up.bias,
                               static_cast<std::uint32_t>(shape.topk), hidden, width,
                               static_cast<std::uint32_t>(layer.layout), layer.activation.limit,
                               layer.activation.alpha, layer.activation.beta));
  return W4a16Down::launch(down_kernel, call.stream, skinny_down_config(plan, shape),
                           call.at<float>(plan.partial), tiles, tile_count, activations,
                           layer.down.data, layer.down.scales, layer.down.decode, layer.down.bias,
                           plan.slots, hidden, width, plan.down_splits);
}

/// The kernels of nvfp4_moe_prefill.cu, for one launch.
class WarpgroupSteps {
 public:
  WarpgroupSteps(const MoePlan& plan, const MoeCall& call, std::uint32_t num_sms) noexcept
      : plan_(plan),
        call_(call),
        between_(plan, call),
        module_(kModules[call.shape.w4a16 ? 1 : 0][module_index(plan)]),
        num_sms_(num_sms) {}

  /// Tokens or activations to fp16. `slots`: null for rows in order.
  Result<void> expand(const Kernel& kernel, const std::uint8_t* data, const std::uint8_t* scales,
                      const std::uint32_t* slots, std::int64_t columns) const noexcept {
    const MoeGrid grid{
        std::min(ceil_div(std::int64_t{plan_.slots} * ceil_div(columns, 128) * 16, kSimpleThreads),
                 16 * num_sms_)};
    const std::uint32_t* const position_count = tile_count() + 1;
    return Expand::launch(kernel, call_.stream, early_config(grid), expanded(), data, scales, slots,
                          position_count, static_cast<std::uint32_t>(call_.shape.topk),
                          static_cast<std::uint32_t>(columns));
  }

  Result<void> up(const Kernel& kernel) const noexcept {
    const MoeShape& shape = call_.shape;
    const MoeLayer& layer = call_.layer;
    CUKILN_TRY(const TensorMap tokens, token_map(kernel, expanded(), shape.hidden));
    CUKILN_TRY(const TensorMap weights,
               tensor_map(kernel, weight_box(layer.up, module_.weight_rows / 2)));
    return WarpgroupUp::launch(
        kernel, call_.stream, persistent(2 * shape.width), between_.first_output,
        activation_scales(), tiles(), tile_count(), tokens, &call_.input.hidden_scale->encode,
        weights, layer.up.scales, layer.up.decode, layer.up.bias, between_.scale,
        static_cast<std::uint32_t>(shape.hidden), static_cast<std::uint32_t>(shape.width),
        static_cast<std::uint32_t>(layer.layout), layer.activation.limit, layer.activation.alpha,
        layer.activation.beta);
  }

  Result<void> down(const Kernel& kernel) const noexcept {
    const MoeShape& shape = call_.shape;
    const MoeLayer& layer = call_.layer;
    CUKILN_TRY(const TensorMap activations, token_map(kernel, expanded(), shape.width));
    CUKILN_TRY(const TensorMap weights,
               tensor_map(kernel, weight_box(layer.down, module_.weight_rows / 2)));
    return WarpgroupDown::launch(
        kernel, call_.stream, persistent(shape.hidden), call_.at<std::uint16_t>(plan_.gemm_output),
        tiles(), tile_count(), activations, between_.scale, between_.row_decode, weights,
        layer.down.scales, layer.down.decode, layer.down.bias,
        static_cast<std::uint32_t>(shape.hidden), static_cast<std::uint32_t>(shape.width));
  }

  /// Tokens to rows in the order of positions. W4A16, as the two below.
  Result<void> gather(const Kernel& kernel) const noexcept {
    const std::int64_t hidden = call_.shape.hidden;
    const MoeGrid grid{
        std::min(ceil_div(std::int64_t{plan_.slots} * ceil_div(hidden, 128) * 16, kSimpleThreads),
                 16 * num_sms_)};
    return W4a16Gather::launch(
        kernel, call_.stream, early_config(grid), call_.at<std::uint16_t>(plan_.expanded),
        call_.input.hidden.data_as<const std::uint16_t>(),
        call_.at<std::uint32_t>(plan_.slot_of_position), tile_count() + 1,
        static_cast<std::uint32_t>(call_.shape.topk), static_cast<std::uint32_t>(hidden));
  }

  Result<void> w4a16_up(const Kernel& kernel) const noexcept {
    const MoeShape& shape = call_.shape;
    const MoeLayer& layer = call_.layer;
    CUKILN_TRY(const TensorMap tokens, token_map(kernel, expanded(), shape.hidden));
    CUKILN_TRY(const TensorMap weights,
               tensor_map(kernel, weight_box(layer.up, module_.weight_rows / 2)));
    return W4a16WarpgroupUp::launch(
        kernel, call_.stream, persistent(2 * shape.width),
        call_.at<std::uint16_t>(plan_.activation_data), tiles(), tile_count(), tokens, weights,
        layer.up.scales, layer.up.decode, layer.up.bias, static_cast<std::uint32_t>(shape.hidden),
        static_cast<std::uint32_t>(shape.width), static_cast<std::uint32_t>(layer.layout),
        layer.activation.limit, layer.activation.alpha, layer.activation.beta);
  }

  Result<void> w4a16_down(const Kernel& kernel) const noexcept {
    const MoeShape& shape = call_.shape;
    const MoeLayer& layer = call_.layer;
    CUKILN_TRY(const TensorMap activations, token_map(kernel, activation_data(), shape.width));
    CUKILN_TRY(const TensorMap weights,
               tensor_map(kernel, weight_box(layer.down, module_.weight_rows / 2)));
    return W4a16WarpgroupDown::launch(
        kernel, call_.stream, persistent(shape.hidden), call_.at<std::uint16_t>(plan_.gemm_output),
        tiles(), tile_count(), activations, weights, layer.down.scales, layer.down.decode,
        layer.down.bias, static_cast<std::uint32_t>(shape.hidden),
        static_cast<std::uint32_t>(shape.width));
  }

  std::uint8_t* activation_data() const noexcept {
    return call_.at<std::uint8_t>(plan_.activation_data);
  }
  std::uint8_t* activation_scales() const noexcept {
    return call_.at<std::uint8_t>(plan_.activation_scales);
  }

 private:
  MoeTile* tiles() const noexcept { return call_.at<MoeTile>(plan_.tiles); }
  std::uint32_t* tile_count() const noexcept { return call_.at<std::uint32_t>(plan_.tile_count); }
  std::uint32_t* expanded() const noexcept { return call_.at<std::uint32_t>(plan_.expanded); }

  Result<TensorMap> token_map(const Kernel& kernel, const void* rows,
                              std::int64_t columns) const noexcept {
    return tensor_map(kernel,
                      token_box(rows, plan_.slots, columns, moe_box_tokens(plan_.tile_tokens)));
  }

  /// A thread block on each SM, or one for each tile where there are fewer.
  LaunchConfig persistent(std::int64_t weight_rows) const noexcept {
    LaunchConfig config;
    config.block.x = module_.threads;
    config.shared_bytes = module_.shared_bytes;
    config.programmatic_launch = true;
    config.grid.x = static_cast<std::uint32_t>(
        std::min(std::uint64_t{num_sms_},
                 std::uint64_t{plan_.max_tiles} * ceil_div(weight_rows, module_.weight_rows)));
    return config;
  }

  const MoePlan& plan_;
  const MoeCall& call_;
  Activations between_;
  const TileModule& module_;
  std::uint32_t num_sms_;
};

Result<void> launch_warpgroups(const MoePlan& plan, const MoeCall& call, std::uint32_t num_sms,
                               const Kernel& expand_kernel, const Kernel& up_kernel,
                               const Kernel& quantize_kernel, const Kernel& down_kernel) noexcept {
  const WarpgroupSteps steps(plan, call, num_sms);
  CUKILN_CHECK(steps.expand(expand_kernel, call.at<std::uint8_t>(plan.token_data),
                            call.at<std::uint8_t>(plan.token_scales),
                            call.at<std::uint32_t>(plan.slot_of_position), call.shape.hidden));
  CUKILN_CHECK(steps.up(up_kernel));
  CUKILN_CHECK(quantize_rows(plan, call, num_sms, quantize_kernel));
  CUKILN_CHECK(steps.expand(expand_kernel, steps.activation_data(), steps.activation_scales(),
                            nullptr, call.shape.width));
  return steps.down(down_kernel);
}

Result<void> launch_w4a16_warpgroups(const MoePlan& plan, const MoeCall& call,
                                     std::uint32_t num_sms, const Kernel& gather_kernel,
                                     const Kernel& up_kernel, const Kernel& down_kernel) noexcept {
  const WarpgroupSteps steps(plan, call, num_sms);
  CUKILN_CHECK(steps.gather(gather_kernel));
  CUKILN_CHECK(steps.w4a16_up(up_kernel));
  return steps.w4a16_down(down_kernel);
}

/// The steps of run_moe_grouped, on a device.
struct GroupedSteps {
  Stream stream;
  const Kernel& route_kernel;
  const Kernel& up_kernel;
  const Kernel& up_dynamic_kernel;
  const Kernel& combine_kernel;
  const GroupedGemm& grouped_gemm;

  template <class... Args>
  Result<void> route(const MoeGrid& grid, Args... args) const noexcept {
    return RouteRows::launch(route_kernel, stream, early_config(grid, kRouteRowsThreads), args...);
  }
  template <class... Args>
  Result<void> up(const Sm100Plan& plan, std::uint8_t* data, std::uint8_t* scales,
                  Args... args) const noexcept {
    const Kernel& kernel = plan.kernel == &kMoeGroupedUpDynamic ? up_dynamic_kernel : up_kernel;
    return launch_grouped_up(plan, kernel, [&](const LaunchConfig& config, const auto&... maps) {
      return GroupedUp::launch(kernel, stream, config, data, scales, maps..., args...);
    });
  }
  template <class... Args>
  Result<void> combine(const MoeGrid& grid, Args... args) const noexcept {
    return CombineRows::launch(combine_kernel, stream, early_config(grid), args...);
  }
  Result<void> gemm(const MutableMatrixView& output, const QuantizedMatrix& a,
                    const QuantizedMatrix& b, const VectorView& row_experts,
                    const GroupedGemmOptions& options) const noexcept {
    return grouped_gemm.launch(stream, output, a, b, row_experts, options);
  }
};

/// Loads the kernels of all tiles of one format.
template <class SkinnyUp, class SkinnyDown, class ManyUp, class ManyDown>
Result<void> load_tiles(const DeviceKernels& kernels, const TileModule (&modules)[kMoeTileSizes],
                        Kernel* up, Kernel* down) noexcept {
  const auto load = [&](std::size_t i, auto check_up, auto check_down) -> Result<void> {
    const TileModule& tile = modules[i];
    CUKILN_TRY(up[i], kernels.get_unless_sealed(tile.module, tile.up, check_up, tile.shared_bytes));
    CUKILN_TRY(down[i],
               kernels.get_unless_sealed(tile.module, tile.down, check_down, tile.shared_bytes));
    return {};
  };
  for (std::size_t i = 0; i < kFirstWarpgroupModule; ++i) {
    CUKILN_CHECK(load(i, SkinnyUp::check, SkinnyDown::check));
  }
  if (kernels.info().capability != kWarpgroupCapability) {
    return {};
  }
  for (std::size_t i = kFirstWarpgroupModule; i < kMoeTileSizes; ++i) {
    CUKILN_CHECK(load(i, ManyUp::check, ManyDown::check));
  }
  return {};
}

}  // namespace

struct MoeGemm::Impl {
  kernels::LaunchDevice device;
  MoeKernels for_many = MoeKernels::skinny;
  Kernel route;
  Kernel quantize_rows;
  Kernel expand;  // empty where there is no warpgroup MMA, as the last two of each format below
  Kernel w4a16_gather;
  Kernel up[2][kMoeTileSizes];  // W4A4, W4A16
  Kernel down[2][kMoeTileSizes];
  Kernel combine;
  Kernel combine_rows;
  // Empty but on devices of GroupedGemm.
  Kernel route_rows;
  Kernel grouped_up;
  Kernel grouped_up_dynamic;
  GroupedGemm grouped;
};

ModuleNames MoeGemm::modules(int capability, const MoeShape& most) {
  constexpr std::uint32_t kAnySms = 132;  // they change how K is split, and no module
  ModuleNames names = {"nvfp4_moe_route", "nvfp4_moe_combine"};
  const MoeKernels for_many = kernels_for_many(capability);
  MoeShape shape = filled_in(most);
  for (; shape.tokens > 0; --shape.tokens) {
    if (!check_moe_shape(shape)) {
      continue;  // launch refuses it
    }
    const MoePlan plan = moe_plan(shape, for_many, kAnySms);
    if (plan.kernels == MoeKernels::grouped) {
      names.insert({kGroupedModule, kMoeGroupedUp.module, kMoeGroupedUpDynamic.module,
                    kSm100Kernels[kSm100Grouped].module});
      continue;
    }
    const auto& modules = kModules[shape.w4a16 ? 1 : 0];
    names.insert(modules[module_index(plan)].module);
    if (plan.kernels == MoeKernels::warpgroups) {
      names.insert(modules[kMoeTileSizes - 1].module);  // moe_expand's, moe_w4a16_gather's
    }
  }
  return names;
}

Result<MoeGemm> MoeGemm::create(KernelLoader& loader, int device) {
  return guarded([&]() -> Result<MoeGemm> {
    CUKILN_TRY(const DeviceKernels kernels, DeviceKernels::open(loader, device));
    CUKILN_CHECK(detail::check_hopper_or_later(kernels.info(), "nvfp4_moe_gemm"));
    const auto impl = std::make_shared<Impl>();
    impl->for_many = kernels_for_many(kernels.info().capability);
    CUKILN_TRY(impl->route, kernels.get<Route>("nvfp4_moe_route", "moe_route"));
    CUKILN_TRY(impl->quantize_rows,
               kernels.get<QuantizeRows>("nvfp4_moe_route", "moe_quantize_rows"));
    CUKILN_TRY(impl->combine, kernels.get<Combine>("nvfp4_moe_combine", "moe_combine"));
    CUKILN_TRY(impl->combine_rows,
               kernels.get<CombineRows>("nvfp4_moe_combine", "moe_combine_rows"));
    CUKILN_CHECK((load_tiles<Up, Down, WarpgroupUp, WarpgroupDown>(kernels, kModules[0],
                                                                   impl->up[0], impl->down[0])));
    CUKILN_CHECK((load_tiles<W4a16Up, W4a16Down, W4a16WarpgroupUp, W4a16WarpgroupDown>(
        kernels, kModules[1], impl->up[1], impl->down[1])));
    const auto get = [&](const char* module, const char* kernel, auto check,
                         std::uint32_t shared_bytes = 0) {
      return kernels.get_unless_sealed(module, kernel, check, shared_bytes);
    };
    if (impl->for_many == MoeKernels::warpgroups) {
      CUKILN_TRY(impl->expand,
                 get(kModules[0][kMoeTileSizes - 1].module, "moe_expand", Expand::check));
      CUKILN_TRY(impl->w4a16_gather, get(kModules[1][kMoeTileSizes - 1].module, "moe_w4a16_gather",
                                         W4a16Gather::check));
    }
    if (impl->for_many == MoeKernels::grouped) {
      CUKILN_TRY(impl->route_rows, get(kGroupedModule, "moe_route_rows", RouteRows::check));
      for (const auto& [kernel, wanted] :
           {std::pair(&impl->grouped_up, &kMoeGroupedUp),
            std::pair(&impl->grouped_up_dynamic, &kMoeGroupedUpDynamic)}) {
        CUKILN_TRY(*kernel,
                   get(wanted->module, wanted->name, GroupedUp::check, wanted->shared_bytes));
      }
      if (impl->route_rows) {
        CUKILN_TRY(impl->grouped, GroupedGemm::create(loader, device));
      }
    }
    impl->device = kernels.device();
    MoeGemm made;
    made.impl_ = impl;
    return made;
  });
}

std::size_t MoeGemm::workspace_bytes(const MoeShape& shape) const noexcept {
  return !impl_ || shape.tokens == 0 || !check_moe_shape(shape)
             ? 0
             : moe_plan(filled_in(shape), impl_->for_many, impl_->device.num_sms).total_bytes;
}

std::size_t MoeGemm::max_workspace_bytes(const MoeShape& shape) const noexcept {
  return !impl_ || shape.tokens == 0 || !check_moe_shape(shape)
             ? 0
             : moe_max_bytes(filled_in(shape), impl_->for_many, impl_->device.num_sms);
}

Result<void> MoeGemm::launch(Stream stream, const MutableMatrixView& output, const MoeInput& input,
                             const MoeLayer& layer, const Workspace& workspace) const noexcept {
  CUKILN_CHECK(kernels::check_launch_device("MoeGemm", impl_.get()));
  const Impl& impl = *impl_;
  CUKILN_CHECK(check_moe_shape(layer.shape(input.hidden.rows, input.topk_ids.columns)));
  CUKILN_CHECK(check_swiglu(layer.activation));
  const MoeShape shape = filled_in(layer.shape(input.hidden.rows, input.topk_ids.columns));
  if (shape.tokens == 0) {
    return {};
  }
  CUKILN_CHECK(check_moe_input(output, input, shape));
  CUKILN_CHECK(check_layer(layer, shape));
  const MoePlan plan = moe_plan(shape, impl.for_many, impl.device.num_sms);
  CUKILN_CHECK(check_workspace(workspace, plan.total_bytes, 16));

  const MoeCall call{stream, output.data_as<std::uint16_t>(),           shape, input,
                     layer,  static_cast<std::uint8_t*>(workspace.data)};
  if (plan.kernels == MoeKernels::grouped) {
    CUKILN_CHECK(kernels::check_ready(impl.route_rows, shape.tokens));
    return run_moe_grouped(plan, call, impl.device.num_sms,
                           GroupedSteps{stream, impl.route_rows, impl.grouped_up,
                                        impl.grouped_up_dynamic, impl.combine_rows, impl.grouped});
  }
  const Kernel& up_kernel = impl.up[shape.w4a16 ? 1 : 0][module_index(plan)];
  const Kernel& down_kernel = impl.down[shape.w4a16 ? 1 : 0][module_index(plan)];
  CUKILN_CHECK(kernels::check_ready(up_kernel, shape.tokens));
  CUKILN_CHECK(launch_route(plan, call, impl.device.num_sms, impl.route));
  const auto hidden = static_cast<std::uint32_t>(shape.hidden);
  const auto topk = static_cast<std::uint32_t>(shape.topk);
  const auto tokens = static_cast<std::uint32_t>(shape.tokens);
  const auto* const topk_weights = input.topk_weights.data_as<const float>();
  auto* const positions = call.at<std::int32_t>(plan.position_of_slot);
  if (plan.kernels == MoeKernels::warpgroups) {
    CUKILN_CHECK(shape.w4a16 ? launch_w4a16_warpgroups(plan, call, impl.device.num_sms,
                                                       impl.w4a16_gather, up_kernel, down_kernel)
                             : launch_warpgroups(plan, call, impl.device.num_sms, impl.expand,
                                                 up_kernel, impl.quantize_rows, down_kernel));
    return CombineRows::launch(impl.combine_rows, stream,
                               early_config({tokens, ceil_div(hidden, 8 * kSimpleThreads)}),
                               call.output, call.at<std::uint16_t>(plan.gemm_output), topk_weights,
                               positions, topk, hidden);
  }
  CUKILN_CHECK(shape.w4a16 ? launch_w4a16_skinny(plan, call, up_kernel, down_kernel)
                           : launch_skinny(plan, call, impl.device.num_sms, up_kernel,
                                           impl.quantize_rows, down_kernel));
  return Combine::launch(impl.combine, stream,
                         early_config({tokens, ceil_div(hidden, 4 * kSimpleThreads)}), call.output,
                         call.at<float>(plan.partial), topk_weights, positions, topk, hidden,
                         plan.down_splits);
}

}  // namespace cukiln::nvfp4
