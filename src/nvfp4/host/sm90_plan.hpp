// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "nvfp4/host/ceil_div.hpp"
#include "nvfp4/host/sm90_table.hpp"

namespace cukiln::nvfp4::sm90 {

// The tiles of kernels for sm_90, and the model that selects one: for more than 128 tokens always,
// else for a shape that was not measured. Its times for few tokens were measured with K = 7168, and
// those for prefill fitted to tests/golden/sm90_times.txt, both on an H200. Only their ratios
// matter. Shared memory is that of gemm_sm90.cuh and of the prefill kernels, which refuse to
// compile with other numbers.

inline constexpr std::uint32_t kGroupK = 128;     ///< the step of K in the kernels' main loops
inline constexpr std::uint32_t kScaleRows = 128;  ///< of B, whose block scales are together
inline constexpr std::uint32_t kMaxSplits = 4;
inline constexpr std::uint64_t kMaxDecodeTokens = 32;  ///< more take the kernels for prefill

using kernels::ceil_div;

/// A tile of a kernel for few tokens.
struct DecodeTile {
  const char* name;
  std::uint32_t tokens;  // at most, of A
  std::uint32_t rows;    // of B
  std::uint32_t shared_bytes;
  double us_at_occupancy_1;  // of one thread block, alone on its SM
  double us_at_occupancy_2;  // of two, at the same time or one after the other
};
inline constexpr DecodeTile kDecodeTiles[] = {
    {"nvfp4_gemm_decode_8x2", 8, 16, 33856, 4.4, 6.6},
    {"nvfp4_gemm_decode_8x4", 8, 32, 50240, 6.3, 10.0},
    {"nvfp4_gemm_decode_8x7", 8, 56, 91200, 9.5, 14.8},
    {"nvfp4_gemm_decode_8x5", 8, 40, 74816, 7.6, 12.7},
    {"nvfp4_gemm_decode_8x18", 8, 144, 181312, 21.6, 43.0},
    {"nvfp4_gemm_decode_16x2", 16, 16, 33856, 6.1, 9.0},
    {"nvfp4_gemm_decode_16x4", 16, 32, 50240, 7.9, 15.1},
    {"nvfp4_gemm_decode_16x7", 16, 56, 91200, 11.3, 21.1},
    {"nvfp4_gemm_decode_16x5", 16, 40, 74816, 8.9, 17.4},
    {"nvfp4_gemm_decode_16x8", 16, 64, 83008, 12.4, 24.5},
    {"nvfp4_gemm_decode_16x10", 16, 80, 115776, 14.6, 29.0},
    {"nvfp4_gemm_decode_16x14", 16, 112, 148544, 20.0, 40.0},
    {"nvfp4_gemm_decode_16x18", 16, 144, 181312, 24.3, 49.0},
    {"nvfp4_gemm_decode_32x4", 32, 32, 50240, 10.8, 20.4},
    {"nvfp4_gemm_decode_32x5", 32, 40, 74816, 12.3, 24.0},
    {"nvfp4_gemm_decode_32x7", 32, 56, 91200, 15.2, 30.5},
    {"nvfp4_gemm_decode_32x8", 32, 64, 83008, 16.0, 30.5},
    {"nvfp4_gemm_decode_32x10", 32, 80, 115776, 18.8, 38.0},
};

/// A range of tiles.
struct DecodeTiles {
  std::uint32_t first;
  std::uint32_t count;
};

enum class PrefillKind {
  plain,
  paired,  // where K is split in two, `second_kernel` computes the tile
  skinny,  // takes no more tokens than the tile has
  tail,  // stream-K: `second_kernel` multiplies the tail of K, then this one the rest, split in two
};

/// A tile of a kernel for more tokens than that.
struct PrefillTile {
  const char* name;
  std::uint32_t tokens;  // of A
  std::uint32_t rows;    // of B
  std::uint32_t shared_bytes;
  std::uint32_t blocks_per_sm;
  double us_per_group;  // for kGroupK of K, on an SM with blocks_per_sm thread blocks
  std::uint32_t consumer_warpgroups = 2;  // of a thread block, beside one of producers
  PrefillKind kind = PrefillKind::plain;
  const char* second_kernel = nullptr;

