// SPDX-License-Identifier: Apache-2.0
// What W4A4 and W4A16 launch on sm_90a, and on devices without kernels of their own.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "nvfp4/host/w4a16_plan.hpp"
#include "nvfp4/nvrtc/launch_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using nvfp4::sm90::ceil_div;
using nvfp4::sm90::DecodeTile;
using nvfp4::sm90::PrefillKind;
using nvfp4::sm90::PrefillTile;
using nvfp4::sm90::Tiles;

namespace {

struct W4a4 : GemmFixture {
  using GemmFixture::GemmFixture;
  static constexpr const Tiles& kTiles = nvfp4::sm90::kTiles;
  static constexpr const char* kPrefix = "nvfp4_gemm_";
};

struct W4a16 : W4a16Fixture {
  using W4a16Fixture::W4a16Fixture;
  static constexpr const Tiles& kTiles = nvfp4::w4a16::kTiles;
  static constexpr const char* kPrefix = "w4a16_gemm_";
};

template <class Family>
std::string name_of(const DecodeTile& tile) {
  return Family::kPrefix + std::string("decode_") + std::to_string(tile.tokens) + "x" +
         std::to_string(tile.rows / 8);
}

template <class Family>
std::string name_of(const PrefillTile& tile) {
  const std::string size = std::to_string(tile.tokens) + "x" + std::to_string(tile.rows);
  return Family::kPrefix + (tile.is_skinny()
                                ? "skinny_" + size + "_" + std::to_string(tile.consumer_warpgroups)
                                : "prefill_" + size + (tile.has_tail() ? "_helped" : ""));
}

template <class Family>
void check_decode(const FakeLaunch& last, const DecodeTile& tile, int m, std::uint64_t rows) {
  CHECK(last.kernel == name_of<Family>(tile));
  CHECK(last.grid[0] == ceil_div(rows, tile.rows));
  CHECK(last.grid[1] == 1);
  CHECK(last.block[0] == (m <= 16 ? 288 : 384));
  CHECK(last.shared_bytes >= tile.shared_bytes);
  CHECK(last.programmatic);
}

template <class Family>
void check_prefill(const FakeLaunch& last, const PrefillTile& tile, std::uint32_t splits) {
  CHECK(last.kernel ==
        name_of<Family>(tile) + (tile.kind == PrefillKind::paired && splits == 2 ? "_pair" : ""));
  CHECK(last.programmatic);
  CHECK(last.block[0] == 128 * (1 + tile.consumer_warpgroups));
  CHECK(last.grid[0] % splits == 0);
  CHECK(last.cluster[0] == (splits == 1 ? 0 : splits));
  // Else clusters would not all run at once, or the next launch could not start early.
  const bool starts_early = !Family::kTiles.prepares;
  const bool alone = !tile.is_skinny() && last.grid[0] <= (splits == 4                   ? 129u
                                                           : splits == 3 || starts_early ? 138u
                                                                                         : 148u);
  CHECK(last.shared_bytes == std::max(tile.shared_bytes, alone ? 117 * 1024u : 0u));
}

template <class Family>
void check_few_tokens(Family& device, int m) {
  constexpr std::int64_t kRows = 7176;
  const Tiles& tiles = Family::kTiles;
  const auto tactics = tactics_of(tiles, {static_cast<std::uint64_t>(m), kRows, 2048, 148});
  REQUIRE(tactics.count >= 3);
  REQUIRE(device.gemm.tactics(m, kRows, 2048) == static_cast<int>(tactics.count));
  for (std::size_t i = 0; i < tactics.count; ++i) {
    CAPTURE(i);
    const nvfp4::GemmTactic& tactic = tactics.all[i];
    nvfp4::GemmOptions options = with_tactic(static_cast<int>(i));
    options.constant_b = true;
    const std::size_t before = device.fake.launches();
    REQUIRE(device.launch(m, kRows, 2048, options));
    CHECK(device.fake.launches() == before + 1);
    const FakeLaunch last = device.fake.last_launch();
    if (tactic.kernel < tiles.decode_count) {
      check_decode<Family>(last, tiles.decode[tactic.kernel], m, kRows);
    } else {
      check_prefill<Family>(last, tiles.prefill[tactic.kernel - tiles.decode_count], tactic.splits);
    }
  }
  CHECK(!device.launch(m, kRows, 2048, with_tactic(static_cast<int>(tactics.count))));
  CHECK(device.gemm.workspace_bytes(m, kRows, 2048) == 0);
}

template <class Family>
void check_many_tokens(Family& device, int m) {
  const auto tactics = tactics_of(Family::kTiles, {static_cast<std::uint64_t>(m), 4096, 2080, 148});
  REQUIRE(tactics.count >= 5);
  REQUIRE(device.gemm.tactics(m, 4096, 2080) == static_cast<int>(tactics.count));
  for (std::size_t i = 0; i < tactics.count; ++i) {
    CAPTURE(i);
    const nvfp4::GemmTactic& tactic = tactics.all[i];
    const PrefillTile& tile = Family::kTiles.prefill[tactic.kernel - Family::kTiles.decode_count];
    const std::size_t before = device.fake.launches();
    REQUIRE(device.launch(m, 4096, 2080, with_tactic(static_cast<int>(i))));
    CHECK(device.fake.launches() == before + (Family::kTiles.prepares ? 2 : 1));
    check_prefill<Family>(device.fake.last_launch(), tile, tactic.splits);
    if (Family::kTiles.prepares) {
      FakeLaunch launched{};
      REQUIRE(device.fake.launch(1, &launched));
      CHECK(launched.kernel == std::string("nvfp4_gemm_expand"));
      CHECK(!launched.programmatic);
    }
  }
}

}  // namespace

