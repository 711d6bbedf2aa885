// SPDX-License-Identifier: Apache-2.0
// What W4A4 and W4A16 launch on sm_90a, and on devices without kernels of their own.
#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/nvfp4/w4a16_plan.hpp"
#include "nvrtc/launch_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using nvfp4::sm90::ceil_div;
using nvfp4::sm90::DecodeTile;
using nvfp4::sm90::PrefillTile;
using nvfp4::sm90::Tiles;

namespace {

struct W4a4 : GemmFixture {
  using GemmFixture::GemmFixture;
  static constexpr const Tiles& kTiles = nvfp4::sm90::kTiles;
  static constexpr const char* kPrefix = "nvfp4_gemm_";
  static constexpr const char* kPrepare = "nvfp4_gemm_expand";
  static constexpr bool kPreparesEarly = false;
  static constexpr std::uint32_t kPrefillBytes = 0;  // where no SM has two thread blocks
};

struct W4a16 : W4a16Fixture {
  using W4a16Fixture::W4a16Fixture;
  static constexpr const Tiles& kTiles = nvfp4::w4a16::kTiles;
  static constexpr const char* kPrefix = "w4a16_gemm_";
  static constexpr const char* kPrepare = "w4a16_gemm_arrange";
  static constexpr bool kPreparesEarly = true;
  static constexpr std::uint32_t kPrefillBytes = 117 * 1024;
};

template <class Family>
std::string name_of(const DecodeTile& tile) {
  return Family::kPrefix + std::string("decode_") + std::to_string(tile.tokens) + "x" +
         std::to_string(tile.rows / 8);
}

template <class Family>
std::string name_of(const PrefillTile& tile) {
  return Family::kPrefix + std::string("prefill_") + std::to_string(tile.tokens) + "x" +
         std::to_string(tile.rows);
}

template <class Family>
void check_few_tokens(Family& device, int m) {
  constexpr std::int64_t kRows = 7176;
  const auto [first, tiles] = Family::kTiles.decode_for(static_cast<std::uint64_t>(m));
  REQUIRE(tiles >= 3);
  REQUIRE(device.gemm.tactics(m, kRows, 2048) == static_cast<int>(tiles));
  for (std::uint32_t i = 0; i < tiles; ++i) {
    CAPTURE(i);
    const DecodeTile& tile = Family::kTiles.decode[first + i];
    nvfp4::GemmOptions options = with_tactic(static_cast<int>(i));
    options.constant_b = true;
    const std::size_t before = device.fake.launches();
    REQUIRE(device.launch(m, kRows, 2048, options));
    CHECK(device.fake.launches() == before + 1);
    const FakeLaunch last = device.fake.last_launch();
    CHECK(last.kernel == name_of<Family>(tile));
    CHECK(last.grid[0] == ceil_div(kRows, tile.rows));
    CHECK(last.grid[1] == 1);
    CHECK(last.block[0] == (m <= 16 ? 288 : 384));
    CHECK(last.shared_bytes >= tile.shared_bytes);
    CHECK(last.programmatic);
  }
  CHECK(!device.launch(m, kRows, 2048, with_tactic(static_cast<int>(tiles))));
  CHECK(device.gemm.workspace_bytes(m, kRows, 2048) == 0);
}

template <class Family>
void check_many_tokens(Family& device, int m) {
  const auto tactics = tactics_of(Family::kTiles, {static_cast<std::uint64_t>(m), 4096, 2080, 148});
  REQUIRE(tactics.count >= Family::kTiles.prefill_count);
  REQUIRE(device.gemm.tactics(m, 4096, 2080) == static_cast<int>(tactics.count));
  for (std::size_t i = 0; i < tactics.count; ++i) {
    CAPTURE(i);
    const nvfp4::GemmTactic& tactic = tactics.all[i];
    const PrefillTile& tile = Family::kTiles.prefill[tactic.tile - Family::kTiles.decode_count];
    const std::size_t before = device.fake.launches();
    REQUIRE(device.launch(m, 4096, 2080, with_tactic(static_cast<int>(i))));
    CHECK(device.fake.launches() == before + 2);
    FakeLaunch launched{};
    REQUIRE(device.fake.launch(1, &launched));
    CHECK(launched.kernel == std::string(Family::kPrepare));
    CHECK(launched.programmatic == Family::kPreparesEarly);
    REQUIRE(device.fake.launch(0, &launched));
    CHECK(launched.kernel == name_of<Family>(tile));
    CHECK(launched.programmatic);
    CHECK(launched.block[0] == 384);
    CHECK(launched.grid[0] % tactic.splits == 0);
    CHECK(launched.cluster[0] == (tactic.splits == 1 ? 0 : tactic.splits));
    const bool alone = launched.grid[0] <= 148;
    CHECK(launched.shared_bytes == std::max(tile.shared_bytes, alone ? Family::kPrefillBytes : 0));
  }
}

}  // namespace

