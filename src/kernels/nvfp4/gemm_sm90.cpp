// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <iterator>

#include "base/result.hpp"
#include "kernels/nvfp4/gemm_architecture.hpp"
#include "kernels/nvfp4/sm90_plan.hpp"

#include <cukiln/tensor_map.hpp>

namespace cukiln::nvfp4::detail {
namespace {

using namespace sm90;

constexpr std::uint32_t kExpandThreads = 256;
constexpr std::uint32_t kPrefillThreads = 384;

Result<void> check_decode(const Kernel& kernel) {
  return check_parameters<std::uint16_t*, const std::uint8_t*, TensorMap, const std::uint8_t*,
                          const std::uint8_t*, const float*, const float*, const std::uint16_t*,
                          std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>(kernel);
}

Result<void> check_expand(const Kernel& kernel) {
  return check_parameters<void*, const std::uint8_t*, const std::uint8_t*, std::uint32_t,
                          std::uint32_t>(kernel);
}

Result<void> check_prefill(const Kernel& kernel) {
  return check_parameters<std::uint16_t*, TensorMap, TensorMap, const std::uint8_t*, const float*,
                          const float*, const std::uint16_t*, std::uint32_t, std::uint32_t,
                          std::uint32_t>(kernel);
}

// Shared memory that one thread block asks for, so that no other, or one other, has room beside it
// on an sm_90 multiprocessor.
constexpr std::uint32_t kAloneBytes = 117 * 1024;
constexpr std::uint32_t kPairBytes = 77 * 1024;

constexpr const char* kPrefillModule = "nvfp4_gemm_prefill";

constexpr const char* module_of(const DecodeTile& tile) noexcept {
  return tile.tokens == 8 ? "nvfp4_gemm" : tile.tokens == 16 ? "nvfp4_gemm_16" : "nvfp4_gemm_32";
}

// One copying warp, or a warpgroup: gemm_sm90_decode.cuh.
constexpr std::uint32_t threads_of(const DecodeTile& tile) noexcept {
  return tile.tokens > 16 ? 384 : 288;
}

constexpr GemmKernel decode_kernel(const DecodeTile& tile, std::uint32_t shared_bytes) noexcept {
  return {module_of(tile), tile.name, shared_bytes, check_decode};
}

constexpr std::size_t kPrefill = std::size(kDecodeTiles);
constexpr std::size_t kExpand = kPrefill + std::size(kPrefillTiles);
constexpr auto kKernels = [] {
  std::array<GemmKernel, kExpand + 1> all{};
  for (std::size_t i = 0; i < kPrefill; ++i) {
    all[i] = decode_kernel(kDecodeTiles[i], std::max(kDecodeTiles[i].shared_bytes, kAloneBytes));
  }
  for (std::size_t i = 0; i < std::size(kPrefillTiles); ++i) {
    all[kPrefill + i] = {kPrefillModule, kPrefillTiles[i].name, kPrefillTiles[i].shared_bytes,
                         check_prefill};
  }
  all[kExpand] = {kPrefillModule, "nvfp4_gemm_expand", 0, check_expand};
  return all;
}();

// The first tiles for 8 tokens and for 16 are for every card.
constexpr std::uint32_t kAnyTiles = 3;
constexpr std::uint64_t kMostAnyTokens = 16;
constexpr auto kAnyKernels = [] {
  std::array<GemmKernel, 2 * kAnyTiles> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const DecodeTile& tile =
        kDecodeTiles[decode_tiles(i < kAnyTiles ? 8 : 16).first + i % kAnyTiles];
    all[i] = decode_kernel(tile, tile.shared_bytes);
  }
  return all;
}();

std::uint64_t expanded_columns(std::uint64_t k) noexcept { return ceil_div(k, kGroupK) * kGroupK; }

std::size_t no_workspace(std::int64_t, std::int64_t, std::int64_t) { return 0; }

std::size_t workspace_bytes(std::int64_t m, std::int64_t, std::int64_t k) {
  const auto tokens = static_cast<std::uint64_t>(m);
  return tokens <= kMostDecodeTokens ? 0
                                     : tokens * expanded_columns(static_cast<std::uint64_t>(k)) * 2;
}

// Codes of `box_bytes` * 2 of K, of `box_rows` rows.
TensorBox codes_box(const std::uint8_t* codes, std::uint32_t rows, std::uint32_t k,
                    std::uint32_t box_rows, std::uint32_t box_bytes) noexcept {
  TensorBox box;
  box.data = codes;
  box.size[0] = k / 2;
  box.size[1] = rows;
  box.stride[0] = k / 2;
  box.box[0] = box_bytes;
  box.box[1] = box_rows;
  return box;
}

Shape shape_of(const GemmCall& call, std::uint32_t multiprocessors) noexcept {
  return {call.m, call.n, call.k, multiprocessors};
}

GemmTactic tactic_of(const GemmCall& call, const Shape& shape) noexcept {
  return call.options.tactic < 0
             ? sm90::tactic_of(shape)
             : tactics_of(shape).all[static_cast<std::size_t>(call.options.tactic)];
}

std::size_t count_tactics(std::uint32_t m, std::uint32_t n, std::uint32_t k,
                          std::uint32_t multiprocessors) noexcept {
  return tactics_of({m, n, k, multiprocessors}).count;
}

// Where a multiprocessor has one or two blocks to do, none gets more: of a kernel that starts
// early, some would find room for another beside those of the kernel before it, and last the
// longest.
std::uint32_t evenly_spread_bytes(const DecodeTile& tile, const Shape& shape) noexcept {
  const std::uint64_t blocks = blocks_of(tile, shape);
  return std::max(tile.shared_bytes, blocks <= shape.multiprocessors       ? kAloneBytes
                                     : blocks <= 2 * shape.multiprocessors ? kPairBytes
                                                                           : 0);
}

Result<void> launch_decode(const Kernel& kernel, const GemmCall& call, const DecodeTile& tile,
                           std::uint32_t shared_bytes) noexcept {
  constexpr std::uint32_t kBoxBytes = 128;
  TensorBox codes = codes_box(call.b.codes, call.n, call.k, tile.rows, kBoxBytes);
  codes.swizzled = true;
  CUKILN_TRY(const TensorMap code_map, tensor_map(kernel, codes));
  LaunchConfig config;
  config.grid.x = static_cast<std::uint32_t>(ceil_div(call.n, tile.rows));
  config.grid.y = static_cast<std::uint32_t>(ceil_div(call.m, tile.tokens));
  config.block.x = threads_of(tile);
  config.shared_bytes = shared_bytes;
  config.programmatic_launch = true;  // the kernel itself waits for what it reads
  return launch_checked(kernel, call.stream, config, call.output, call.a.codes, code_map,
                        call.a.scales, call.b.scales, call.a.gsa, call.b.gsa, call.bias, call.m,
                        call.n, call.k, std::uint32_t{call.options.constant_b});
}

Result<void> launch_prefill(const Kernel* kernels, const GemmCall& call, const Shape& shape,
                            const GemmTactic& tactic) noexcept {
  const std::uint64_t columns = expanded_columns(call.k);
  LaunchConfig config;
  config.block.x = kExpandThreads;
  config.grid.x = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      ceil_div(call.m * (columns / 8), kExpandThreads), std::uint64_t{shape.multiprocessors} * 16));
  CUKILN_CHECK(launch_checked(kernels[kExpand], call.stream, config, call.workspace, call.a.codes,
                              call.a.scales, call.m, call.k));

  const PrefillTile& tile = kPrefillTiles[tactic.tile];
  const std::uint64_t tiles = tiles_of(tile, shape);
  const Kernel& kernel = kernels[kPrefill + tactic.tile];
  TensorBox tokens;
  tokens.element = TensorBox::Element::f16;
  tokens.swizzled = true;
  tokens.data = call.workspace;
  tokens.size[0] = columns;
  tokens.size[1] = call.m;
  tokens.stride[0] = columns * 2;
  tokens.box[0] = 64;
  tokens.box[1] = tile.tokens;
  CUKILN_TRY(const TensorMap token_map, tensor_map(kernel, tokens));
  CUKILN_TRY(const TensorMap code_map,
             tensor_map(kernel, codes_box(call.b.codes, call.n, call.k, tile.rows, kGroupK / 2)));
  config = {};
  config.block.x = kPrefillThreads;
  config.shared_bytes = tile.shared_bytes;
  config.programmatic_launch = true;  // the kernel waits for the expanded tokens itself
  if (tactic.splits == 1) {           // persistent: a block takes tile after tile
    config.grid.x = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(tiles, std::uint64_t{shape.multiprocessors} * tile.resident));
  } else {
    config.grid.x = static_cast<std::uint32_t>(tiles * tactic.splits);
    config.cluster = {tactic.splits, 1, 1};
  }
  return launch_checked(kernel, call.stream, config, call.output, token_map, code_map,
                        call.b.scales, call.a.gsa, call.b.gsa, call.bias, call.m, call.n, call.k);
}