/// 148 tiles of 128 by 128 are a whole wave, the 12 that are left split K.
template <class Family>
void check_last_wave(Family& device) {
  constexpr std::int64_t kRows = 160 * 128;
  const Tiles& tiles = Family::kTiles;
  const auto tactics = tactics_of(tiles, {128, kRows, 4096, 148});
  for (std::size_t i = 0; i < tactics.count; ++i) {
    const PrefillTile& tile = tiles.prefill[tactics.all[i].kernel - tiles.decode_count];
    if (tile.tokens != 128 || tile.rows != 128 || tactics.all[i].splits != 1) continue;
    const std::size_t before = device.fake.launches();
    REQUIRE(device.launch(128, kRows, 4096, with_tactic(static_cast<int>(i))));
    REQUIRE(device.fake.launches() == before + (tiles.prepares ? 3 : 2));
    FakeLaunch whole{};
    REQUIRE(device.fake.launch(1, &whole));
    check_prefill<Family>(whole, tile, 1);
    CHECK(whole.grid[0] == 148);
    const FakeLaunch last = device.fake.last_launch();
    CHECK(last.kernel == Family::kPrefix + std::string("prefill_64x128"));
    CHECK(last.grid[0] == 2 * 12 * 4);
    CHECK(last.cluster[0] == 4);
    return;
  }
  FAIL("there is no such tile");
}

// Compiling takes most of the time: one device serves all shapes.
TEST_CASE_TEMPLATE(
    "on sm_90a many tokens of W4A4 are two launches, others one, a small wave one more", Family,
    W4a4, W4a16) {
  Family device(90);
  for (const int m : {1, 8, 9, 16, 17, 32}) {
    CAPTURE(m);
    check_few_tokens(device, m);
  }
  if (Family::kTiles.prepares) {
    constexpr std::size_t kWorkspace = 300 * 2176 * 2;  // whole groups of 128
    CHECK(device.gemm.workspace_bytes(300, 4096, 2080) == kWorkspace);
    device.workspace = {address<void>(0x1000000), kWorkspace - 1};
    CHECK(device.launch(300, 4096, 2080).error().message() ==
          "workspace has 1305599 bytes; expected 1305600, see workspace_bytes()");
    device.workspace.size_bytes = kWorkspace;
  } else {
    constexpr std::size_t kOfTile = 256 * 128 * 4;
    CHECK(device.gemm.workspace_bytes(300, 4096, 2080) == 2 * 32 * kOfTile);
    CHECK(device.gemm.workspace_bytes(4096, 4096, 2080) == 71 * kOfTile);  // pairs on 144 SMs
    CHECK(device.gemm.workspace_bytes(300, 71 * 128 + 8, 2080) == 0);
    CHECK(device.gemm.workspace_bytes(128, 4096, 2080) == 0);  // too few tokens
    CHECK(device.gemm.workspace_bytes(300, 4096, 1920) == 0);  // short K
    device.workspace = {address<void>(0x1000000), 2 * 32 * kOfTile};
  }
  for (const int m : {33, 40, 64, 100, 300}) {
    CAPTURE(m);
    check_many_tokens(device, m);
  }
  device.workspace.size_bytes = 128 * 4096 * 2;
  check_last_wave(device);
}