// Compiling takes most of the time: one device serves all shapes.
TEST_CASE_TEMPLATE("few tokens on sm_90a are one launch, many are two, with every tactic", Family,
                   W4a4, W4a16) {
  Family device(90);
  for (const int m : {1, 8, 9, 16, 17, 32}) {
    CAPTURE(m);
    check_few_tokens(device, m);
  }
  constexpr std::size_t kWorkspace = 300 * 2176 * 2;  // whole groups of 128
  CHECK(device.gemm.workspace_bytes(300, 4096, 2080) == kWorkspace);
  device.workspace = {address<void>(0x1000000), kWorkspace - 1};
  CHECK(device.launch(300, 4096, 2080).error().message() ==
        "workspace has 1305599 bytes; 1305600 are expected, see workspace_bytes()");
  device.workspace.bytes = kWorkspace;
  for (const int m : {33, 40, 300}) {
    CAPTURE(m);
    check_many_tokens(device, m);
  }
}

TEST_CASE_TEMPLATE("a device without kernels of its own uses those for few tokens", Family, W4a4,
                   W4a16) {
  Family device(120);
  for (const int m : {1, 16, 100}) {
    CAPTURE(m);
    REQUIRE(device.gemm.tactics(m, 4096, 2048) == 3);
    for (int i = 0; i < 3; ++i) {
      REQUIRE(device.launch(m, 4096, 2048, with_tactic(i)));
      const FakeLaunch last = device.fake.last_launch();
      const auto fit = Family::kTiles.decode_for(m <= 8 ? 8 : 16);
      const DecodeTile& tile = Family::kTiles.decode[fit.first + static_cast<unsigned>(i)];
      CHECK(last.kernel == name_of<Family>(tile));
      CHECK(last.grid[0] == ceil_div(4096, tile.rows));
      CHECK(last.grid[1] == ceil_div(static_cast<std::uint64_t>(m), tile.tokens));
      CHECK(last.shared_bytes == tile.shared_bytes);
    }
    CHECK(device.launch(m, 4096, 2048));
    CHECK(device.gemm.workspace_bytes(m, 4096, 2048) == 0);
  }
  REQUIRE(device.launch(65535 * 16, 64, 2048));
  CHECK(device.fake.last_launch().grid[1] == 65535);
  const auto refused = device.launch(65535 * 16 + 1, 64, 2048);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::invalid_argument);
  CHECK(refused.error().message() ==
        "a is [1048561, 2048]; at most 1048560 rows are expected on this device, which has no "
        "kernels for many tokens: launch parts of the rows one by one");
}

TEST_CASE("W4A16 takes the kernels that every device has on sm_100a, and says what it refuses") {
  W4a16 device(100);
  REQUIRE(device.launch(96, 4096, 2048));
  CHECK(std::string(device.fake.last_launch().kernel) == "w4a16_gemm_decode_16x7");
  const auto refusal = [&](std::int64_t n, std::int64_t k, std::int64_t gap = 0) {
    const auto launched = device.launch(4, n, k, {}, gap);
    return launched ? "" : launched.error().message();
  };
  CHECK(refusal(128, 48) ==
        "b is [128, 48]; a positive multiple of 32 columns is expected, which are summed over");
  CHECK(refusal(100, 64) == "b is [100, 64]; a multiple of 8 rows is expected");
  CHECK(refusal(128, 64, 4) ==
        "a has a row stride of 68; a multiple of 8, no less than its 64 columns, is expected");
  CHECK(refusal(128, 64, -8) ==
        "a has a row stride of 56; a multiple of 8, no less than its 64 columns, is expected");
  device.tokens = address<std::uint16_t>(0x10008);
  CHECK(refusal(128, 64).find("is not a multiple of 16 bytes") != std::string::npos);
  CHECK(device.launch(0, 128, 64));
  const nvfp4::W4a16Gemm empty;
  CHECK(empty.tactics(1, 128, 64) == 0);
  CHECK(empty.workspace_bytes(100, 128, 64) == 0);
  CHECK(empty.tactic(1, 128, 64).error().message() == "an empty GEMM: make it with create");
}
