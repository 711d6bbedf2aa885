// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/host/sm90_plan.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "nvfp4/host/w4a16_plan.hpp"
#include "support/paths.hpp"

namespace cukiln::nvfp4::sm90 {
namespace {

constexpr std::uint32_t kH200 = 132;

Shape shape(std::uint64_t m, std::uint64_t n, std::uint64_t k) { return {m, n, k, kH200}; }

constexpr GemmTable kNotMeasured = {nullptr, 0, 0};

GemmTactic estimated(const Tiles& tiles, const Shape& of) {
  return select_tactic(tiles, kNotMeasured, of);
}

std::uint32_t decode_rows(std::uint64_t m, std::uint64_t n) {
  return kDecodeTiles[estimated(kTiles, shape(m, n, 7168)).kernel].rows;
}

struct Chosen {
  std::uint32_t tokens, rows, splits;
  bool operator==(const Chosen&) const = default;
};
Chosen prefill(std::uint64_t m, std::uint64_t n, std::uint64_t k) {
  const GemmTactic tactic = estimated(kTiles, shape(m, n, k));
  const PrefillTile& tile = kPrefillTiles[tactic.kernel - kTiles.decode_count];
  return {tile.tokens, tile.rows, tactic.splits};
}

// As scripts/tune --times names it.
std::string name_of(const Tiles& tiles, const GemmTactic& tactic) {
  return std::string(short_name(tiles.kernel_name(tactic.kernel))) + "/" +
         std::to_string(tactic.splits);
}

}  // namespace

TEST_CASE("a few tokens take the tile of weights that should be fastest for its number of rows") {
  CHECK(decode_rows(8, 2048) == 16);
  CHECK(decode_rows(8, 4096) == 32);
  CHECK(decode_rows(8, 7168) == 56);
  CHECK(decode_rows(16, 7168) == 56);
  CHECK(decode_rows(16, 4096) == 32);
  CHECK(decode_rows(16, 8192) == 64);
  CHECK(decode_rows(16, 18432) == 144);
  CHECK(decode_rows(32, 7168) == 56);
  CHECK(decode_rows(32, 10240) == 80);
}

TEST_CASE("every tile for a few tokens is the fastest for some number of rows") {
  for (const Tiles& tiles : {kTiles, w4a16::kTiles}) {
    for (std::uint32_t tile = 0; tile < tiles.decode_count; ++tile) {
      CAPTURE(tile);
      bool chosen = false;
      for (std::uint64_t n = 1024; n <= 40960 && !chosen; n += 512) {
        chosen = estimated(tiles, shape(tiles.decode[tile].tokens, n, 7168)).kernel == tile;
      }
      CHECK(chosen);
    }
  }
}

TEST_CASE("many tokens take the tile and the split of K that should be fastest") {
  CHECK(prefill(64, 2048, 7168) == Chosen{32, 128, 3});
  CHECK(prefill(64, 7168, 7168) == Chosen{64, 128, 4});
  CHECK(prefill(128, 7168, 7168) == Chosen{128, 128, 2});
  CHECK(prefill(256, 7168, 7168) == Chosen{128, 128, 1});
  CHECK(prefill(4096, 7168, 7168) == Chosen{128, 256, 1});
}

TEST_CASE("for weights that no table has it selects what is hardly slower than the fastest") {
  std::ifstream file(testing::sources() + "/tests/golden/sm90_times.txt");
  std::map<std::string, std::vector<double>> losses;  // by activations
  for (std::string line; std::getline(file, line);) {
    if (line[0] == '#') continue;
    CAPTURE(line);
    std::istringstream words(line);
    std::string activations, tactic;
    Shape of = shape(0, 0, 0);
    words >> activations >> of.m >> of.n >> of.k;
    words.ignore(2, ' ');
    std::map<std::string, double> times;
    for (double us = 0; words >> tactic >> us; words.ignore(2, ' ')) times[tactic] = us;
    const Tiles& tiles = activations == "bf16" ? w4a16::kTiles : kTiles;
    const std::string selected = name_of(tiles, estimated(tiles, of));
    CAPTURE(selected);
    REQUIRE(times.count(selected) == 1);  // slow ones are left out
    const auto fastest =
        std::min_element(times.begin(), times.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    losses[activations].push_back(times[selected] / fastest->second - 1);
    CHECK(losses[activations].back() < 0.2);
  }
  REQUIRE(losses.size() == 2);
  std::vector<double> unseen(losses["bf16"].end() - 100,
                             losses["bf16"].end());  // not used for the model
  std::sort(unseen.begin(), unseen.end());
  CHECK(unseen[95] < 0.1);
  for (const auto& [activations, of] : losses) {
    CAPTURE(activations);
    CHECK(of.size() > 200);
    CHECK(std::accumulate(of.begin(), of.end(), 0.0) / static_cast<double>(of.size()) < 0.015);
  }
}

TEST_CASE("K is split only where all clusters run at once") {
  for (const Tiles& tiles : {kTiles, w4a16::kTiles}) {
    for (std::uint64_t m = 33; m <= 8192; m += 31) {
      for (std::uint64_t n = 128; n <= 32768; n += 1160) {
        CAPTURE(m);
        CAPTURE(n);
        for (const GemmTactic& tactic : tactics_of(tiles, shape(m, n, 7168))) {
          const PrefillTile& tile = tiles.prefill[tactic.kernel - tiles.decode_count];
          CHECK((tactic.splits == 1 || tile_count(tile, shape(m, n, 7168)) * tactic.splits <=
                                           std::uint64_t{kH200} * tile.blocks_per_sm));
          CHECK((!tile.is_skinny() || tactic.splits != 3));  // its items divide by two and four
        }
      }
    }
    const Shape whole = shape(33, 128, 32);  // K cannot be split
    CHECK(tactics_of(tiles, whole).count ==
          std::count_if(tiles.prefill, tiles.prefill + tiles.prefill_count,
                        [&](const PrefillTile& tile) { return may_take(tiles, tile, whole); }));
    const GemmTactics all = tactics_of(tiles, shape(64, 4096, 4096));
    CHECK(std::count_if(all.begin(), all.end(),
                        [](const GemmTactic& tactic) { return tactic.splits == 3; }) > 0);
  }
}

TEST_CASE(
    "thread blocks have an SM each, but where the next launch's could not start beside them") {
  CHECK(one_cta_per_sm(kTiles, 132, 1, kH200));
  CHECK(one_cta_per_sm(w4a16::kTiles, 123, 1, kH200));
  CHECK(!one_cta_per_sm(w4a16::kTiles, 124, 1, kH200));  // nearly all SMs
  CHECK(!one_cta_per_sm(kTiles, 133, 1, kH200));
  CHECK(one_cta_per_sm(kTiles, 114, 3, kH200));
  CHECK(!one_cta_per_sm(kTiles, 120, 3, kH200));  // clusters of three do not fit everywhere
  CHECK(!one_cta_per_sm(kTiles, 116, 4, kH200));
}

TEST_CASE("a small last wave of tiles is split in a launch of its own") {
  REQUIRE(kPrefillTiles[2].tokens == 128);
  REQUIRE(kPrefillTiles[2].rows == 128);
  const auto last = [](std::uint64_t m, std::uint64_t n, std::uint64_t k,
                       std::uint32_t splits = 1) {
    const TailWave found = tail_wave(kTiles, 2, splits, shape(m, n, k));
    return found.first_row == n ? 0 : found.first_row;
  };
  CHECK(last(128, 18432, 7168) == 132 * 128);  // 144 tiles
  CHECK(last(256, 18432, 7168) == 132 * 128);  // 288, two waves are 264
  CHECK(last(128, 18432, 7168, 2) == 0);       // K is split already
  CHECK(last(128, 132 * 128, 7168) == 0);      // whole waves
  CHECK(last(128, 7168, 7168) == 0);           // less than one
  CHECK(last(128, 199 * 128, 7168) == 0);      // 67 tiles: two parts of each are too many
  CHECK(last(128, 198 * 128, 7168) == 132 * 128);
  CHECK(last(128, 18432, 4064) == 0);  // short K
  CHECK(last(1024, 167 * 128, 7168) ==
        165 * 128);                              // many waves: eight tiles of tokens, ten of them
  CHECK(last(300, 89 * 128, 7168) == 88 * 128);  // three tiles of tokens: 264 are two waves
  const TailWave halves = tail_wave(kTiles, 2, 1, shape(128, 18432, 7168));
  CHECK(halves.splits == 4);
  CHECK(kPrefillTiles[halves.tile].tokens == 64);
  CHECK(tail_wave(kTiles, 2, 1, shape(128, 152 * 128, 7168)).tile == 2);  // 40 halves are too many
  CHECK(tail_wave(kTiles, 2, 1, shape(128, 160 * 128, 7168)).splits == 4);  // of 28 tiles
  CHECK(tail_wave(kTiles, 2, 1, shape(128, 170 * 128, 7168)).splits == 3);
  CHECK(tail_wave(kTiles, 2, 1, shape(128, 171 * 128, 7168)).splits == 2);
  CHECK(tail_wave(kTiles, 0, 1, shape(32, 18432, 7168)).tile == 0);  // no halves
}

TEST_CASE("tiles whose kind takes a second kernel have one, and last rows are not helped") {
  for (const Tiles& tiles : {kTiles, w4a16::kTiles}) {
    for (std::uint32_t i = 0; i < tiles.prefill_count; ++i) {
      const PrefillTile& tile = tiles.prefill[i];
      CAPTURE(std::string(tile.name));
      CHECK((tile.second_kernel != nullptr) ==
            (tile.kind == PrefillKind::paired || tile.has_tail()));
      // 20 tiles behind a whole wave: with half as many tokens they would be too many.
      const TailWave last = tail_wave(tiles, i, 1, shape(tile.tokens, 152 * tile.rows, 4128));
      CHECK(last.splits == 4);
      CHECK(tiles.prefill[last.tile].tokens == tile.tokens);
      CHECK(!tiles.prefill[last.tile].has_tail());
    }
  }
}

TEST_CASE("skinny tiles take as many tokens as they have, and more than half") {
  std::uint32_t skinny = 0;
  for (const PrefillTile& tile : w4a16::kPrefillTiles) {
    if (!tile.is_skinny()) continue;
    ++skinny;
    for (const std::uint64_t m : {1, 16, 17, 32, 33, 64, 65, 128, 129, 4096}) {
      CAPTURE(m);
      CHECK(may_take(w4a16::kTiles, tile, shape(m, 4096, 4096)) ==
            (m > tile.tokens / 2 && m <= tile.tokens));
    }
    // Nor in a launch of the last rows, which would take more tiles of half as many tokens; nor do
    // three CTAs split its K there.
    const auto index = static_cast<std::uint32_t>(&tile - w4a16::kPrefillTiles);
    const TailWave last = tail_wave(w4a16::kTiles, index, 1, shape(tile.tokens, 17416, 4128));
    CHECK(last.first_row < 17416);
    CHECK(w4a16::kPrefillTiles[last.tile].tokens == tile.tokens);
    CHECK(tail_wave(w4a16::kTiles, index, 1, shape(tile.tokens, 132 * 64 + 36 * 64, 4128)).splits ==
          2);
  }
  CHECK(skinny == 4);
}

TEST_CASE("tail CTAs take the SMs that two CTAs for each tile leave, and as much to do") {
  const PrefillTile& tile = w4a16::kPrefillTiles[w4a16::kTiles.prefill_count - 1];
  REQUIRE(tile.has_tail());
  const auto tail = [&](std::uint64_t m, std::uint64_t n, std::uint64_t k) {
    const TailSplit found = tail_split(tile, shape(m, n, k));
    CHECK((may_split(tile, 2, shape(m, n, k)) == (found.k_groups > 0)));
    CHECK(!may_split(tile, 1, shape(m, n, k)));
    CHECK(!may_split(tile, 3, shape(m, n, k)));
    return std::pair{found.tail_ctas, found.k_groups};
  };
  CHECK(tail(256, 7168, 7168) == std::pair{20u, 6u});  // 56 tiles, three for each CTA
  CHECK(tail(256, 7168, 18432) == std::pair{20u, 18u});
  CHECK(tail(256, 5120, 8192) == std::pair{40u, 20u});  // a CTA for each tile
  CHECK(tail(256, 39 * 128, 8192) == std::pair{40u, 20u});
  CHECK(tail(256, 8192, 8192).second == 0);      // 64 tiles, four CTAs
  CHECK(tail(256, 66 * 128, 7168).second == 0);  // no SM is left
  CHECK(tail(256, 7168, 4096).second == 0);      // short K
  CHECK(tail_split(tile, {256, 7168, 7168, 133}).tail_ctas == 20);
  CHECK(tail_split(tile, {256, 71 * 128, 18432, 200}).k_groups > 0);
  CHECK(tail_split(tile, {256, 72 * 128, 18432, 200}).k_groups ==
        0);  // more than a workspace holds
  CHECK(may_take(w4a16::kTiles, tile, shape(129, 7168, 7168)));
  CHECK(!may_take(w4a16::kTiles, tile, shape(128, 7168, 7168)));
}

TEST_CASE("the rows of a launch of their own begin with whole block scales") {
  for (std::uint32_t tile = 0; tile < w4a16::kTiles.prefill_count; ++tile) {
    for (const std::uint32_t num_sms : {114, 131, 132}) {
      CAPTURE(tile);
      CAPTURE(num_sms);
      const std::uint64_t m = w4a16::kPrefillTiles[tile].tokens;
      for (std::uint64_t n = 4096; n < 40960; n += 8) {
        const TailWave last = tail_wave(w4a16::kTiles, tile, 1, {m, n, 4096, num_sms});
        if (last.first_row != n && last.first_row % 128 != 0) FAIL_CHECK(n);
      }
    }
  }
}

TEST_CASE("few tokens take tiles for prefill only if these need no workspace and are half full") {
  const auto prefill_tactics = [](const Tiles& tiles, std::uint64_t m) {
    const GemmTactics all = tactics_of(tiles, shape(m, 7168, 7168));
    return std::count_if(all.begin(), all.end(), [&](const GemmTactic& tactic) {
      const bool is_prefill = tactic.kernel >= tiles.decode_count;
      CHECK((!is_prefill || m > tiles.prefill[tactic.kernel - tiles.decode_count].tokens / 2));
      return is_prefill;
    });
  };
  for (const std::uint64_t m : {1, 8, 16, 17, 32}) {
    CAPTURE(m);
    CHECK(prefill_tactics(kTiles, m) == 0);
    CHECK((prefill_tactics(w4a16::kTiles, m) > 0) == (m > 16));
  }
}

TEST_CASE("every row of the tables is in order, and names a tactic that its shape has") {
  const struct {
    const Tiles& tiles;
    const GemmTable& table;
  } families[] = {{kTiles, kTuned}, {w4a16::kTiles, w4a16::kTuned}};
  for (const auto& [tiles, table] : families) {
    const TunedGemm* before = nullptr;
    for (const TunedGemm& row : table) {
      CAPTURE(row.n);
      CAPTURE(row.k);
      CAPTURE(row.m);
      CHECK(row.n % 8 == 0);
      CHECK(row.k % 32 == 0);
      const bool continues = before != nullptr && before->n == row.n && before->k == row.k;
      if (continues) {
        CHECK(before->m < row.m);
      } else if (before != nullptr) {
        CHECK((before->n != row.n ? before->n < row.n : before->k < row.k));
      }
      // A row also serves fewer tokens, from where the one before it ends.
      const std::uint64_t first = continues ? before->m + 1 : 1;
      for (const std::uint64_t m : {first, std::uint64_t{row.m}}) {
        const Shape here = {m, row.n, row.k, table.num_sms};
        const GemmTactics all = tactics_of(tiles, here);
        const GemmTactic selected = select_tactic(tiles, table, here);
        CHECK(std::find(all.begin(), all.end(), selected) != all.end());
        CHECK(selected == row.tactic);
      }
      before = &row;
    }
  }
}

TEST_CASE("fault 415: a row of a table means the kernel that it names, wherever that is") {
  constexpr std::array<MeasuredRow, 2> kRows = {
      {{64, 32, 8, "decode_8x2", 1}, {64, 32, 64, "prefill_64x128", 2}}};
  constexpr const char* kBefore[] = {"nvfp4_gemm_decode_8x2", "nvfp4_gemm_prefill_64x128"};
  constexpr const char* kAfter[] = {"nvfp4_gemm_decode_8x1", "nvfp4_gemm_prefill_64x128",
                                    "nvfp4_gemm_decode_8x2"};
  const auto before = find_kernels(kRows, [&](std::uint32_t i) { return kBefore[i]; });
  const auto after = find_kernels(kRows, [&](std::uint32_t i) { return kAfter[i]; });
  CHECK(before[0].tactic == GemmTactic{0, 1});
  CHECK(before[1].tactic == GemmTactic{1, 2});
  CHECK(after[0].tactic == GemmTactic{2, 1});
  CHECK(after[1].tactic == GemmTactic{1, 2});
}

TEST_CASE("a shape takes the first row that has as many tokens, and else none") {
  static constexpr TunedGemm kRows[] = {
      {64, 32, 8, {1, 1}}, {64, 32, 32, {2, 1}}, {64, 96, 8, {0, 1}}, {128, 32, 8, {3, 2}}};
  static constexpr GemmTable kTable = {kRows, std::size(kRows), kH200};
  const auto tile = [](std::uint64_t m, std::uint64_t n, std::uint64_t k,
                       std::uint32_t num_sms = kH200) {
    const GemmTactic* const found = kTable.find(m, n, k, num_sms);
    return found != nullptr ? found->kernel : -1;
  };
  CHECK(tile(1, 64, 32) == 1);
  CHECK(tile(8, 64, 32) == 1);
  CHECK(tile(9, 64, 32) == 2);
  CHECK(tile(33, 64, 32) == -1);
  CHECK(tile(8, 64, 64) == -1);
  CHECK(tile(8, 64, 96) == 0);
  CHECK(tile(1, 128, 32) == 3);
  CHECK(tile(9, 128, 32) == -1);
  CHECK(tile(1, 256, 32) == -1);
  CHECK(tile(8, 64, 32, kH200 - 18) == -1);  // another card
  CHECK(GemmTable{nullptr, 0, kH200}.find(8, 64, 32, kH200) == nullptr);
}

}  // namespace cukiln::nvfp4::sm90
