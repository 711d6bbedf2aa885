// SPDX-License-Identifier: Apache-2.0
// What the launcher does and refuses: kernels compiled by the real NVRTC, on a driver that runs
// nothing.

#include <cstddef>
#include <cstring>
#include <string>

#include <doctest/doctest.h>

#include "kernels/nvfp4/moe_plan.hpp"
#include "nvrtc/launch_fixture.hpp"

#include <cukiln/nvfp4_moe.hpp>

namespace cukiln::nvfp4 {
namespace {

using testing::address;
using testing::FakeLaunch;

struct Fixture : testing::LaunchFixture {
  explicit Fixture(int capability = 90) : LaunchFixture(capability) {}

  Result<void> launch() {
    return moe.launch(nullptr, output, shape, input, up, down, gsa, GateUpLayout::halves,
                      activation, workspace);
  }
  std::string refusal() {
    const auto calls = fake.calls("cuLaunchKernelEx") + fake.calls("cuLaunchKernel");
    const auto result = launch();
    REQUIRE_FALSE(result);
    CHECK(result.error().code() == ErrorCode::invalid_argument);
    CHECK(fake.calls("cuLaunchKernelEx") + fake.calls("cuLaunchKernel") == calls);
    return result.error().message();
  }

  MoeGemm moe = made<MoeGemm>();
  MoeShape shape{3, 2, 4, 64, 96};
  MoeInput input{address<std::uint16_t>(0x1000), address<float>(0x2000),
                 address<std::int32_t>(0x3000), address<float>(0x4000)};
  MoeWeights up{address<std::uint8_t>(0x5000), address<std::uint8_t>(0x6000),
                address<float>(0x7000)};
  MoeWeights down{address<std::uint8_t>(0x8000), address<std::uint8_t>(0x9000),
                  address<float>(0xA000)};
  SwiGlu activation;
  std::uint16_t* output = address<std::uint16_t>(0xB000);
  const float* gsa = address<float>(0xC000);
  void* workspace = address<void>(0xD000);
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "an MoE layer is four launches, and none without tokens") {
  REQUIRE(launch());
  FakeLaunch launched{};
  const char* const names[] = {"moe_combine", "moe_down", "moe_up", "moe_route"};
  for (std::size_t i = 0; i < 4; ++i) {
    REQUIRE(fake.launch(i, &launched));
    CHECK(launched.kernel == std::string(names[i]));
  }
  REQUIRE(fake.launch(2, &launched));
  CHECK(launched.cluster[0] == 2);
  CHECK(launched.grid[0] == 2);
  CHECK(launched.grid[1] == 4);  // as many experts may have tokens
  CHECK_FALSE(fake.launch(4, &launched));

  shape.tokens = 0;
  output = nullptr;
  workspace = nullptr;
  REQUIRE(launch());
  CHECK_FALSE(fake.launch(4, &launched));
  CHECK(moe.workspace_bytes(shape) == 0);
}

TEST_CASE_FIXTURE(Fixture, "many tokens use sm_90a's warpgroup MMA on rows in fp16") {
  shape = {256, 2, 4, 64, 128};
  REQUIRE(launch());
  FakeLaunch launched{};
  const char* const names[] = {"moe_combine",    "moe_prefill_down", "moe_expand",
                               "moe_prefill_up", "moe_expand",       "moe_route"};
  for (std::size_t i = 0; i < 6; ++i) {
    REQUIRE(fake.launch(i, &launched));
    CHECK(launched.kernel == std::string(names[i]));
  }
  CHECK_FALSE(fake.launch(6, &launched));
}

namespace {

struct BlackwellFixture : Fixture {
  BlackwellFixture() : Fixture(100) {}

