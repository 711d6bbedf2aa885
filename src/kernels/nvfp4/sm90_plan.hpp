// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/nvfp4/sm90_table.hpp"

namespace cukiln::nvfp4::sm90 {

// The kernels' tiles, and which for which shape: what scripts/tune measured, or an estimate. The
// estimate's times are an H200's, K = 7168; what counts is their ratios. Shared memory:
// gemm_sm90.cuh and nvfp4_gemm_prefill.cu have the same numbers and refuse to compile with others.

inline constexpr std::uint32_t kGroupK = 128;  ///< what the kernels take of K at a time
inline constexpr std::uint32_t kMostSplits = 4;

inline std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) noexcept { return (a + b - 1) / b; }

/// For a few tokens: at most so many, and rows of B.
struct DecodeTile {
  const char* name;
  std::uint32_t tokens;
  std::uint32_t rows;
  std::uint32_t shared_bytes;
  double alone;   // microseconds of a block that has its multiprocessor to itself,
  double shared;  // and of two that share it, or take turns
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

inline constexpr std::uint64_t kMostDecodeTokens = kDecodeTiles[std::size(kDecodeTiles) - 1].tokens;

struct DecodeTiles {
  std::uint32_t first;
  std::uint32_t count;
};
constexpr DecodeTiles tiles_for(std::uint64_t tokens) noexcept {
  DecodeTiles found{0, 0};
  for (const DecodeTile& tile : kDecodeTiles) {
    found.first += tile.tokens < tokens ? 1 : 0;
    found.count += tile.tokens == tokens ? 1 : 0;
  }
  return found;
}

/// Those for m tokens, or for the next greater number that has any, or for the most.
constexpr DecodeTiles decode_tiles(std::uint64_t m) noexcept {
  constexpr DecodeTiles k8 = tiles_for(8);
  constexpr DecodeTiles k16 = tiles_for(16);
  constexpr DecodeTiles kMost = tiles_for(kMostDecodeTokens);
  return m <= 8 ? k8 : m <= 16 ? k16 : kMost;
}

/// For more.
struct PrefillTile {
  const char* name;
  std::uint32_t tokens;
  std::uint32_t rows;
  std::uint32_t shared_bytes;
  std::uint32_t resident;  // thread blocks that share a multiprocessor
  double group;            // microseconds for 128 of K, on a full multiprocessor
};
inline constexpr PrefillTile kPrefillTiles[] = {
    {"nvfp4_gemm_prefill_32x128", 32, 128, 97360, 2, 0.95},
    {"nvfp4_gemm_prefill_64x128", 64, 128, 112704, 2, 1.05},
    {"nvfp4_gemm_prefill_128x128", 128, 128, 178240, 1, 0.66},
    {"nvfp4_gemm_prefill_128x256", 128, 256, 223296, 1, 1.31},
};

struct Shape {
  std::uint64_t m, n, k;
  std::uint32_t multiprocessors;

  bool decodes() const noexcept { return m <= kMostDecodeTokens; }
};

inline std::uint64_t blocks_of(const DecodeTile& tile, const Shape& shape) noexcept {
  return ceil_div(shape.n, tile.rows) * ceil_div(shape.m, tile.tokens);
}

inline std::uint64_t tiles_of(const PrefillTile& tile, const Shape& shape) noexcept {
  return ceil_div(shape.m, tile.tokens) * ceil_div(shape.n, tile.rows);
}

// Clusters are for one wave that would not fill the card, and those of four do not find room on its
// last multiprocessors.
inline bool may_split(const PrefillTile& tile, std::uint32_t splits, const Shape& shape) noexcept {
  const std::uint64_t room = std::uint64_t{shape.multiprocessors} * tile.resident;
  return splits == 1 || (splits <= ceil_div(shape.k, kGroupK) &&
                         tiles_of(tile, shape) * splits <= (splits == 4 ? room * 7 / 8 : room));
}

/// All there are for a shape. A few tokens' tiles are counted among those of as many tokens.
struct Tactics {
  GemmTactic all[std::max(std::size(kDecodeTiles), std::size(kPrefillTiles) * 3)];
  std::size_t count = 0;
};

inline Tactics tactics_of(const Shape& shape) noexcept {
  Tactics found;
  if (shape.decodes()) {
    const std::uint32_t count = decode_tiles(shape.m).count;
    for (std::uint32_t tile = 0; tile < count; ++tile) {
      found.all[found.count++] = {tile, 1};
    }
    return found;
  }
  for (std::uint32_t tile = 0; tile < std::size(kPrefillTiles); ++tile) {
    for (std::uint32_t splits = 1; splits <= kMostSplits; splits *= 2) {
      if (may_split(kPrefillTiles[tile], splits, shape)) {
        found.all[found.count++] = {tile, splits};
      }
    }
  }
  return found;
}

/// Two blocks to a multiprocessor, wave after wave.
inline double estimate(const DecodeTile& tile, const Shape& shape) noexcept {
  const std::uint64_t turns = ceil_div(blocks_of(tile, shape), shape.multiprocessors);
  const std::uint64_t shared_turns = turns / 2;
  return static_cast<double>(shared_turns) * tile.shared +
         static_cast<double>(turns % 2) * tile.alone;
}

inline double estimate(const PrefillTile& tile, std::uint32_t splits, const Shape& shape) noexcept {
  const std::uint64_t turns = ceil_div(tiles_of(tile, shape) * splits, shape.multiprocessors);
  const std::uint64_t waves = ceil_div(turns, tile.resident);
  // A block that has its multiprocessor to itself is faster, but not by much.
  const double share = turns < tile.resident ? 0.6 : 1.0;
  // What adding a cluster's parts of a tile costs.
  const double adding = splits > 1 ? 2.0 + 3.0 * tile.tokens * tile.rows / (128 * 128) : 0;
  const std::uint64_t groups = ceil_div(ceil_div(shape.k, kGroupK), splits);
  return static_cast<double>(waves * groups) * tile.group * share + adding;
}

inline GemmTactic estimated_tactic(const Shape& shape) noexcept {
  const Tactics tactics = tactics_of(shape);
  const std::uint32_t first = decode_tiles(shape.m).first;
  const auto time = [&](const GemmTactic& tactic) {
    return shape.decodes() ? estimate(kDecodeTiles[first + tactic.tile], shape)
                           : estimate(kPrefillTiles[tactic.tile], tactic.splits, shape);
  };
  return *std::min_element(
      tactics.all, tactics.all + tactics.count,
      [&](const GemmTactic& a, const GemmTactic& b) { return time(a) < time(b); });
}

/// The tuned one, where the shape was measured on a card like this.
inline GemmTactic tactic_of(const Shape& shape) noexcept {
  const GemmTactic* const tuned = kTuned.find(shape.m, shape.n, shape.k, shape.multiprocessors);
  return tuned != nullptr ? *tuned : estimated_tactic(shape);
}

}  // namespace cukiln::nvfp4::sm90