Result<void> launch(const Kernel* kernels, std::uint32_t multiprocessors,
                    const GemmCall& call) noexcept {
  const Shape shape = shape_of(call, multiprocessors);
  const GemmTactic tactic = tactic_of(call, shape);
  if (!shape.decodes()) {
    return launch_prefill(kernels, call, shape, tactic);
  }
  const std::size_t index = decode_tiles(call.m).first + tactic.tile;
  const DecodeTile& tile = kDecodeTiles[index];
  return launch_decode(kernels[index], call, tile, evenly_spread_bytes(tile, shape));
}

// Any number of tokens, sixteen to a thread block.
Result<void> launch_any(const Kernel* kernels, std::uint32_t multiprocessors,
                        const GemmCall& call) noexcept {
  const Shape shape = shape_of(call, multiprocessors);
  const std::uint32_t first = decode_tiles(std::min<std::uint64_t>(call.m, kMostAnyTokens)).first;
  const DecodeTile* const tiles = kDecodeTiles + first;
  std::uint32_t best = 0;
  if (call.options.tactic >= 0) {
    best = static_cast<std::uint32_t>(call.options.tactic);
  } else {
    for (std::uint32_t i = 1; i < kAnyTiles; ++i) {
      best = estimate(tiles[i], shape) < estimate(tiles[best], shape) ? i : best;
    }
  }
  return launch_decode(kernels[(first == 0 ? 0 : kAnyTiles) + best], call, tiles[best],
                       tiles[best].shared_bytes);
}

std::size_t count_any_tactics(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t) noexcept {
  return kAnyTiles;
}

}  // namespace

const GemmArchitecture kGemmSm90 = {
    90, kKernels.data(), kKernels.size(), workspace_bytes, count_tactics, launch};
const GemmArchitecture kGemmAny = {
    0, kAnyKernels.data(), kAnyKernels.size(), no_workspace, count_any_tactics, launch_any};

}  // namespace cukiln::nvfp4::detail