  // One after the other, as the launch that many launches ago had them.
  template <class... Parts>
  void check_arguments(std::size_t newest_first, const char* kernel, const Parts&... parts) const {
    CAPTURE(kernel);
    FakeLaunch launched{};
    REQUIRE(fake.launch(newest_first, &launched));
    CHECK(launched.kernel == std::string(kernel));
    std::size_t at = 0;
    const auto check = [&](const auto& part) {
      CAPTURE(at);
      CHECK(std::memcmp(launched.arguments + at, &part, sizeof part) == 0);
      at += sizeof part;
    };
    (check(parts), ...);
    CHECK(launched.argument_bytes == at);
  }
};

}  // namespace

TEST_CASE_FIXTURE(BlackwellFixture, "many tokens use sm_100a's grouped GEMM") {
  shape = {300, 2, 4, 256, 128};
  input.expert_map = address<std::int32_t>(0xE000);
  REQUIRE(launch());
  FakeLaunch launched{};
  const char* const names[] = {"moe_combine_rows", "nvfp4_gemm_grouped_128x128",
                               "moe_activate",     "nvfp4_gemm_grouped_128x128",
                               "moe_gather",       "moe_route"};
  for (std::size_t i = 0; i < 6; ++i) {
    REQUIRE(fake.launch(i, &launched));
    CHECK(launched.kernel == std::string(names[i]));
  }
  CHECK_FALSE(fake.launch(6, &launched));
  REQUIRE(fake.launch(4, &launched));
  CHECK(launched.grid[0] == 1);
  CHECK(launched.grid[1] == 8);  // 600 slots are at most so many tiles of 4 experts

  // Everything between is the workspace's, which tests/emulator computes with.
  const MoePlan plan = moe_plan({300, 2, 4, 256, 128, 4}, MoeKernels::grouped);
  const auto in = [&](std::size_t offset) { return address<std::uint8_t>(0xD000 + offset); };
  check_arguments(4, "moe_gather", in(plan.row_codes), in(plan.row_scales), in(plan.row_experts),
                  in(plan.position_of_slot), in(plan.up_gsa), in(plan.down_gsa), in(plan.tiles),
                  in(plan.tile_count), in(plan.slot_of_position), in(plan.token_codes),
                  in(plan.token_scales), up.decode, down.decode, 2u, 256u);
  check_arguments(2, "moe_activate", in(plan.activation_codes), in(plan.activation_scales),
                  in(plan.products), in(plan.tile_count), gsa, 128u, 0u, activation.limit,
                  activation.alpha, activation.beta);
  check_arguments(0, "moe_combine_rows", output, in(plan.products), input.topk_weights,
                  in(plan.position_of_slot), 2u, 256u);
  for (const std::size_t product : {1, 3}) {
    const bool is_up = product == 3;
    REQUIRE(fake.launch(product, &launched));
    struct {
      TensorMap rows, columns, row_scales, column_scales, output;
      const float* gsa_a;
      const float* gsa_b;
      const std::uint16_t* bias;
      std::uint32_t m, n, k;
    } passed;
    const void* experts = nullptr;
    std::uint32_t stride = 1;
    constexpr std::size_t kBytes = offsetof(decltype(passed), k) + 4;
    REQUIRE(launched.argument_bytes == kBytes + 12);
    std::memcpy(&passed, launched.arguments, kBytes);
    std::memcpy(&experts, launched.arguments + kBytes, sizeof experts);
    std::memcpy(&stride, launched.arguments + kBytes + sizeof experts, sizeof stride);
    const auto data = [](const TensorMap& map) { return address<std::uint8_t>(map.opaque[0]); };
    CHECK(data(passed.rows) == in(is_up ? plan.row_codes : plan.activation_codes));
    CHECK(data(passed.row_scales) == in(is_up ? plan.row_scales : plan.activation_scales));
    CHECK(data(passed.columns) == (is_up ? up : down).codes);
    CHECK(data(passed.column_scales) == (is_up ? up : down).scales);
    CHECK(data(passed.output) == in(plan.products));
    CHECK(passed.gsa_a == (is_up ? input.hidden_gsa : gsa));
    CHECK(passed.gsa_b == static_cast<const void*>(in(is_up ? plan.up_gsa : plan.down_gsa)));
    CHECK(passed.bias == nullptr);
    CHECK(passed.m == 8 * 128);
    CHECK(passed.n == 256);
    CHECK(passed.k == (is_up ? 256 : 128));
    CHECK(experts == in(plan.row_experts));
    CHECK(stride == 0);
  }
  CHECK(moe.workspace_bytes(shape) == plan.bytes);
}

TEST_CASE_FIXTURE(BlackwellFixture,
                  "few tokens, and columns that are not a multiple of the group, do not") {
  for (const MoeShape& of : {MoeShape{16, 2, 4, 256, 128}, MoeShape{300, 2, 4, 192, 128},
                             MoeShape{300, 2, 4, 256, 96}}) {
    shape = of;
    REQUIRE(launch());
    FakeLaunch launched{};
    REQUIRE(fake.launch(1, &launched));
    CHECK(launched.kernel == std::string("moe_down"));
  }
}

TEST_CASE_FIXTURE(Fixture, "nvfp4_moe_gemm refuses unsupported shapes with the supported ones") {
  const MoeShape good = shape;
  const auto with = [&](auto member, std::int64_t value) {
    shape = good;
    shape.*member = value;
    CHECK(moe.workspace_bytes(shape) == 0);
    return refusal();
  };
  CHECK(with(&MoeShape::tokens, -1) == "[-1, 64] is not a shape: both are 0 to 2147483647");
  CHECK(with(&MoeShape::hidden, 48) == "hidden is 48; a positive multiple of 32 is expected");
  CHECK(with(&MoeShape::width, 0) == "width is 0; a positive multiple of 32 is expected");
  CHECK(with(&MoeShape::experts, 1025) == "experts is 1025; 1 to 1024 are expected");
  CHECK(with(&MoeShape::topk, 0) == "topk is 0; 1 to 1024 are expected");
  CHECK(with(&MoeShape::global_experts, -2) ==
        "global_experts is -2; 0 to 2147483647 are expected");
  CHECK(with(&MoeShape::tokens, 1 << 20) ==
        "1048576 tokens with 2 experts each are more than 1048576; launch parts of the tokens one "
        "by one");
  shape = {1, 1, 1024, 64, 1 << 21};
  CHECK(refusal() ==
        "1024 experts with 4194304 and 64 rows of weights; at most 2147483647 in all are expected");
  shape = good;
  CHECK(moe.workspace_bytes(shape) > 0);
  moe = {};
  CHECK(refusal() == "an empty MoeGemm: make it with MoeGemm::create");
}

TEST_CASE_FIXTURE(Fixture, "nvfp4_moe_gemm refuses unusable pointers by name") {
  output = address<std::uint16_t>(0xB008);
  CHECK(refusal() == "output is 0xb008, which is not a multiple of 16 bytes");
  output = address<std::uint16_t>(0xB000);
  input.topk_ids = nullptr;
  CHECK(refusal() == "topk_ids is null; a device pointer is expected");
  input.topk_ids = address<std::int32_t>(0x3000);
  down.scales = nullptr;
  CHECK(refusal() == "down.scales is null; a device pointer is expected");
  down.scales = address<std::uint8_t>(0x9000);
  workspace = nullptr;
  CHECK(refusal() == "workspace is null; a device pointer is expected");
  workspace = address<void>(0xD000);
  activation.limit = 0;
  CHECK(refusal() == "limit is 0; a positive number is expected, infinity for no limit");
}

}  // namespace cukiln::nvfp4