TEST_CASE("the launch of the last rows has their weights, scales, bias and results") {
  W4a16 device(90);
  constexpr std::int64_t kRows = 160 * 128;
  constexpr std::int64_t kFirst = 148 * 128;
  constexpr std::int64_t kK = 4096;
  const auto tactics = tactics_of(W4a16::kTiles, {128, kRows, kK, 148});
  const auto* const whole = std::find_if(tactics.begin(), tactics.end(), [](const auto& tactic) {
    return W4a16::kTiles.prefill[tactic.kernel - W4a16::kTiles.decode_count].name ==
           std::string("w4a16_gemm_prefill_128x128");
  });
  nvfp4::GemmOptions options = with_tactic(static_cast<int>(whole - tactics.begin()));
  options.bias = {DataType::bf16, address<std::uint16_t>(0x80000), kRows};
  REQUIRE(device.launch(128, kRows, kK, options));

  const FakeLaunch last = device.fake.last_launch();
  std::size_t at = 0;
  const auto next = [&](auto value) {
    REQUIRE(at + sizeof value <= last.argument_bytes);
    std::memcpy(&value, last.arguments + at, sizeof value);
    at += sizeof value;
    return value;
  };
  constexpr std::uint64_t kBf16 = 9 | 2 << 8;
  constexpr std::uint64_t kU8 = 0 | 2 << 8;
  CHECK(next(device.output) == device.output + kFirst);
  const TensorMap tokens = next(TensorMap{});
  CHECK(tokens.opaque[0] == reinterpret_cast<std::uintptr_t>(device.tokens));
  CHECK(tokens.opaque[1] == (kBf16 | 3 << 16));  // 128-byte swizzle
  CHECK(tokens.opaque[2] == kK);
  CHECK(tokens.opaque[3] == 128);
  CHECK(tokens.opaque[5] == 64);
  CHECK(tokens.opaque[6] == 64);
  CHECK(tokens.opaque[8] == (kK + 8) * 2);
  const TensorMap weights = next(TensorMap{});
  CHECK(weights.opaque[0] == reinterpret_cast<std::uintptr_t>(device.b.data) + kFirst * kK / 2);
  CHECK(weights.opaque[1] == (kU8 | 2 << 16));  // 64-byte swizzle
  CHECK(weights.opaque[2] == kK / 2);
  CHECK(weights.opaque[3] == kRows - kFirst);
  CHECK(weights.opaque[5] == 64);
  CHECK(weights.opaque[6] == 128);
  CHECK(next(device.b.scales) == device.b.scales + nvfp4::scales_bytes(kFirst, kK));
  CHECK(next(device.b.global_scale) == device.b.global_scale);
  CHECK(next(address<std::uint16_t>(0)) == address<std::uint16_t>(0x80000) + kFirst);
  CHECK(next(std::uint32_t{}) == 128);
  CHECK(next(std::uint32_t{}) == kRows - kFirst);
  CHECK(next(std::uint32_t{}) == kK);
  CHECK(next(std::uint32_t{}) == kRows);
  CHECK(at == last.argument_bytes);
}

