#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/nvfp4/sm90_table.hpp"

namespace cukiln::nvfp4::sm90 {

// Which tile for which shape: what scripts/tune measured, or an estimate. The estimate's times are
// an H200's, K = 7168; what counts is their ratios.

inline constexpr std::uint32_t kGroupK = 128;  ///< what the kernels take of K at a time
inline constexpr std::uint32_t kMostSplits = 4;
inline constexpr std::uint64_t kMostDecodeTokens = 16;

inline std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) noexcept { return (a + b - 1) / b; }

/// For up to 16 tokens: rows of B, for 8 tokens and for 16.
struct DecodeTile {
  std::uint32_t rows;
  std::uint32_t shared_bytes;
  double alone[2];   // microseconds of a block that has its multiprocessor to itself,
  double shared[2];  // and of two that share it
};
inline constexpr DecodeTile kDecodeTiles[] = {{16, 33856, {4.4, 6.1}, {6.6, 9.0}},
                                              {32, 50240, {6.3, 8.3}, {10.0, 12.9}},
                                              {56, 91200, {9.8, 11.9}, {14.8, 21.1}},
                                              {144, 181312, {20.5, 25.0}, {41.0, 50.0}}};
/// The first ones, which are for 8 tokens too, and for every card.
inline constexpr std::uint32_t kSmallDecodeTiles = 3;

/// For more.
struct PrefillTile {
  std::uint32_t tokens;
  std::uint32_t rows;
  std::uint32_t resident;  // thread blocks that share a multiprocessor
  double group;            // microseconds for 128 of K, on a full multiprocessor
};
inline constexpr PrefillTile kPrefillTiles[] = {
    {32, 128, 2, 0.95}, {64, 128, 2, 1.05}, {128, 128, 1, 0.66}, {128, 256, 1, 1.31}};

struct Shape {
  std::uint64_t m, n, k;
  std::uint32_t multiprocessors;

  bool decodes() const noexcept { return m <= kMostDecodeTokens; }
  std::uint64_t decode_tokens() const noexcept { return m <= 8 ? 8 : 16; }
  std::uint32_t decode_tiles() const noexcept {
    return m <= 8 ? kSmallDecodeTiles : static_cast<std::uint32_t>(std::size(kDecodeTiles));
  }
};

inline std::uint64_t blocks_of(const DecodeTile& tile, const Shape& shape) noexcept {
  return ceil_div(shape.n, tile.rows) * ceil_div(shape.m, shape.decode_tokens());
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

/// All there are for a shape.
struct Tactics {
  GemmTactic all[std::size(kPrefillTiles) * 3];
  std::size_t count = 0;
};

inline Tactics tactics_of(const Shape& shape) noexcept {
  Tactics found;
  if (shape.decodes()) {
    for (std::uint32_t tile = 0; tile < shape.decode_tiles(); ++tile) {
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
  const std::size_t which = shape.decode_tokens() == 8 ? 0 : 1;
  const std::uint64_t shared_turns = turns / 2;
  return static_cast<double>(shared_turns) * tile.shared[which] +
         static_cast<double>(turns % 2) * tile.alone[which];
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
  const auto time = [&](const GemmTactic& tactic) {
    return shape.decodes() ? estimate(kDecodeTiles[tactic.tile], shape)
                           : estimate(kPrefillTiles[tactic.tile], tactic.splits, shape);
  };
  return *std::min_element(
      tactics.all, tactics.all + tactics.count,
      [&](const GemmTactic& a, const GemmTactic& b) { return time(a) < time(b); });
}

static_assert(
    [] {
      for (const TunedGemm& row : kTunedRows) {
        if (row.m <= 8 && row.tactic.tile >= kSmallDecodeTiles) {
          return false;
        }
      }
      return true;
    }(),
    "8 tokens have no such tile");

/// The tuned one, where the shape was measured on a card like this.
inline GemmTactic tactic_of(const Shape& shape) noexcept {
  const GemmTactic* const tuned = kTuned.find(shape.m, shape.n, shape.k, shape.multiprocessors);
  return tuned != nullptr ? *tuned : estimated_tactic(shape);
}

}  // namespace cukiln::nvfp4::sm90