  constexpr bool is_skinny() const noexcept { return kind == PrefillKind::skinny; }
  constexpr bool has_tail() const noexcept { return kind == PrefillKind::tail; }
};
inline constexpr PrefillTile kPrefillTiles[] = {
    {"nvfp4_gemm_prefill_32x128", 32, 128, 97392, 2, 0.692},
    {"nvfp4_gemm_prefill_64x128", 64, 128, 112736, 2, 0.834},
    {"nvfp4_gemm_prefill_128x128", 128, 128, 178272, 1, 0.638},
    {"nvfp4_gemm_prefill_128x256", 128, 256, 223328, 1, 1.24},
    {"nvfp4_gemm_prefill_256x128", 256, 128, 229968, 1, 1.24},
};

/// What a launch for prefill costs beside its groups of K, in microseconds; those of a tile are for
/// one of 128 by 128.
struct PrefillCosts {
  double launch;                   // of one more kernel
  double store_tile;               // of a wave
  double reduce, reduce_tile;      // where K is split
  double exchange, exchange_tile;  // where two CTAs split it, which exchange halves of their sums
  double alone;  // the time of a group of a thread block that has its SM to itself, of that of two
};

/// The tiles of a family of kernels, each of a kernel: first those for decode, in ascending order
/// of tokens, then those for prefill.
struct Tiles {
  const DecodeTile* decode;
  std::uint32_t decode_count;
  const PrefillTile* prefill;
  std::uint32_t prefill_count;
  DecodeTiles for_8, for_16, for_32;  ///< tokens
  bool prepares;                      ///< prefill needs a kernel before it, and a workspace
  PrefillCosts costs;

  constexpr std::uint32_t count() const noexcept { return decode_count + prefill_count; }
  constexpr const char* kernel_name(std::uint32_t kernel) const noexcept {
    return kernel < decode_count ? decode[kernel].name : prefill[kernel - decode_count].name;
  }
  /// The number of second kernels of the first `tiles` tiles for prefill.
  constexpr std::uint32_t second_kernels(std::uint32_t tiles) const noexcept {
    std::uint32_t found = 0;
    for (std::uint32_t i = 0; i < tiles; ++i) {
      found += prefill[i].second_kernel != nullptr ? 1 : 0;
    }
    return found;
  }
  /// The smallest tiles that hold m tokens; the largest for more than kMaxDecodeTokens.
  constexpr DecodeTiles decode_for(std::uint64_t m) const noexcept {
    return m <= 8 ? for_8 : m <= 16 ? for_16 : for_32;
  }
};

template <std::size_t decode_count, std::size_t prefill_count>
constexpr Tiles make_tiles(const DecodeTile (&decode)[decode_count],
                           const PrefillTile (&prefill)[prefill_count], bool prepares,
                           const PrefillCosts& costs) noexcept {
  static_assert(decode_count <= GemmTactics::kMax &&
                prefill_count * kMaxSplits <= GemmTactics::kMax);
  const auto with_tokens = [&](std::uint64_t tokens) {
    DecodeTiles found{0, 0};
    for (const DecodeTile& tile : decode) {
      found.first += tile.tokens < tokens ? 1 : 0;
      found.count += tile.tokens == tokens ? 1 : 0;
    }
    return found;
  };
  return {decode,
          decode_count,
          prefill,
          prefill_count,
          with_tokens(8),
          with_tokens(16),
          with_tokens(kMaxDecodeTokens),
          prepares,
          costs};
}

/// The tiles of W4A4.
inline constexpr Tiles kTiles =
    make_tiles(kDecodeTiles, kPrefillTiles, true, {4.53, 0.841, 0.456, 2.27, 1.07, 0.447, 0.519});
inline constexpr auto kTunedRows =
    find_kernels(kMeasuredRows, [](std::uint32_t i) { return kTiles.kernel_name(i); });
inline constexpr GemmTable kTuned = {kTunedRows.data(), kTunedRows.size(), kMeasuredSms};

struct Shape {
  std::uint64_t m, n, k;
  std::uint32_t num_sms;