TEST_CASE("the tail of K is launched before the kernel of the rest, with the same arguments") {
  W4a16 device(90);
  const auto tactics = tactics_of(W4a16::kTiles, {200, 4096, 4096, 148});
  const auto* const helped = std::find_if(tactics.begin(), tactics.end(), [](const auto& tactic) {
    return W4a16::kTiles.prefill[tactic.kernel - W4a16::kTiles.decode_count].has_tail();
  });
  REQUIRE(helped != tactics.end());
  const nvfp4::GemmOptions options = with_tactic(static_cast<int>(helped - tactics.begin()));
  const std::size_t needed = device.gemm.workspace_bytes(200, 4096, 4096);
  device.workspace = {address<void>(0x1000000), needed - 1};
  CHECK(!device.launch(200, 4096, 4096, options));
  device.workspace.size_bytes = needed;
  const std::size_t before = device.fake.launches();
  REQUIRE(device.launch(200, 4096, 4096, options));
  REQUIRE(device.fake.launches() == before + 2);
  FakeLaunch helper{};
  REQUIRE(device.fake.launch(1, &helper));
  FakeLaunch last = device.fake.last_launch();
  CHECK(helper.kernel == std::string("w4a16_gemm_prefill_256x128_helper"));
  CHECK(last.kernel == std::string("w4a16_gemm_prefill_256x128_helped"));
  CHECK(helper.grid[0] == 32);  // a helper for each tile
  CHECK(last.grid[0] == 2 * 32);
  for (const FakeLaunch* launched : {&helper, &last}) {
    CHECK(launched->cluster[0] == 2);
    CHECK(launched->block[0] == 384);
    CHECK(launched->shared_bytes == 229968);
    CHECK(launched->programmatic);
    void* partials = nullptr;
    std::uint32_t groups = 0;
    REQUIRE(launched->argument_bytes == last.argument_bytes);
    const auto* const end = launched->arguments + launched->argument_bytes;
    std::memcpy(&groups, end - sizeof groups, sizeof groups);
    std::memcpy(&partials, end - sizeof groups - sizeof partials, sizeof partials);
    CHECK(partials == device.workspace.data);
    CHECK(groups == 9);
  }
  CHECK(std::memcmp(helper.arguments, last.arguments, last.argument_bytes) == 0);
}

TEST_CASE("skinny kernels know whether the weights are constant") {
  W4a16 device(90);
  const auto tactics = tactics_of(W4a16::kTiles, {48, 4096, 2048, 148});
  const auto* const skinny = std::find_if(tactics.begin(), tactics.end(), [](const auto& tactic) {
    return W4a16::kTiles.prefill[tactic.kernel - W4a16::kTiles.decode_count].is_skinny();
  });
  REQUIRE(skinny != tactics.end());
  for (const bool constant : {false, true}) {
    nvfp4::GemmOptions options = with_tactic(static_cast<int>(skinny - tactics.begin()));
    options.constant_b = constant;
    REQUIRE(device.launch(48, 4096, 2048, options));
    const FakeLaunch last = device.fake.last_launch();
    std::uint32_t given[2] = {};
    REQUIRE(last.argument_bytes >= sizeof given);
    std::memcpy(given, last.arguments + last.argument_bytes - sizeof given, sizeof given);
    CHECK(given[0] == 4096);  // the output's stride
    CHECK(given[1] == (constant ? 1u : 0u));
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
        "a is [1048561, 2048]; expected at most 1048560 rows on this device, which has no "
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
        "b is [128, 48]; expected a positive multiple of 32 columns, which are summed over");
  CHECK(refusal(100, 64) == "b is [100, 64]; expected a multiple of 8 rows");
  CHECK(refusal(128, 64, 4) ==
        "a has a row stride of 68; expected a multiple of 8, no less than its 64 columns");
  CHECK(refusal(128, 64, -8) ==
        "a has a row stride of 56; expected a multiple of 8, no less than its 64 columns");
  device.tokens = address<std::uint16_t>(0x10008);
  CHECK(refusal(128, 64).find("expected a multiple of 16 bytes") != std::string::npos);
  CHECK(device.launch(0, 128, 64));
  const nvfp4::W4a16Gemm empty;
  CHECK(empty.tactics(1, 128, 64) == 0);
  CHECK(empty.workspace_bytes(100, 128, 64) == 0);
  CHECK(empty.tactic(1, 128, 64).error().message() ==
        "an empty GEMM launcher; expected one that create made");
}
