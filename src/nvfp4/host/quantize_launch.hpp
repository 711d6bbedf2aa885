// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "nvfp4/host/ceil_div.hpp"
#include "nvfp4/host/checks.hpp"
#include "nvfp4/host/quantize_checks.hpp"

#include <cukiln/kernel.hpp>

namespace cukiln::nvfp4 {

inline constexpr std::uint32_t kQuantizeThreads = 512;

/// How many tiles (scale atoms) a thread block quantises, one after the other: the range that was
/// measured to be fast on an H200.
struct TilesPerBlock {
  std::int64_t min;
  std::int64_t max;
};
inline constexpr TilesPerBlock kQuantizeTiles = {3, 4};
inline constexpr TilesPerBlock kPairsTiles = {4, 4};
inline constexpr TilesPerBlock kSwiGluTiles = {8, 28};

/// Selects the tiles of each thread block. Thread blocks run in waves of `wave_blocks`, as many as
/// the device holds. Tiles that fit one wave of the shortest blocks are spread over it. Otherwise
/// the total time counts, in tiles: of equally fast choices, the fewest tiles.
constexpr std::int64_t tiles_per_block(std::int64_t tiles, std::int64_t wave_blocks,
                                       const TilesPerBlock& range) noexcept {
  using kernels::ceil_div;
  if (tiles <= range.min * wave_blocks) {
    return std::max<std::int64_t>(ceil_div(tiles, wave_blocks), 1);
  }
  const auto time = [&](std::int64_t per_block) {
    const std::int64_t waves = ceil_div(ceil_div(tiles, per_block), wave_blocks);
    return waves * per_block;
  };
  std::int64_t best = range.min;
  for (std::int64_t per_block = best + 1; per_block <= range.max; ++per_block) {
    if (time(per_block) < time(best)) {
      best = per_block;
    }
  }
  return best;
}

/// The launch of a quantiser that writes [rows, columns], `tile_columns` of which make its tiles.
inline LaunchConfig quantize_config(std::int64_t rows, std::int64_t tile_columns,
                                    std::int64_t wave_blocks, const TilesPerBlock& range) noexcept {
  const std::int64_t tiles = atom_count(rows, tile_columns);
  const std::int64_t per_block = tiles_per_block(tiles, wave_blocks, range);
  LaunchConfig config;
  config.grid.x = kernels::clamped_grid(kernels::ceil_div(tiles, per_block), INT32_MAX);
  config.block.x = kQuantizeThreads;
  config.programmatic_launch = true;  // the kernels wait for what they read
  return config;
}

}  // namespace cukiln::nvfp4
