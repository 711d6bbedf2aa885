// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/nvfp4/sm90_table.hpp"

namespace cukiln::nvfp4::sm90 {

// The kernels' tiles, and the heuristic that selects one for a shape that scripts/tune did not
// measure. Its times were measured on an H200 with K = 7168; only their ratios matter. Shared
// memory is that of gemm_sm90.cuh and nvfp4_gemm_prefill.cu, which refuse to compile with other
// numbers.

inline constexpr std::uint32_t kGroupK = 128;  ///< the step of K in the kernels' main loops
inline constexpr std::uint32_t kMaxSplits = 4;

inline std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) noexcept { return (a + b - 1) / b; }

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

inline constexpr std::uint64_t kMaxDecodeTokens = kDecodeTiles[std::size(kDecodeTiles) - 1].tokens;

/// A range of kDecodeTiles.
struct DecodeTiles {
  std::uint32_t first;
  std::uint32_t count;
};
constexpr DecodeTiles tiles_with_tokens(std::uint64_t tokens) noexcept {
  DecodeTiles found{0, 0};
  for (const DecodeTile& tile : kDecodeTiles) {
    found.first += tile.tokens < tokens ? 1 : 0;
    found.count += tile.tokens == tokens ? 1 : 0;
  }
  return found;
}

/// The smallest tiles that hold m tokens; the largest for more than kMaxDecodeTokens.
constexpr DecodeTiles decode_tiles(std::uint64_t m) noexcept {
  constexpr DecodeTiles k8 = tiles_with_tokens(8);
  constexpr DecodeTiles k16 = tiles_with_tokens(16);
  constexpr DecodeTiles kMax = tiles_with_tokens(kMaxDecodeTokens);
  return m <= 8 ? k8 : m <= 16 ? k16 : kMax;
}

/// A tile of a kernel for more tokens than that.
struct PrefillTile {
  const char* name;
  std::uint32_t tokens;  // of A
  std::uint32_t rows;    // of B
  std::uint32_t shared_bytes;
  std::uint32_t blocks_per_sm;
  double us_per_group;  // for kGroupK of K, on an SM with blocks_per_sm thread blocks
};
inline constexpr PrefillTile kPrefillTiles[] = {
    {"nvfp4_gemm_prefill_32x128", 32, 128, 97360, 2, 0.95},
    {"nvfp4_gemm_prefill_64x128", 64, 128, 112704, 2, 1.05},
    {"nvfp4_gemm_prefill_128x128", 128, 128, 178240, 1, 0.66},
    {"nvfp4_gemm_prefill_128x256", 128, 256, 223296, 1, 1.31},
};

/// Of Gemm's kernels on sm_90: every tile's, and the one that expands A for prefill.
inline constexpr std::size_t kKernelCount = std::size(kDecodeTiles) + std::size(kPrefillTiles) + 1;

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

/// Whether K may be split: all clusters must run in one wave. Clusters of four do not fit on the
/// last SMs of the device, so that a wave of them is smaller.
inline bool may_split(const PrefillTile& tile, std::uint32_t splits, const Shape& shape) noexcept {
  const std::uint64_t wave_blocks = std::uint64_t{shape.num_sms} * tile.blocks_per_sm;
  return splits == 1 ||
         (splits <= ceil_div(shape.k, kGroupK) &&
          tile_count(tile, shape) * splits <= (splits == 4 ? wave_blocks * 7 / 8 : wave_blocks));
}

/// The tactics of a shape. Decode tiles are counted from the first of decode_tiles(m).
struct Tactics {
  GemmTactic all[std::max(std::size(kDecodeTiles), std::size(kPrefillTiles) * 3)];
  std::size_t count = 0;
};

inline Tactics tactics_of(const Shape& shape) noexcept {
  Tactics found;
  if (shape.is_decode()) {
    const std::uint32_t count = decode_tiles(shape.m).count;
    for (std::uint32_t tile = 0; tile < count; ++tile) {
      found.all[found.count++] = {tile, 1};
    }
    return found;
  }
  for (std::uint32_t tile = 0; tile < std::size(kPrefillTiles); ++tile) {
    for (std::uint32_t splits = 1; splits <= kMaxSplits; splits *= 2) {
      if (may_split(kPrefillTiles[tile], splits, shape)) {
        found.all[found.count++] = {tile, splits};
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

inline double estimated_us(const PrefillTile& tile, std::uint32_t splits,
                           const Shape& shape) noexcept {
  const std::uint64_t blocks_per_sm = ceil_div(tile_count(tile, shape) * splits, shape.num_sms);
  const std::uint64_t waves = ceil_div(blocks_per_sm, tile.blocks_per_sm);
  // A thread block that has its SM to itself is faster, but less than twice as fast.
  const double occupancy_factor = blocks_per_sm < tile.blocks_per_sm ? 0.6 : 1.0;
  // A cluster adds up its partial sums.
  const double reduce_us = splits > 1 ? 2.0 + 3.0 * tile.tokens * tile.rows / (128 * 128) : 0;
  const std::uint64_t groups = ceil_div(ceil_div(shape.k, kGroupK), splits);
  return static_cast<double>(waves * groups) * tile.us_per_group * occupancy_factor + reduce_us;
}

/// Selects the tactic that should take the least time.
inline GemmTactic heuristic_tactic(const Shape& shape) noexcept {
  const Tactics tactics = tactics_of(shape);
  const std::uint32_t first = decode_tiles(shape.m).first;
  const auto time = [&](const GemmTactic& tactic) {
    return shape.is_decode() ? estimated_us(kDecodeTiles[first + tactic.tile], shape)
                             : estimated_us(kPrefillTiles[tactic.tile], tactic.splits, shape);
  };
  return *std::min_element(
      tactics.all, tactics.all + tactics.count,
      [&](const GemmTactic& a, const GemmTactic& b) { return time(a) < time(b); });
}

/// Selects the tuned tactic, or the heuristic's for a shape or a card that was not measured.
inline GemmTactic select_tactic(const Shape& shape) noexcept {
  const GemmTactic* const tuned = kTuned.find(shape.m, shape.n, shape.k, shape.num_sms);
  return tuned != nullptr ? *tuned : heuristic_tactic(shape);
}

}  // namespace cukiln::nvfp4::sm90
