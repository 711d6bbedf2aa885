#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace cukiln::nvfp4::sm90 {

// Which tile for which shape. Times are an H200's, K = 7168; what counts is their ratios.

inline constexpr std::uint32_t kGroupK = 128;  ///< what the kernels take of K at a time
inline constexpr std::uint32_t kMostSplits = 4;

inline std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) noexcept { return (a + b - 1) / b; }

struct DecodeTile {
  std::uint32_t rows;
  double alone;   // microseconds of a block that has its multiprocessor to itself,
  double shared;  // and of two that share it; an H200, K = 7168
};
inline constexpr DecodeTile kDecodeTiles[] = {{16, 6.3, 8.5}, {32, 7.6, 13.6}, {56, 13.0, 20.0}};

// The tile whose blocks end first: two blocks to a multiprocessor, wave after wave.
inline std::size_t decode_tile_for(std::uint64_t n, std::uint64_t token_tiles,
                                   std::uint32_t multiprocessors) noexcept {
  std::size_t best = 0;
  double least = 0;
  for (std::size_t i = 0; i < std::size(kDecodeTiles); ++i) {
    const DecodeTile& tile = kDecodeTiles[i];
    const std::uint64_t blocks = ceil_div(n, tile.rows) * token_tiles;
    const std::uint64_t turns = ceil_div(blocks, multiprocessors);
    const std::uint64_t shared_turns = turns / 2;
    const double time = static_cast<double>(shared_turns) * tile.shared +
                        static_cast<double>(turns % 2) * tile.alone;
    if (i == 0 || time < least) {
      best = i;
      least = time;
    }
  }
  return best;
}

struct PrefillTile {
  std::uint32_t tokens;
  std::uint32_t rows;
  std::uint32_t resident;  // thread blocks that share a multiprocessor
  double group;            // microseconds for 128 of K, on a full multiprocessor; an H200
};
inline constexpr PrefillTile kPrefillTiles[] = {
    {32, 128, 2, 0.95}, {64, 128, 2, 1.05}, {128, 128, 1, 0.66}, {128, 256, 1, 1.31}};

// What adding a cluster's parts of a tile costs, in microseconds; an H200.
inline double split_cost(const PrefillTile& tile) noexcept {
  return 2.0 + 3.0 * tile.tokens * tile.rows / (128 * 128);
}

struct PrefillPlan {
  std::size_t tile;
  std::uint32_t splits;  // of K, by a cluster
  std::uint64_t tiles;
};

inline PrefillPlan prefill_plan_for(std::uint64_t m, std::uint64_t n, std::uint64_t k,
                                    std::uint32_t multiprocessors) noexcept {
  const std::uint64_t groups = ceil_div(k, kGroupK);
  PrefillPlan best{};
  double least = 0;
  for (std::size_t i = 0; i < std::size(kPrefillTiles); ++i) {
    const PrefillTile& tile = kPrefillTiles[i];
    const std::uint64_t tiles = ceil_div(m, tile.tokens) * ceil_div(n, tile.rows);
    for (std::uint32_t splits = 1; splits <= kMostSplits && splits <= groups; splits *= 2) {
      const std::uint64_t blocks = tiles * splits;
      // Clusters are for one wave that would not fill the card, and those of four do not find room
      // on its last multiprocessors.
      const std::uint64_t room = std::uint64_t{multiprocessors} * tile.resident;
      if (splits > 1 && blocks > (splits == 4 ? room * 7 / 8 : room)) {
        break;
      }
      const std::uint64_t turns = ceil_div(blocks, multiprocessors);
      const std::uint64_t waves = ceil_div(turns, tile.resident);
      // A block that has its multiprocessor to itself is faster, but not by much.
      const double share = turns < tile.resident ? 0.6 : 1.0;
      const double time =
          static_cast<double>(waves * ceil_div(groups, splits)) * tile.group * share +
          (splits > 1 ? split_cost(tile) : 0);
      if (least == 0 || time < least) {
        best = {i, splits, tiles};
        least = time;
      }
    }
  }
  return best;
}

}  // namespace cukiln::nvfp4::sm90
