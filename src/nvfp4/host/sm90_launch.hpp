// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "nvfp4/host/checks.hpp"
#include "nvfp4/host/gemm_architecture.hpp"
#include "nvfp4/host/sm90_plan.hpp"

#include <cukiln/kernel.hpp>
#include <cukiln/nvfp4/nvfp4.hpp>
#include <cukiln/tensor_map.hpp>

/// How W4A4 and W4A16 kernels are launched on sm_90, and those of them that compile everywhere on
/// other devices. A type `Family` has what differs:
///
///     kTiles, kTable                    of sm90_plan.hpp; the table that is built in
///     kDecodeModules[]                  with the tiles of 8, 16 and, if there are such, 32 tokens
///     kPrefillModules[]                 with the tiles of up to 128 tokens, those of 256, and, if
///                                       there are such, those of no power of two
///     kSkinnyModule                     with the skinny tiles, or null
///     kElement                          of the tokens that prefill multiplies
///     Decode, Prefill                   KernelSignature
///     decode, prefill                   launch them, see launch_decode and launch_prefill
///     check_of                          the check of a PrefillTile's signature
///
/// and where kTiles.prepares, else prefill reads A itself:
///
///     kPrepareKernel, Prepare, prepare  likewise: writes A as prefill reads it
///     kPrepareColumns                   of A, that a thread of it takes
///
/// or, where a tile has a tail:
///
///     launch_with_tail                  launches the tail's kernel, or the one of the rest, whose
///                                       signature is the same
namespace cukiln::nvfp4::sm90 {

inline constexpr std::uint32_t kPrepareThreads = 256;
inline constexpr std::uint32_t kWarpgroupThreads = 128;

// Dynamic shared memory that limits the occupancy of an sm_90 SM to one thread block, or to two.
inline constexpr std::uint32_t kOccupancy1Bytes = 117 * 1024;
inline constexpr std::uint32_t kOccupancy2Bytes = 77 * 1024;

/// One producer warp, or a warpgroup: gemm_sm90_decode.cuh.
constexpr std::uint32_t block_threads(const DecodeTile& tile) noexcept {
  return tile.tokens > 16 ? 384 : 288;
}

/// Where each SM has at most one, or two, thread blocks to run, no SM gets more: a kernel that
/// starts early would find room for another one on SMs that the preceding kernel has left, and
/// those SMs would end last.
inline std::uint32_t evenly_spread_bytes(const DecodeTile& tile, std::uint64_t blocks,
                                         const Shape& shape) noexcept {
  return std::max(tile.shared_bytes, blocks <= shape.num_sms       ? kOccupancy1Bytes
                                     : blocks <= 2 * shape.num_sms ? kOccupancy2Bytes
                                                                   : 0);
}

/// Decode kernels have a thread block in y for each tile of tokens.
inline Result<void> check_token_blocks(const DecodeTile& tile, std::uint64_t m,
                                       std::uint64_t k) noexcept {
  constexpr std::uint64_t kMaxGridY = 65535;
  if (ceil_div(m, tile.tokens) > kMaxGridY) {
    return kernels::refuse(
        "a is [{}, {}]; expected at most {} rows on this device, which has no kernels for many "
        "tokens: launch parts of the rows one by one",
        m, k, kMaxGridY * tile.tokens);
  }
  return {};
}

/// `box_rows` rows by `box_bytes` bytes of packed data, two columns each.
inline TensorBox data_box(const QuantizedMatrix& matrix, std::uint32_t box_rows,
                          std::uint32_t box_bytes) noexcept {
  TensorBox box;
  box.data = matrix.data;
  box.size[0] = static_cast<std::uint64_t>(matrix.columns) / 2;
  box.size[1] = static_cast<std::uint64_t>(matrix.rows);
  box.stride[0] = box.size[0];
  box.box[0] = box_bytes;
  box.box[1] = box_rows;
  return box;
}

inline std::uint64_t whole_groups(std::uint64_t k) noexcept {
  return ceil_div(k, kGroupK) * kGroupK;
}

/// Prepared tokens, m by whole_groups(k); else A.
template <class Family>
TensorBox token_box(const GemmCall& call, const PrefillTile& tile) noexcept {
  TensorBox box;
  box.element = Family::kElement;
  box.swizzled = true;
  if constexpr (Family::kTiles.prepares) {
    box.data = call.workspace;
    box.size[0] = whole_groups(call.k);
    box.stride[0] = box.size[0] * 2;
  } else {
    box.data = call.bf16_a.data;
    box.size[0] = call.k;
    box.stride[0] = static_cast<std::uint64_t>(call.bf16_a.row_stride) * 2;
  }
  box.size[1] = call.m;
  box.box[0] = 64;
  box.box[1] = tile.is_skinny() ? std::min(tile.tokens, call.m) : tile.tokens;
  return box;
}

inline LaunchConfig prefill_config(const PrefillTile& tile, std::uint32_t splits,
                                   const Shape& shape) noexcept {
  const std::uint64_t tiles = tile_count(tile, shape);
  LaunchConfig config;
  config.block.x = kWarpgroupThreads * (1 + tile.consumer_warpgroups);
  config.shared_bytes = tile.shared_bytes;
  config.programmatic_launch = true;  // the kernel waits for the tokens itself
  if (splits == 1) {                  // persistent: a thread block computes several tiles
    config.grid.x = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(tiles, std::uint64_t{shape.num_sms} * tile.blocks_per_sm));
  } else {
    config.grid.x = static_cast<std::uint32_t>(tiles * splits);
    config.cluster = {splits, 1, 1};
  }
  return config;
}