  bool is_decode() const noexcept { return m <= kMaxDecodeTokens; }
};

inline std::uint64_t block_count(const DecodeTile& tile, const Shape& shape) noexcept {
  return ceil_div(shape.n, tile.rows) * ceil_div(shape.m, tile.tokens);
}

inline std::uint64_t tile_count(const PrefillTile& tile, const Shape& shape) noexcept {
  return ceil_div(shape.m, tile.tokens) * ceil_div(shape.n, tile.rows);
}

/// Returns how many of `ctas` CTAs that fit the device are resident at once when they are launched
/// as clusters of `splits`. Clusters of three or four leave SMs of some GPCs unused: an H100 with
/// 132 SMs runs 39 of three and 30 of four.
inline std::uint64_t max_resident_ctas(std::uint64_t ctas, std::uint32_t splits) noexcept {
  return splits > 2 ? ctas * 7 / 8 : ctas;
}

/// Whether to run at most one CTA of a launch on each SM, since with two others would have none.
/// Where nearly every SM has one, few have two, and those of the next launch can start beside them,
/// unless a kernel prepares A in between.
inline bool one_cta_per_sm(const Tiles& tiles, std::uint64_t blocks, std::uint32_t splits,
                           std::uint32_t num_sms) noexcept {
  return blocks <= max_resident_ctas(num_sms, splits) &&
         (tiles.prepares || blocks * 16 < std::uint64_t{num_sms} * 15);
}

/// The stream-K tail: CTAs on the SMs that two for each tile leave free multiply the last groups of
/// K of one tile after the other. They run in clusters of two, so that the tiles' CTAs find pairs
/// of SMs.
struct TailSplit {
  std::uint32_t tail_ctas;
  std::uint32_t k_groups;  // of each tile; 0: a tail would not pay
};
/// Upper bound of tiles with a tail; sizes the workspace. Above it no pair of SMs is free, even
/// with 144 SMs, Hopper's most.
inline constexpr std::uint64_t kMaxTailTiles = 71;
/// Returns how many groups of each tile's K a tail CTA of `cta_tiles` tiles multiplies. It then
/// takes as long as a tile's own two CTAs, if storing sums takes it as long as two groups.
inline std::uint64_t tail_k_groups(std::uint64_t cta_tiles, std::uint64_t k) noexcept {
  constexpr std::uint64_t kMinGroups = 4;  // fewer would not pay for another launch
  const std::uint64_t groups = ceil_div(k, kGroupK);
  const std::uint64_t others = 4 * cta_tiles;
  const std::uint64_t found = groups < others ? 0 : (groups - others) / (2 * cta_tiles + 1);
  return found < kMinGroups ? 0 : found;
}
inline TailSplit tail_split(const PrefillTile& tile, const Shape& shape) noexcept {
  const std::uint64_t tiles = tile_count(tile, shape);
  if (tiles > kMaxTailTiles || 2 * tiles + 2 > shape.num_sms) {
    return {0, 0};
  }
  const std::uint64_t blocks = std::min(shape.num_sms - 2 * tiles, tiles + 1) / 2 * 2;
  return {static_cast<std::uint32_t>(blocks),
          static_cast<std::uint32_t>(tail_k_groups(ceil_div(tiles, blocks), shape.k))};
}

/// Whether K may be split: all clusters must run in one wave. A skinny tile's sums are divided
/// among two or four.
inline bool may_split(const PrefillTile& tile, std::uint32_t splits, const Shape& shape) noexcept {
  if (tile.has_tail()) {
    return splits == 2 && tail_split(tile, shape).k_groups > 0;
  }
  const std::uint64_t ctas = std::uint64_t{shape.num_sms} * tile.blocks_per_sm;
  return splits == 1 ||
         (splits <= ceil_div(shape.k, kGroupK) && (!tile.is_skinny() || splits != 3) &&
          tile_count(tile, shape) * splits <= max_resident_ctas(ctas, splits));
}

/// The rows of B after the last whole wave of CTAs, whose tiles would leave most SMs idle: a launch
/// of their own splits their K, with tiles of half as many tokens if there are such.
struct TailWave {
  std::uint64_t first_row;  // n: there are none
  std::uint32_t tile;       // of `prefill`
  std::uint32_t splits;
};
inline TailWave tail_wave(const Tiles& tiles, std::uint32_t tile_index, std::uint32_t splits,
                          const Shape& shape) noexcept {
  constexpr std::uint64_t kLongK = 32 * kGroupK;  // else another launch takes longer
  const PrefillTile& tile = tiles.prefill[tile_index];
  const std::uint64_t waves = tile_count(tile, shape) / shape.num_sms;
  std::uint64_t first_row = waves * shape.num_sms / ceil_div(shape.m, tile.tokens) * tile.rows;
  first_row -= first_row % kScaleRows;
  if (splits == 1 && first_row > 0 && shape.k >= kLongK && first_row < shape.n) {
    const Shape rest = {shape.m, shape.n - first_row, shape.k, shape.num_sms};
    for (std::uint32_t parts = kMaxSplits; parts > 1; --parts) {
      for (const std::uint32_t tokens : {tile.tokens / 2, tile.tokens}) {
        for (std::uint32_t i = 0; i < tiles.prefill_count; ++i) {
          const PrefillTile& other = tiles.prefill[i];
          if (other.tokens == tokens && other.rows == tile.rows && !other.has_tail() &&
              (!other.is_skinny() || (shape.m <= tokens && parts != 3)) &&
              tile_count(other, rest) * parts <= max_resident_ctas(shape.num_sms, parts)) {
            return {first_row, i, parts};
          }
        }
      }
    }
  }
  return {shape.n, tile_index, splits};
}

/// Whether a tile for prefill fits. Of few tokens only one that needs no workspace and that they
/// fill by more than half; a skinny one or one with a tail always so.
inline bool may_take(const Tiles& tiles, const PrefillTile& tile, const Shape& shape) noexcept {
  const bool half_full = shape.m > tile.tokens / 2;
  if (tile.is_skinny()) {
    return half_full && shape.m <= tile.tokens;
  }
  if (tile.has_tail() && !half_full) {
    return false;
  }
  return !shape.is_decode() || (!tiles.prepares && tile.tokens <= kMaxDecodeTokens && half_full);
}

inline GemmTactics tactics_of(const Tiles& tiles, const Shape& shape) noexcept {
  GemmTactics found;
  if (shape.is_decode()) {
    const DecodeTiles fit = tiles.decode_for(shape.m);
    for (std::uint32_t i = 0; i < fit.count; ++i) {
      found.add({fit.first + i, 1});
    }
  }
  for (std::uint32_t i = 0; i < tiles.prefill_count; ++i) {
    if (!may_take(tiles, tiles.prefill[i], shape)) {
      continue;
    }
    for (std::uint32_t splits = 1; splits <= kMaxSplits; ++splits) {
      if (may_split(tiles.prefill[i], splits, shape)) {
        found.add({tiles.decode_count + i, splits});
      }
    }
  }
  return found;
}

/// Microseconds: waves of two thread blocks on each SM, then one of one.
inline double estimated_us(const DecodeTile& tile, const Shape& shape) noexcept {
  const std::uint64_t blocks_per_sm = ceil_div(block_count(tile, shape), shape.num_sms);
  const std::uint64_t full_waves = blocks_per_sm / 2;
  return static_cast<double>(full_waves) * tile.us_at_occupancy_2 +
         static_cast<double>(blocks_per_sm % 2) * tile.us_at_occupancy_1;
}

inline double estimated_us(const PrefillCosts& costs, const PrefillTile& tile, std::uint32_t splits,
                           const Shape& shape) noexcept {
  const std::uint64_t blocks_per_sm =
      ceil_div(tile_count(tile, shape) * splits, max_resident_ctas(shape.num_sms, splits));
  const std::uint64_t waves = ceil_div(blocks_per_sm, tile.blocks_per_sm);
  // A thread block that has its SM to itself is faster, but less than twice as fast.
  const double occupancy_factor = blocks_per_sm < tile.blocks_per_sm ? costs.alone : 1.0;
  const double area = tile.tokens * tile.rows / (128.0 * 128.0);
  const bool exchanges =
      splits == 2 && tile.rows == kScaleRows && tile.tokens > kMaxDecodeTokens && !tile.is_skinny();
  const double reduce_us = splits == 1 ? 0
                           : exchanges ? costs.exchange + costs.exchange_tile * area
                                       : costs.reduce + costs.reduce_tile * area;
  const std::uint64_t tail_groups = tile.has_tail() ? tail_split(tile, shape).k_groups : 0;
  const double tail_us = tile.has_tail() ? costs.launch : 0;
  const std::uint64_t groups = ceil_div(ceil_div(shape.k, kGroupK) - tail_groups, splits);
  const double wave_us = static_cast<double>(groups) * tile.us_per_group * occupancy_factor +
                         costs.store_tile * area * tile.blocks_per_sm;
  return static_cast<double>(waves) * wave_us + reduce_us + tail_us;
}

inline double estimated_us(const Tiles& tiles, const GemmTactic& tactic,
                           const Shape& shape) noexcept {
  if (tactic.kernel < tiles.decode_count) {
    constexpr double kMeasuredK = 7168;
    return estimated_us(tiles.decode[tactic.kernel], shape) * static_cast<double>(shape.k) /
           kMeasuredK;
  }
  const std::uint32_t tile = tactic.kernel - tiles.decode_count;
  const TailWave last = tail_wave(tiles, tile, tactic.splits, shape);
  const auto time = [&](std::uint32_t of, std::uint32_t splits, std::uint64_t rows) {
    return estimated_us(tiles.costs, tiles.prefill[of], splits,
                        {shape.m, rows, shape.k, shape.num_sms});
  };
  const std::uint64_t rest = shape.n - last.first_row;
  return time(tile, tactic.splits, last.first_row) +
         (rest == 0 ? 0 : tiles.costs.launch + time(last.tile, last.splits, rest));
}

/// Selects the tactic of a table that is built in; for a shape or a card that was not measured the
/// one that should take the least time.
inline GemmTactic select_tactic(const Tiles& tiles, const GemmTable& table,
                                const Shape& shape) noexcept {
  if (const GemmTactic* const tuned = table.find(shape.m, shape.n, shape.k, shape.num_sms)) {
    return *tuned;
  }
  const GemmTactics all = tactics_of(tiles, shape);
  GemmTactic fastest;
  double least = std::numeric_limits<double>::infinity();
  for (const GemmTactic& tactic : all) {
    if (const double time = estimated_us(tiles, tactic, shape); time < least) {
      least = time;
      fastest = tactic;
    }
  }
  return fastest;
}

// Every device runs the first kAnyTiles tiles for 8 tokens, and those for 16: its kernels, in this
// order.

inline constexpr std::uint32_t kAnyTiles = 3;

constexpr const DecodeTile& any_tile(const Tiles& tiles, std::size_t kernel) noexcept {
  const DecodeTiles fit = tiles.decode_for(kernel < kAnyTiles ? 8 : 16);
  return tiles.decode[fit.first + kernel % kAnyTiles];
}

inline GemmTactics any_tactics(std::uint64_t m) noexcept {
  GemmTactics found;
  for (std::uint32_t i = 0; i < kAnyTiles; ++i) {
    found.add({(m <= 8 ? 0 : kAnyTiles) + i, 1});
  }
  return found;
}

/// Selects the one that should take the least time.
inline GemmTactic select_any(const Tiles& tiles, const Shape& shape) noexcept {
  const GemmTactics all = any_tactics(shape.m);
  return *std::min_element(all.begin(), all.end(), [&](const GemmTactic& a, const GemmTactic& b) {
    return estimated_us(any_tile(tiles, a.kernel), shape) <
           estimated_us(any_tile(tiles, b.kernel), shape);
  });
}

}  // namespace cukiln::nvfp4::sm90
