// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "kernels/nvfp4/sm90_plan.hpp"
#include "nvrtc/launch_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using nvfp4::sm90::ceil_div;
using nvfp4::sm90::decode_tiles;
using nvfp4::sm90::DecodeTile;
using nvfp4::sm90::kDecodeTiles;
using nvfp4::sm90::kPrefillTiles;

namespace {

struct Sm90Fixture : GemmFixture {
  Sm90Fixture() : GemmFixture(90) {}
};

struct OtherFixture : GemmFixture {
  OtherFixture() : GemmFixture(120) {}
};

std::string name_of(const DecodeTile& tile) {
  return "nvfp4_gemm_decode_" + std::to_string(tile.tokens) + "x" + std::to_string(tile.rows / 8);
}

}  // namespace

TEST_CASE_FIXTURE(Sm90Fixture, "few tokens on sm_90a are one launch, with every tile") {
  constexpr std::int64_t kRows = 7176;
  for (const int m : {1, 8, 9, 16, 17, 32}) {
    CAPTURE(m);
    const auto [first, tiles] = decode_tiles(m <= 8 ? 8 : m <= 16 ? 16 : 32);
    REQUIRE(gemm.tactics(m, kRows, 2048) == static_cast<int>(tiles));
    REQUIRE(tiles > 0);
    for (int i = 0; i < static_cast<int>(tiles); ++i) {
      CAPTURE(i);
      const DecodeTile& tile = kDecodeTiles[first + static_cast<unsigned>(i)];
      nvfp4::GemmOptions options = with_tactic(i);
      options.constant_b = true;
      REQUIRE(launch(m, kRows, 2048, options));
      const FakeLaunch last = fake.last_launch();
      CHECK(last.kernel == name_of(tile));
      CHECK(last.grid[0] == ceil_div(kRows, tile.rows));
      CHECK(last.grid[1] == 1);
      CHECK(last.block[0] == (m <= 16 ? 288 : 384));
      CHECK(last.shared_bytes >= tile.shared_bytes);
      CHECK(last.programmatic);
    }
    CHECK(!launch(m, kRows, 2048, with_tactic(static_cast<int>(tiles))));
    CHECK(gemm.workspace_bytes(m, kRows, 2048) == 0);
  }
}

TEST_CASE_FIXTURE(Sm90Fixture,
                  "many tokens on sm_90a are dequantised, then multiplied by the other module") {
  constexpr std::size_t kWorkspace = 300 * 2048 * 2;
  CHECK(gemm.workspace_bytes(300, 4096, 2048) == kWorkspace);
  workspace = {address<void>(0x1000000), kWorkspace - 1};
  CHECK(launch(300, 4096, 2048).error().message() ==
        "workspace has 1228799 bytes; 1228800 are expected, see workspace_bytes()");
  workspace.bytes = kWorkspace;
  for (int tactic = 0; tactic < gemm.tactics(300, 4096, 2048); ++tactic) {
    CAPTURE(tactic);
    const auto chosen =
        nvfp4::sm90::tactics_of({300, 4096, 2048, 148}).all[static_cast<std::size_t>(tactic)];
    const auto& tile = kPrefillTiles[chosen.tile];
    const std::size_t before = fake.launches();
    REQUIRE(launch(300, 4096, 2048, with_tactic(tactic)));
    CHECK(fake.launches() == before + 2);
    FakeLaunch launched{};
    REQUIRE(fake.launch(1, &launched));
    CHECK(launched.kernel == std::string("nvfp4_gemm_expand"));
    REQUIRE(fake.launch(0, &launched));
    CHECK(launched.kernel ==
          "nvfp4_gemm_prefill_" + std::to_string(tile.tokens) + "x" + std::to_string(tile.rows));
    CHECK(launched.block[0] == 384);
    CHECK(launched.grid[0] % chosen.splits == 0);
  }
}

TEST_CASE_FIXTURE(OtherFixture, "a device without kernels of its own uses those for few tokens") {
  for (const int m : {1, 16, 100}) {
    CAPTURE(m);
    REQUIRE(gemm.tactics(m, 4096, 2048) == 3);
    for (int tile = 0; tile < 3; ++tile) {
      REQUIRE(launch(m, 4096, 2048, with_tactic(tile)));
      const FakeLaunch last = fake.last_launch();
      const DecodeTile& expected =
          kDecodeTiles[decode_tiles(m <= 8 ? 8 : 16).first + static_cast<unsigned>(tile)];
      CHECK(last.kernel == name_of(expected));
      CHECK(last.grid[1] == ceil_div(static_cast<std::uint64_t>(m), expected.tokens));
      CHECK(last.shared_bytes == expected.shared_bytes);
    }
  }
  CHECK(gemm.workspace_bytes(100, 4096, 2048) == 0);
  REQUIRE(launch(65535 * 16, 64, 2048));
  CHECK(fake.last_launch().grid[1] == 65535);
  const auto refused = launch(65535 * 16 + 1, 64, 2048);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::invalid_argument);
  CHECK(refused.error().message() ==
        "a is [1048561, 2048]; at most 1048560 rows are expected on this device, which has no "
        "kernels for many tokens: launch parts of the rows one by one");
}
