// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "kernels/nvfp4/w4a16_plan.hpp"
#include "nvrtc/launch_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using nvfp4::sm90::ceil_div;
namespace w4a16 = nvfp4::w4a16;

namespace {

struct W4a16Fixture : LaunchFixture {
  explicit W4a16Fixture(int capability) : LaunchFixture(capability) {}

  Result<void> launch(std::int64_t m, std::int64_t n, std::int64_t k,
                      const nvfp4::GemmOptions& options = {}, std::int64_t gap = 0) {
    MatrixView a(DataType::bf16, tokens, m, k, k + gap);
    b.rows = n;
    b.columns = k;
    return gemm.launch(nullptr, {DataType::bf16, output, m, n}, a, b, workspace, options);
  }

  std::string refusal(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t gap = 0) {
    const auto launched = launch(m, n, k, {}, gap);
    return launched ? "" : launched.error().message();
  }

  nvfp4::W4a16Gemm gemm = made<nvfp4::W4a16Gemm>();
  std::uint16_t* tokens = address<std::uint16_t>(0x10000);
  nvfp4::QuantizedMatrix b{address<std::uint8_t>(0x40000), address<std::uint8_t>(0x50000),
                           address<nvfp4::GlobalScale>(0x60000)};
  std::uint16_t* output = address<std::uint16_t>(0x70000);
  nvfp4::Workspace workspace;
};

struct W4a16Sm90Fixture : W4a16Fixture {
  W4a16Sm90Fixture() : W4a16Fixture(90) {}
};

struct W4a16Sm100Fixture : W4a16Fixture {
  W4a16Sm100Fixture() : W4a16Fixture(100) {}
};

}  // namespace

TEST_CASE_FIXTURE(W4a16Sm90Fixture, "few bf16 tokens on sm_90a are one launch, with every tile") {
  constexpr std::int64_t kRows = 7176;
  for (const int m : {1, 8, 9, 16, 17, 32}) {
    CAPTURE(m);
    const auto [first, tiles] = w4a16::decode_tiles_for(static_cast<std::uint64_t>(m));
    REQUIRE(gemm.tactics(m, kRows, 2048) == static_cast<int>(tiles));
    REQUIRE(tiles >= 3);
    for (int i = 0; i < static_cast<int>(tiles); ++i) {
      CAPTURE(i);
      const auto& tile = w4a16::kDecodeTiles[first + static_cast<unsigned>(i)];
      const std::size_t before = fake.launches();
      REQUIRE(launch(m, kRows, 2048, with_tactic(i), 8));
      CHECK(fake.launches() == before + 1);
      const FakeLaunch last = fake.last_launch();
      CHECK(last.kernel == std::string(tile.name));
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

TEST_CASE_FIXTURE(W4a16Sm90Fixture,
                  "many bf16 tokens on sm_90a are arranged, then multiplied, with every tactic") {
  constexpr std::size_t kWorkspace = 300 * 2176 * 2;  // whole groups of 128
  CHECK(gemm.workspace_bytes(300, 4096, 2080) == kWorkspace);
  workspace = {address<void>(0x1000000), kWorkspace - 1};
  CHECK(refusal(300, 4096, 2080) ==
        "workspace has 1305599 bytes; 1305600 are expected, see workspace_bytes()");
  workspace.bytes = kWorkspace;
  for (const int m : {33, 40, 300}) {
    const auto tactics = w4a16::w4a16_tactics({static_cast<std::uint64_t>(m), 4096, 2080, 148});
    REQUIRE(gemm.tactics(m, 4096, 2080) == static_cast<int>(tactics.count));
    for (int i = 0; i < static_cast<int>(tactics.count); ++i) {
      CAPTURE(i);
      const auto tactic = tactics.all[static_cast<std::size_t>(i)];
      const auto& tile = w4a16::kPrefillTiles[tactic.tile];
      const std::size_t before = fake.launches();
      REQUIRE(launch(m, 4096, 2080, with_tactic(i)));
      CHECK(fake.launches() == before + 2);
      FakeLaunch launched{};
      REQUIRE(fake.launch(1, &launched));
      CHECK(launched.kernel == std::string("w4a16_gemm_arrange"));
      CHECK(launched.programmatic);
      REQUIRE(fake.launch(0, &launched));
      CHECK(launched.kernel == std::string(tile.name));
      CHECK(launched.programmatic);
      CHECK(launched.block[0] == 384);
      CHECK(launched.grid[0] % tactic.splits == 0);
      const bool alone = launched.grid[0] <= 148;
      CHECK((launched.shared_bytes > 114 * 1024) == (alone || tile.blocks_per_sm == 1));
    }
  }
}

TEST_CASE_FIXTURE(W4a16Sm100Fixture, "other devices multiply bf16 tokens by those for few") {
  for (const int m : {1, 16, 100}) {
    CAPTURE(m);
    REQUIRE(gemm.tactics(m, 4096, 2048) == 3);
    for (int i = 0; i < 3; ++i) {
      REQUIRE(launch(m, 4096, 2048, with_tactic(i)));
      const auto& tile = w4a16::kDecodeTiles[w4a16::decode_tiles_for(m <= 8 ? 8 : 16).first +
                                             static_cast<unsigned>(i)];
      const FakeLaunch last = fake.last_launch();
      CHECK(last.kernel == std::string(tile.name));
      CHECK(last.grid[0] == ceil_div(4096, tile.rows));
      CHECK(last.grid[1] == ceil_div(static_cast<std::uint64_t>(m), tile.tokens));
    }
    CHECK(launch(m, 4096, 2048));
    CHECK(gemm.workspace_bytes(m, 4096, 2048) == 0);
  }
}

TEST_CASE_FIXTURE(W4a16Sm90Fixture, "W4A16 says what it refuses") {
  CHECK(refusal(4, 128, 48) ==
        "b is [128, 48]; a positive multiple of 32 columns is expected, which are summed over");
  CHECK(refusal(4, 100, 64) == "b is [100, 64]; a multiple of 8 rows is expected");
  CHECK(refusal(4, 128, 64, 4) ==
        "a has a row stride of 68; a multiple of 8, no less than its 64 columns, is expected");
  CHECK(refusal(4, 128, 64, -8) ==
        "a has a row stride of 56; a multiple of 8, no less than its 64 columns, is expected");
  tokens = address<std::uint16_t>(0x10008);
  CHECK(refusal(4, 128, 64).find("is not a multiple of 16 bytes") != std::string::npos);
  CHECK(launch(0, 128, 64));
  CHECK(nvfp4::W4a16Gemm().tactics(1, 128, 64) == 0);
  CHECK(nvfp4::W4a16Gemm().workspace_bytes(100, 128, 64) == 0);
}