/// The launch of the kernel that multiplies the tail of these tiles.
inline LaunchConfig tail_config(const PrefillTile& tile, const Shape& shape,
                                const TailSplit& split) noexcept {
  LaunchConfig config = prefill_config(tile, 2, shape);
  config.grid.x = split.tail_ctas;
  return config;
}

inline LaunchConfig prepare_config(std::uint64_t columns, const Shape& shape) noexcept {
  constexpr std::uint64_t kBlocksPerSm = 16;  // in total, not at the same time
  LaunchConfig config;
  config.block.x = kPrepareThreads;
  config.grid.x = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      ceil_div(shape.m * (whole_groups(shape.k) / columns), kPrepareThreads),
      shape.num_sms * kBlocksPerSm));
  return config;
}

template <class Family>
constexpr detail::GemmKernel decode_kernel(const DecodeTile& tile,
                                           std::uint32_t shared_bytes) noexcept {
  const std::size_t module = tile.tokens == 8 ? 0 : tile.tokens == 16 ? 1 : 2;
  return {Family::kDecodeModules[module], tile.name, shared_bytes, Family::Decode::check};
}

template <class Family>
constexpr const char* module_of(const PrefillTile& tile) noexcept {
  if (tile.is_skinny()) {
    return Family::kSkinnyModule;
  }
  return Family::kPrefillModules[std::has_single_bit(tile.tokens) ? tile.tokens > 128 : 2];
}

constexpr std::uint32_t second_kernel_index(const Tiles& tiles, std::uint32_t tile) noexcept {
  return tiles.count() + tiles.second_kernels(tile);
}

/// A kernel for each tile, then the one that prepares A for prefill, or the second ones of tiles.
template <class Family>
constexpr auto sm90_kernels() noexcept {
  constexpr std::size_t kCount =
      Family::kTiles.count() +
      (Family::kTiles.prepares ? 1 : Family::kTiles.second_kernels(Family::kTiles.prefill_count));
  const Tiles& tiles = Family::kTiles;
  std::array<detail::GemmKernel, kCount> all{};
  for (std::size_t i = 0; i < tiles.decode_count; ++i) {
    const DecodeTile& tile = tiles.decode[i];
    all[i] = decode_kernel<Family>(tile, std::max(tile.shared_bytes, kOccupancy1Bytes));
  }
  for (std::uint32_t i = 0; i < tiles.prefill_count; ++i) {
    const PrefillTile& tile = tiles.prefill[i];
    all[tiles.decode_count + i] = {module_of<Family>(tile), tile.name,
                                   std::max(tile.shared_bytes, kOccupancy1Bytes),
                                   Family::check_of(tile)};
    if (tile.second_kernel != nullptr) {
      all[second_kernel_index(tiles, i)] = {module_of<Family>(tile), tile.second_kernel,
                                            tile.shared_bytes, Family::check_of(tile)};
    }
  }
  if constexpr (Family::kTiles.prepares) {
    all[tiles.count()] = {Family::kPrefillModules[0], Family::kPrepareKernel, 0,
                          Family::Prepare::check};
  }
  return all;
}
template <class Family>
inline constexpr auto kSm90Kernels = sm90_kernels<Family>();

