// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/nvfp4/sm90_plan.hpp"
#include "kernels/nvfp4/w4a16_table.hpp"

namespace cukiln::nvfp4::w4a16 {

// The tiles of W4a16Gemm's kernels, and the heuristic that selects one for a shape that was not
// measured. As sm90_plan.hpp: times are an H200's with K = 7168, shared memory is the kernels'.

using sm90::block_count;
using sm90::ceil_div;
using sm90::DecodeTile;
using sm90::DecodeTiles;
using sm90::PrefillTile;
using sm90::Shape;

/// The first kAnyTiles for 8 tokens and for 16 run on every device.
inline constexpr std::uint32_t kAnyTiles = 3;
inline constexpr DecodeTile kDecodeTiles[] = {
    {"w4a16_gemm_decode_8x2", 8, 16, 33856, 4.6, 7.0},
    {"w4a16_gemm_decode_8x4", 8, 32, 50240, 6.6, 10.4},
    {"w4a16_gemm_decode_8x7", 8, 56, 91200, 9.8, 16.0},
    {"w4a16_gemm_decode_8x5", 8, 40, 74816, 8.0, 13.2},
    {"w4a16_gemm_decode_8x18", 8, 144, 181312, 22.8, 45.0},
    {"w4a16_gemm_decode_16x2", 16, 16, 33856, 7.0, 11.5},
    {"w4a16_gemm_decode_16x4", 16, 32, 50240, 9.0, 17.3},
    {"w4a16_gemm_decode_16x7", 16, 56, 91200, 12.7, 21.5},
    {"w4a16_gemm_decode_16x5", 16, 40, 74816, 9.8, 18.6},
    {"w4a16_gemm_decode_16x8", 16, 64, 83008, 13.4, 24.0},
    {"w4a16_gemm_decode_16x10", 16, 80, 115776, 15.8, 32.4},
    {"w4a16_gemm_decode_32x4", 32, 32, 50240, 13.0, 24.5},
    {"w4a16_gemm_decode_32x5", 32, 40, 74816, 15.0, 26.4},
    {"w4a16_gemm_decode_32x7", 32, 56, 91200, 17.4, 30.0},
};
inline constexpr std::uint64_t kMaxDecodeTokens = kDecodeTiles[std::size(kDecodeTiles) - 1].tokens;
inline constexpr std::uint64_t kMaxAnyTokens = 16;

inline constexpr PrefillTile kPrefillTiles[] = {
    {"w4a16_gemm_prefill_64x128", 64, 128, 112704, 2, 1.15},
    {"w4a16_gemm_prefill_64x256", 64, 256, 227424, 1, 1.0},
    {"w4a16_gemm_prefill_128x128", 128, 128, 178240, 1, 0.75},
    {"w4a16_gemm_prefill_128x256", 128, 256, 223296, 1, 1.65},
};

/// On sm_90: every tile's kernel, and the one that arranges tokens for prefill.
inline constexpr std::size_t kKernelCount = std::size(kDecodeTiles) + std::size(kPrefillTiles) + 1;

inline bool is_decode(const Shape& shape) noexcept { return shape.m <= kMaxDecodeTokens; }

/// The smallest tiles that hold m tokens; the largest for more than kMaxDecodeTokens.
constexpr DecodeTiles decode_tiles_for(std::uint64_t m) noexcept {
  const std::uint64_t tokens = m <= 8 ? 8 : m <= 16 ? 16 : kMaxDecodeTokens;
  DecodeTiles found{0, 0};
  for (const DecodeTile& tile : kDecodeTiles) {
    found.first += tile.tokens < tokens ? 1 : 0;
    found.count += tile.tokens == tokens ? 1 : 0;
  }
  return found;
}

/// The tactics of a shape on sm_90. Decode tiles are counted from the first of decode_tiles_for(m).
struct W4a16Tactics {
  GemmTactic all[std::max(std::size(kDecodeTiles), std::size(kPrefillTiles) * 3)];
  std::size_t count = 0;
};

inline W4a16Tactics w4a16_tactics(const Shape& shape) noexcept {
  W4a16Tactics found;
  if (is_decode(shape)) {
    for (std::uint32_t tile = 0; tile < decode_tiles_for(shape.m).count; ++tile) {
      found.all[found.count++] = {tile, 1};
    }
    return found;
  }
  for (std::uint32_t tile = 0; tile < std::size(kPrefillTiles); ++tile) {
    for (std::uint32_t splits = 1; splits <= sm90::kMaxSplits; splits *= 2) {
      if (may_split(kPrefillTiles[tile], splits, shape)) {
        found.all[found.count++] = {tile, splits};
      }
    }
  }
  return found;
}

/// Selects the tuned tactic, or for a shape or a card that was not measured the one that should
/// take the least time.
inline GemmTactic select_w4a16(const Shape& shape) noexcept {
  const GemmTactic* const tuned = kTuned.find(shape.m, shape.n, shape.k, shape.num_sms);
  if (tuned != nullptr) {
    return *tuned;
  }
  const W4a16Tactics tactics = w4a16_tactics(shape);
  const std::uint32_t first = decode_tiles_for(shape.m).first;
  const auto time = [&](const GemmTactic& tactic) {
    return is_decode(shape) ? estimated_us(kDecodeTiles[first + tactic.tile], shape)
                            : estimated_us(kPrefillTiles[tactic.tile], tactic.splits, shape);
  };
  return *std::min_element(
      tactics.all, tactics.all + tactics.count,
      [&](const GemmTactic& a, const GemmTactic& b) { return time(a) < time(b); });
}

/// The tile that a device without kernels of its own takes, counted from the first of
/// decode_tiles_for(min(m, kMaxAnyTokens)).
inline std::uint32_t select_any_tile(const Shape& shape) noexcept {
  const DecodeTile* const tiles =
      kDecodeTiles + decode_tiles_for(std::min(shape.m, kMaxAnyTokens)).first;
  return static_cast<std::uint32_t>(std::min_element(tiles, tiles + kAnyTiles,
                                                     [&](const DecodeTile& a, const DecodeTile& b) {
                                                       return estimated_us(a, shape) <
                                                              estimated_us(b, shape);
                                                     }) -
                                    tiles);
}

}  // namespace cukiln::nvfp4::w4a16
