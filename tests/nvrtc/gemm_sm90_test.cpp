#include <string>

#include "kernels/nvfp4/sm90_plan.hpp"
#include "nvrtc/launch_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using nvfp4::sm90::ceil_div;
using nvfp4::sm90::kDecodeTiles;
using nvfp4::sm90::kPrefillTiles;

namespace {

struct Sm90Fixture : GemmFixture {
  Sm90Fixture() : GemmFixture(90) {}
};

struct OtherFixture : GemmFixture {
  OtherFixture() : GemmFixture(120) {}
};

std::string decode_name(int tokens, std::uint32_t rows) {
  return "nvfp4_gemm_decode_" + std::to_string(tokens) + "x" + std::to_string(rows / 8);
}

}  // namespace

TEST_CASE_FIXTURE(Sm90Fixture,
                  "few tokens on sm_90a are one launch, for every tile that they have") {
  constexpr std::int64_t kRows = 7176;
  for (const int m : {1, 8, 9, 16}) {
    CAPTURE(m);
    const int tiles = gemm.tactics(m, kRows, 2048);
    REQUIRE(tiles == (m <= 8 ? 3 : 4));
    for (int tile = 0; tile < tiles; ++tile) {
      CAPTURE(tile);
      REQUIRE(gemm.launch(nullptr, output, a, b, nullptr, m, kRows, 2048, nullptr, {true, tile}));
      const FakeLaunch last = fake.last_launch();
      CHECK(std::string(last.kernel) == decode_name(m <= 8 ? 8 : 16, kDecodeTiles[tile].rows));
      CHECK(last.grid[0] == ceil_div(kRows, kDecodeTiles[tile].rows));
      CHECK(last.grid[1] == 1);
      CHECK(last.block[0] == 288);
      CHECK(last.shared_bytes >= kDecodeTiles[tile].shared_bytes);
      CHECK(last.programmatic);
    }
    CHECK(!gemm.launch(nullptr, output, a, b, nullptr, m, kRows, 2048, nullptr, {true, tiles}));
  }
  CHECK(gemm.workspace_bytes(16, kRows, 2048) == 0);
}

TEST_CASE_FIXTURE(Sm90Fixture,
                  "many tokens on sm_90a are expanded, then multiplied by the other module") {
  CHECK(gemm.workspace_bytes(300, 4096, 2048) == 300 * 2048 * 2);
  for (int tactic = 0; tactic < gemm.tactics(300, 4096, 2048); ++tactic) {
    CAPTURE(tactic);
    const auto chosen =
        nvfp4::sm90::tactics_of({300, 4096, 2048, 148}).all[static_cast<std::size_t>(tactic)];
    const auto& tile = kPrefillTiles[chosen.tile];
    const std::size_t before = fake.launches();
    REQUIRE(gemm.launch(nullptr, output, a, b, nullptr, 300, 4096, 2048, address<void>(0x1000000),
                        {false, tactic}));
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

TEST_CASE_FIXTURE(OtherFixture,
                  "a card without kernels of its own takes those for few tokens, for any") {
  for (const int m : {1, 16, 100}) {
    CAPTURE(m);
    REQUIRE(gemm.tactics(m, 4096, 2048) == 3);
    for (int tile = 0; tile < 3; ++tile) {
      REQUIRE(gemm.launch(nullptr, output, a, b, nullptr, m, 4096, 2048, nullptr, {false, tile}));
      const FakeLaunch last = fake.last_launch();
      CHECK(std::string(last.kernel) == decode_name(m <= 8 ? 8 : 16, kDecodeTiles[tile].rows));
      CHECK(last.grid[1] == ceil_div(static_cast<std::uint64_t>(m), m <= 8 ? 8 : 16));
      CHECK(last.shared_bytes == kDecodeTiles[tile].shared_bytes);
    }
  }
  CHECK(gemm.workspace_bytes(100, 4096, 2048) == 0);
}