template <class Family>
constexpr auto any_kernels() noexcept {
  std::array<detail::GemmKernel, std::size_t{2} * kAnyTiles> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const DecodeTile& tile = any_tile(Family::kTiles, i);
    all[i] = decode_kernel<Family>(tile, tile.shared_bytes);
  }
  return all;
}
template <class Family>
inline constexpr auto kAnyKernels = any_kernels<Family>();

template <class Family>
Result<void> launch_decode(const Kernel& kernel, const GemmCall& call, const DecodeTile& tile,
                           std::uint32_t shared_bytes) noexcept {
  constexpr std::uint32_t kBoxBytes = 128;
  TensorBox weights = data_box(call.b, tile.rows, kBoxBytes);
  weights.swizzled = true;
  CUKILN_TRY(const TensorMap weight_map, tensor_map(kernel, weights));
  LaunchConfig config;
  config.grid.x = static_cast<std::uint32_t>(ceil_div(call.n, tile.rows));
  config.grid.y = static_cast<std::uint32_t>(ceil_div(call.m, tile.tokens));
  config.block.x = block_threads(tile);
  config.shared_bytes = shared_bytes;
  config.programmatic_launch = true;  // the kernel itself waits for what it reads
  return Family::decode(kernel, config, weight_map, call);
}

/// The part of a GEMM with rows of B from a multiple of a tile's rows on.
inline GemmCall with_rows(GemmCall call, std::uint64_t first_row, std::uint64_t rows,
                          std::uint32_t splits) noexcept {
  const auto first = static_cast<std::int64_t>(first_row);
  call.output += first_row;
  call.b.data += data_bytes(first, call.b.columns);
  call.b.scales += scales_bytes(first, call.b.columns);
  call.b.rows = static_cast<std::int64_t>(rows);
  if (call.bias != nullptr) {
    call.bias += first_row;
  }
  call.n = static_cast<std::uint32_t>(rows);
  call.tactic.splits = splits;
  return call;
}

/// `output_stride`: elements from one row of the output to the next.
template <class Family>
Result<void> launch_rows(const Kernel* kernels, std::uint32_t tile_index, const GemmCall& call,
                         std::uint32_t output_stride, std::uint32_t num_sms) noexcept {
  const PrefillTile& tile = Family::kTiles.prefill[tile_index];
  const Kernel* const second_kernel = kernels + second_kernel_index(Family::kTiles, tile_index);
  const bool is_pair = tile.kind == PrefillKind::paired && call.tactic.splits == 2;
  const Kernel& kernel =
      is_pair ? *second_kernel : kernels[Family::kTiles.decode_count + tile_index];
  CUKILN_TRY(const TensorMap token_map, tensor_map(kernel, token_box<Family>(call, tile)));
  TensorBox weights = data_box(call.b, tile.rows, kGroupK / 2);
  weights.swizzled = !Family::kTiles.prepares;  // where K has its natural order
  CUKILN_TRY(const TensorMap weight_map, tensor_map(kernel, weights));
  const Shape shape = {call.m, call.n, call.k, num_sms};
  LaunchConfig config = prefill_config(tile, call.tactic.splits, shape);
  // Skinny ones are too short to spare the others, and start early where the preceding kernel still
  // runs.
  if (!tile.is_skinny() &&
      one_cta_per_sm(Family::kTiles, config.grid.x, call.tactic.splits, num_sms)) {
    config.shared_bytes = std::max(config.shared_bytes, kOccupancy1Bytes);
  }
  if constexpr (!Family::kTiles.prepares) {
    if (tile.has_tail()) {
      const TailSplit split = tail_split(tile, shape);
      CUKILN_CHECK(Family::launch_with_tail(*second_kernel, tail_config(tile, shape, split),
                                            token_map, weight_map, call, output_stride,
                                            split.k_groups));
      return Family::launch_with_tail(kernel, config, token_map, weight_map, call, output_stride,
                                      split.k_groups);
    }
  }
  return Family::prefill(kernel, config, tile, token_map, weight_map, call, output_stride);
}

template <class Family>
Result<void> launch_prefill(const Kernel* kernels, const GemmCall& call,
                            const Shape& shape) noexcept {
  const Tiles& tiles = Family::kTiles;
  if constexpr (Family::kTiles.prepares) {
    CUKILN_CHECK(Family::prepare(kernels[tiles.count()],
                                 prepare_config(Family::kPrepareColumns, shape), call));
  }
  const std::uint32_t tile = call.tactic.kernel - tiles.decode_count;
  const TailWave last = tail_wave(tiles, tile, call.tactic.splits, shape);
  const GemmCall whole = with_rows(call, 0, last.first_row, call.tactic.splits);
  CUKILN_CHECK(launch_rows<Family>(kernels, tile, whole, call.n, shape.num_sms));
  if (last.first_row == shape.n) {
    return {};
  }
  const GemmCall rest = with_rows(call, last.first_row, shape.n - last.first_row, last.splits);
  return launch_rows<Family>(kernels, last.tile, rest, call.n, shape.num_sms);
}

