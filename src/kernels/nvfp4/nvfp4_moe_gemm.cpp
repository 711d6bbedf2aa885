#include "kernels/checks.hpp"
#include "kernels/nvfp4/moe_plan.hpp"
#include "kernels/shipped_kernel.hpp"

#include <cukiln/nvfp4_moe.hpp>

namespace cukiln::nvfp4 {
namespace {

constexpr std::uint32_t kRouteThreads = 256;
constexpr std::uint32_t kGemmThreads = 128;
constexpr std::uint32_t kTileRows = 128;
constexpr std::int64_t kMaxQuantizeBlocks = 1056;  // eight for each of an H200's multiprocessors

/// The modules of 8, 16 and 32 tokens to a tile.
constexpr const char* kGemmModules[] = {"nvfp4_moe_gemm", "nvfp4_moe_gemm_16", "nvfp4_moe_gemm_32"};

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

std::uint32_t blocks_of_rows(std::int64_t rows) noexcept {
  return static_cast<std::uint32_t>((rows + kTileRows - 1) / kTileRows);
}

}  // namespace

Result<MoeGemm> MoeGemm::create(KernelLoader& loader) {
  return guarded([&]() -> Result<MoeGemm> {
    MoeGemm made;
    const auto get = [&](auto& kernel, const char* module, const char* name) -> Result<void> {
      CUKILN_TRY(const Kernel found, kernels::shipped_kernel(loader, module, name));
      CUKILN_TRY(kernel, std::decay_t<decltype(kernel)>::from(found));
      return {};
    };
    CUKILN_CHECK(get(made.route_, "nvfp4_moe_route", "moe_route"));
    CUKILN_CHECK(get(made.combine_, "nvfp4_moe_route", "moe_combine"));
    for (std::size_t i = 0; i < kTileSizes; ++i) {
      CUKILN_CHECK(get(made.up_[i], kGemmModules[i], "moe_up"));
      CUKILN_CHECK(get(made.down_[i], kGemmModules[i], "moe_down"));
    }
    return made;
  });
}

std::size_t MoeGemm::workspace_bytes(const MoeShape& shape) noexcept {
  return shape.tokens == 0 || !check_moe_shape(shape) ? 0 : moe_plan(filled_in(shape)).bytes;
}

Result<void> MoeGemm::launch(Stream stream, std::uint16_t* output, const MoeShape& given,
                             const MoeInput& input, const MoeWeights& up, const MoeWeights& down,
                             const float* activation_gsa, GateUpLayout layout,
                             const SwiGlu& activation, void* workspace) const noexcept {
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
  const MoePlan plan = moe_plan(shape);
  auto* const base = static_cast<std::uint8_t*>(workspace);
  auto* const tiles = reinterpret_cast<Tile*>(base + plan.tiles);
  auto* const tile_count = reinterpret_cast<std::uint32_t*>(base + plan.tile_count);
  auto* const slot_of_position = reinterpret_cast<std::uint32_t*>(base + plan.slot_of_position);
  auto* const position_of_slot = reinterpret_cast<std::int32_t*>(base + plan.position_of_slot);
  auto* const partial = reinterpret_cast<float*>(base + plan.partial);
  std::uint8_t* const token_codes = base + plan.token_codes;
  std::uint8_t* const token_scales = base + plan.token_scales;
  std::uint8_t* const activation_codes = base + plan.activation_codes;
  std::uint8_t* const activation_scales = base + plan.activation_scales;
  const auto tokens = static_cast<std::uint32_t>(shape.tokens);
  const auto topk = static_cast<std::uint32_t>(shape.topk);
  const auto hidden = static_cast<std::uint32_t>(shape.hidden);
  const auto width = static_cast<std::uint32_t>(shape.width);
  const std::size_t size = plan.tile_tokens / 16;  // 8, 16, 32: 0, 1, 2

  LaunchConfig config;
  config.block.x = kRouteThreads;
  config.grid.x =
      1 + kernels::grid_of((shape.tokens * (shape.hidden / 16) + kRouteThreads - 1) / kRouteThreads,
                           kMaxQuantizeBlocks);
  CUKILN_CHECK(route_.launch(stream, config, tiles, tile_count, slot_of_position, position_of_slot,
                             token_codes, token_scales, input.hidden, input.hidden_gsa,
                             input.topk_ids, input.expert_map, tokens, topk, hidden,
                             static_cast<std::uint32_t>(shape.global_experts),
                             static_cast<std::uint32_t>(shape.experts), plan.tile_tokens));

  config.block.x = kGemmThreads;
  config.cluster = {2 * plan.up_splits, 1, 1};
  config.grid = {blocks_of_rows(shape.width) * 2 * plan.up_splits, plan.most_tiles, 1};
  CUKILN_CHECK(up_[size].launch(stream, config, activation_codes, activation_scales, tiles,
                                tile_count, slot_of_position, token_codes, token_scales,
                                input.hidden_gsa, up.codes, up.scales, up.decode, activation_gsa,
                                topk, hidden, width, static_cast<std::uint32_t>(layout),
                                activation.limit, activation.alpha, activation.beta));

  config.cluster = {0, 0, 0};
  config.grid = {blocks_of_rows(shape.hidden) * plan.down_splits, plan.most_tiles, 1};
  CUKILN_CHECK(down_[size].launch(stream, config, partial, tiles, tile_count, activation_codes,
                                  activation_scales, activation_gsa, down.codes, down.scales,
                                  down.decode, plan.slots, hidden, width, plan.down_splits));

  config.block.x = kRouteThreads;
  config.grid = {tokens, (hidden + 4 * kRouteThreads - 1) / (4 * kRouteThreads), 1};
  return combine_.launch(stream, config, output, partial, input.topk_weights, position_of_slot,
                         topk, hidden, plan.down_splits);
}

}  // namespace cukiln::nvfp4