template <class Family>
Result<void> launch_sm90(const Kernel* kernels, std::uint32_t num_sms,
                         const GemmCall& call) noexcept {
  const Shape shape = {call.m, call.n, call.k, num_sms};
  if (call.tactic.kernel >= Family::kTiles.decode_count) {
    return launch_prefill<Family>(kernels, call, shape);
  }
  const DecodeTile& tile = Family::kTiles.decode[call.tactic.kernel];
  return launch_decode<Family>(kernels[call.tactic.kernel], call, tile,
                               evenly_spread_bytes(tile, block_count(tile, shape), shape));
}

/// Takes any number of tokens, at most sixteen for each thread block.
template <class Family>
Result<void> launch_any(const Kernel* kernels, std::uint32_t /*num_sms*/,
                        const GemmCall& call) noexcept {
  const DecodeTile& tile = any_tile(Family::kTiles, call.tactic.kernel);
  CUKILN_CHECK(check_token_blocks(tile, call.m, call.k));
  return launch_decode<Family>(kernels[call.tactic.kernel], call, tile, tile.shared_bytes);
}

/// Workspace for partial sums of the tail CTAs, sized for the largest device.
inline std::uint64_t tail_workspace_bytes(const Tiles& tiles, std::uint64_t m, std::uint64_t n,
                                          std::uint64_t k) noexcept {
  const PrefillTile* const end = tiles.prefill + tiles.prefill_count;
  const PrefillTile* const with_tail =
      std::find_if(tiles.prefill, end, [](const PrefillTile& tile) { return tile.has_tail(); });
  if (with_tail == end || m <= with_tail->tokens / 2 || tail_k_groups(1, k) == 0) {
    return 0;
  }
  const std::uint64_t row_tiles = ceil_div(n, with_tail->rows);
  if (row_tiles > kMaxTailTiles) {
    return 0;
  }
  return std::min(row_tiles * ceil_div(m, with_tail->tokens), kMaxTailTiles) * with_tail->tokens *
         with_tail->rows * sizeof(float);
}

/// Workspace for prepared tokens, or for partial sums of the tail CTAs.
template <class Family>
std::size_t workspace_bytes(std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto tokens = static_cast<std::uint64_t>(m);
  const auto columns = static_cast<std::uint64_t>(k);
  if (!Family::kTiles.prepares) {
    return tail_workspace_bytes(Family::kTiles, tokens, static_cast<std::uint64_t>(n), columns);
  }
  return tokens <= kMaxDecodeTokens ? 0 : tokens * whole_groups(columns) * 2;
}

template <class Family>
constexpr detail::GemmArchitecture sm90_architecture() noexcept {
  return {[](int capability) noexcept { return capability == 90; },
          kSm90Kernels<Family>.data(),
          kSm90Kernels<Family>.size(),
          workspace_bytes<Family>,
          [](std::uint32_t m, std::uint32_t n, std::uint32_t k, std::uint32_t num_sms) noexcept {
            return tactics_of(Family::kTiles, {m, n, k, num_sms});
          },
          [](std::uint32_t m, std::uint32_t n, std::uint32_t k, std::uint32_t num_sms) noexcept {
            return select_tactic(Family::kTiles, Family::kTable, {m, n, k, num_sms});
          },
          launch_sm90<Family>};
}

template <class Family>
constexpr detail::GemmArchitecture any_architecture() noexcept {
  return {[](int /*capability*/) noexcept { return true; },
          kAnyKernels<Family>.data(),
          kAnyKernels<Family>.size(),
          [](std::int64_t, std::int64_t, std::int64_t) { return std::size_t{0}; },
          [](std::uint32_t m, std::uint32_t, std::uint32_t, std::uint32_t) noexcept {
            return any_tactics(m);
          },
          [](std::uint32_t m, std::uint32_t n, std::uint32_t k, std::uint32_t num_sms) noexcept {
            return select_any(Family::kTiles, {m, n, k, num_sms});
          },
          launch_any<Family>};
}

}  // namespace cukiln::nvfp4::sm90
