// SPDX-License-Identifier: Apache-2.0
// What the launcher does and refuses: kernels compiled by the real NVRTC, on a driver that runs
// nothing.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include <doctest/doctest.h>

#include "nvfp4/host/moe_plan.hpp"
#include "nvfp4/nvrtc/launch_fixture.hpp"

#include <cukiln/nvfp4/moe.hpp>

namespace cukiln::nvfp4 {
namespace {

using testing::address;
using testing::FakeLaunch;

struct Fixture : testing::LaunchFixture {
  explicit Fixture(int capability = 90) : LaunchFixture(capability) {
    input.hidden_scale = address<GlobalScale>(0x2000);
    layer.up.data = address<std::uint8_t>(0x5000);
    layer.up.scales = address<std::uint8_t>(0x6000);
    layer.up.decode = address<float>(0x7000);
    layer.down.data = address<std::uint8_t>(0x8000);
    layer.down.scales = address<std::uint8_t>(0x9000);
    layer.down.decode = address<float>(0xA000);
    layer.up.bias = address<std::uint16_t>(0x1F000);
    layer.down.bias = address<std::uint16_t>(0x2F000);
    layer.activation_scale = address<GlobalScale>(0xC000);
    layer.expert_map = {DataType::i32, nullptr, 0};
  }

  /// Takes every view's sizes from `shape`.
  Result<void> launch() {
    layer.up.experts = layer.down.experts = shape.experts;
    layer.up.rows = 2 * shape.width;
    layer.up.columns = layer.down.rows = shape.hidden;
    layer.down.columns = shape.width;
    layer.global_experts = shape.global_experts;
    layer.expert_map.size = shape.global_experts != 0 ? shape.global_experts : shape.experts;
    input.hidden = {DataType::bf16, hidden, shape.tokens, shape.hidden};
    input.topk_ids = {DataType::i32, topk_ids, shape.tokens, shape.topk};
    input.topk_weights = {DataType::f32, topk_weights, shape.tokens, shape.topk};
    return moe.launch(nullptr, {DataType::bf16, output, shape.tokens, shape.hidden}, input, layer,
                      workspace);
  }
  std::string refusal() {
    const auto calls = fake.calls("cuLaunchKernelEx") + fake.calls("cuLaunchKernel");
    const auto result = launch();
    REQUIRE_FALSE(result);
    CHECK(result.error().code() == ErrorCode::invalid_argument);
    CHECK(fake.calls("cuLaunchKernelEx") + fake.calls("cuLaunchKernel") == calls);
    return result.error().message();
  }

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

  MoeGemm moe = made<MoeGemm>();
  MoeShape shape{3, 2, 4, 64, 96};
  const std::uint16_t* hidden = address<std::uint16_t>(0x1000);
  const std::int32_t* topk_ids = address<std::int32_t>(0x3000);
  const float* topk_weights = address<float>(0x4000);
  std::uint16_t* output = address<std::uint16_t>(0xB000);
  MoeInput input;
  MoeLayer layer;
  Workspace workspace{address<void>(0xD000), std::size_t{1} << 40};
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
  workspace = {};
  REQUIRE(launch());
  CHECK_FALSE(fake.launch(4, &launched));
  CHECK(moe.workspace_bytes(shape) == 0);
  CHECK(moe.max_workspace_bytes(shape) == 0);
}

TEST_CASE_FIXTURE(Fixture, "many tokens use sm_90a's warpgroup MMA on rows in fp16") {
  shape = {256, 2, 4, 64, 128};
  REQUIRE(launch());
  FakeLaunch launched{};
  const char* const names[] = {"moe_combine_rows", "moe_prefill_down", "moe_expand",
                               "moe_prefill_up",   "moe_expand",       "moe_route"};
  for (std::size_t i = 0; i < 6; ++i) {
    REQUIRE(fake.launch(i, &launched));
    CHECK(launched.kernel == std::string(names[i]));
  }
  CHECK_FALSE(fake.launch(6, &launched));
  const MoePlan plan = moe_plan({256, 2, 4, 64, 128, 4}, MoeKernels::warpgroups, 132);
  CHECK(plan.partial == plan.gemm_output);  // no sums in float between the launches
  check_arguments(0, "moe_combine_rows", output, address<std::uint8_t>(0xD000 + plan.gemm_output),
                  topk_weights, address<std::uint8_t>(0xD000 + plan.position_of_slot), 2u, 64u);
}

TEST_CASE_FIXTURE(Fixture, "small tiles of tokens are multiplied by 256 rows of weights") {
  for (const bool w4a16 : {false, true}) {
    CAPTURE(w4a16);
    if (w4a16) layer.activation_scale = nullptr;
    shape = {100, 2, 8, 320, 192, 0, w4a16};  // 25 tokens for each expert
    REQUIRE(launch());
    const std::size_t launched_since[] = {1, w4a16 ? 2u : 3u};
    const std::uint32_t rows[] = {320, 2 * 192};
    for (std::size_t i = 0; i < 2; ++i) {
      FakeLaunch launched{};
      REQUIRE(fake.launch(launched_since[i], &launched));
      CHECK(launched.block[0] == 640);
      CHECK(launched.shared_bytes == 219216);
      const MoeShape planned{100, 2, 8, 320, 192, 8, w4a16};
      const std::uint32_t tiles =
          moe_plan(planned, MoeKernels::warpgroups, 132).max_tiles * ((rows[i] + 255) / 256);
      CHECK(launched.grid[0] == std::min(tiles, 132u));
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "with a dynamic scale rows are quantised between the GEMMs") {
  layer.activation_scale = nullptr;
  layer.dynamic_activation_scale = true;
  const auto in = [&](std::size_t offset) { return address<std::uint8_t>(0xD000 + offset); };
  const float* const none = nullptr;
  REQUIRE(launch());
  MoeShape planned{3, 2, 4, 64, 96, 4};
  planned.dynamic_activation_scale = true;
  const MoePlan plan = moe_plan(planned, MoeKernels::warpgroups, 132);
  CHECK(moe.workspace_bytes(planned) == plan.total_bytes);
  check_arguments(3, "moe_up", in(plan.activation_rows), in(plan.activation_scales), in(plan.tiles),
                  in(plan.tile_count), in(plan.slot_of_position), in(plan.token_data),
                  in(plan.token_scales), input.hidden_scale, layer.up.data, layer.up.scales,
                  layer.up.decode, layer.up.bias, none, 2u, 64u, 96u, 0u, layer.activation.limit,
                  layer.activation.alpha, layer.activation.beta);
  check_arguments(2, "moe_quantize_rows", in(plan.activation_data), in(plan.activation_scales),
                  in(plan.activation_decode), in(plan.activation_rows), in(plan.tile_count + 4),
                  96u);
  check_arguments(1, "moe_down", in(plan.partial), in(plan.tiles), in(plan.tile_count),
                  in(plan.activation_data), in(plan.activation_scales), none,
                  in(plan.activation_decode), layer.down.data, layer.down.scales, layer.down.decode,
                  layer.down.bias, 6u, 64u, 96u, 1u);
  FakeLaunch launched{};
  CHECK_FALSE(fake.launch(5, &launched));

  shape = {256, 2, 4, 64, 128};
  REQUIRE(launch());
  const char* const names[] = {"moe_combine_rows",  "moe_prefill_down", "moe_expand",
                               "moe_quantize_rows", "moe_prefill_up",   "moe_expand",
                               "moe_route"};
  for (std::size_t i = 0; i < 7; ++i) {
    REQUIRE(fake.launch(i, &launched));
    CHECK(launched.kernel == std::string(names[i]));
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "a layer without a scale of activations is W4A16: bf16 between its launches") {
  layer.activation_scale = nullptr;
  input.hidden_scale = nullptr;
  layer.expert_map.data = address<std::int32_t>(0xE000);
  shape = {3, 2, 4, 64, 96, 4, true};
  REQUIRE(launch());
  const MoePlan plan = moe_plan(shape, MoeKernels::warpgroups, 132);
  const auto in = [&](std::size_t offset) { return address<std::uint8_t>(0xD000 + offset); };
  check_arguments(3, "moe_route", in(plan.tiles), in(plan.tile_count), in(plan.slot_of_position),
                  in(plan.position_of_slot), in(plan.token_data), in(plan.token_scales), hidden,
                  static_cast<const float*>(nullptr), topk_ids, layer.expert_map.data, 3u, 2u, 64u,
                  4u, 4u, 8u, 1u);
  check_arguments(2, "moe_w4a16_up", in(plan.activation_data), in(plan.tiles), in(plan.tile_count),
                  in(plan.slot_of_position), hidden, layer.up.data, layer.up.scales,
                  layer.up.decode, layer.up.bias, 2u, 64u, 96u, 0u, layer.activation.limit,
                  layer.activation.alpha, layer.activation.beta);
  check_arguments(1, "moe_w4a16_down", in(plan.partial), in(plan.tiles), in(plan.tile_count),
                  in(plan.activation_data), layer.down.data, layer.down.scales, layer.down.decode,
                  layer.down.bias, 6u, 64u, 96u, 1u);
  check_arguments(0, "moe_combine", output, in(plan.partial), topk_weights,
                  in(plan.position_of_slot), 2u, 64u, 1u);
  FakeLaunch launched{};
  REQUIRE(fake.launch(3, &launched));
  CHECK(launched.grid[0] == 1);  // nothing is quantised
  CHECK_FALSE(fake.launch(4, &launched));
  CHECK(moe.workspace_bytes(shape) == plan.total_bytes);
  CHECK(plan.activation_data + 6 * 96 * 2 <= plan.partial);
  CHECK(plan.partial + 6 * 64 * 4 <= plan.total_bytes);
}

TEST_CASE_FIXTURE(Fixture, "W4A16 of many tokens gathers rows and has no partial sums in float") {
  layer.activation_scale = nullptr;
  input.hidden_scale = nullptr;
  shape = {256, 2, 4, 96, 64, 4, true};
  REQUIRE(launch());
  const MoePlan plan = moe_plan(shape, MoeKernels::warpgroups, 132);
  const auto in = [&](std::size_t offset) { return address<std::uint8_t>(0xD000 + offset); };
  FakeLaunch launched{};
  const char* const names[] = {"moe_combine_rows", "moe_w4a16_prefill_down", "moe_w4a16_prefill_up",
                               "moe_w4a16_gather", "moe_route"};
  for (std::size_t i = 0; i < 5; ++i) {
    REQUIRE(fake.launch(i, &launched));
    CHECK(launched.kernel == std::string(names[i]));
  }
  CHECK_FALSE(fake.launch(5, &launched));
  check_arguments(3, "moe_w4a16_gather", in(plan.expanded), hidden, in(plan.slot_of_position),
                  in(plan.tile_count + 4), 2u, 96u);
  check_arguments(0, "moe_combine_rows", output, in(plan.gemm_output), topk_weights,
                  in(plan.position_of_slot), 2u, 96u);
  for (const std::size_t newest_first : {1, 2}) {
    REQUIRE(fake.launch(newest_first, &launched));
    const bool is_up = newest_first == 2;
    const MoeWeights& weights = is_up ? layer.up : layer.down;
    const auto check = [&](std::size_t at, const auto& part) {
      CAPTURE(at);
      CHECK(std::memcmp(launched.arguments + at, &part, sizeof part) == 0);
    };
    check(0, in(is_up ? plan.activation_data : plan.gemm_output));
    check(8, in(plan.tiles));
    check(16, in(plan.tile_count));
    check(24,
          in(is_up ? plan.expanded : plan.activation_data));  // a tensor map begins with its data
    check(24 + sizeof(TensorMap), weights.data);
    check(24 + 6 * 8, std::uint64_t{128});                     // tokens of a box
    check(24 + sizeof(TensorMap) + 6 * 8, std::uint64_t{64});  // rows of weights of a box
    check(24 + 11 * 8, std::uint64_t{2});                      // promoted to 128 bytes
    check(24 + sizeof(TensorMap) + 11 * 8, std::uint64_t{3});  // to 256
    constexpr std::size_t kAfterMaps = 24 + 2 * sizeof(TensorMap);
    check(kAfterMaps, weights.scales);
    check(kAfterMaps + 8, weights.decode);
    check(kAfterMaps + 16, weights.bias);
    check(kAfterMaps + 24, 96u);
    check(kAfterMaps + 28, 64u);
  }
  CHECK(moe.workspace_bytes(shape) == plan.total_bytes);
  CHECK(plan.expanded - plan.activation_data >= 512 * 128 * 2);  // whole groups of 128 columns
  CHECK(plan.partial - plan.expanded >= 512 * 128 * 2);
  CHECK(plan.total_bytes - plan.gemm_output >= 512 * 96 * 2);
}

TEST_CASE_FIXTURE(Fixture, "W4A4's kernels have the biases, or null for none") {
  const auto in = [&](std::size_t offset) { return address<std::uint8_t>(0xD000 + offset); };
  const float* const no_row_decode = nullptr;
  for (const std::uintptr_t some : {0x1F000, 0}) {
    layer.up.bias = address<std::uint16_t>(some);
    layer.down.bias = address<std::uint16_t>(some == 0 ? 0 : 0x2F000);
    shape = {3, 2, 4, 64, 96, 4};
    REQUIRE(launch());
    const MoePlan few = moe_plan(shape, MoeKernels::warpgroups, 132);
    check_arguments(2, "moe_up", in(few.activation_data), in(few.activation_scales), in(few.tiles),
                    in(few.tile_count), in(few.slot_of_position), in(few.token_data),
                    in(few.token_scales), input.hidden_scale, layer.up.data, layer.up.scales,
                    layer.up.decode, layer.up.bias, layer.activation_scale, 2u, 64u, 96u, 0u,
                    layer.activation.limit, layer.activation.alpha, layer.activation.beta);
    check_arguments(1, "moe_down", in(few.partial), in(few.tiles), in(few.tile_count),
                    in(few.activation_data), in(few.activation_scales), layer.activation_scale,
                    no_row_decode, layer.down.data, layer.down.scales, layer.down.decode,
                    layer.down.bias, 6u, 64u, 96u, 1u);

    shape = {256, 2, 4, 96, 64, 4};
    REQUIRE(launch());
    for (const bool is_up : {true, false}) {
      FakeLaunch launched{};
      REQUIRE(fake.launch(is_up ? 3 : 1, &launched));
      CHECK(launched.kernel == std::string(is_up ? "moe_prefill_up" : "moe_prefill_down"));
      const MoePlan many = moe_plan(shape, MoeKernels::warpgroups, 132);
      auto* const written = in(is_up ? many.activation_data : many.gemm_output);
      CHECK(std::memcmp(launched.arguments, &written, 8) == 0);
      const MoeWeights& weights = is_up ? layer.up : layer.down;
      // Outputs, tiles and their number, a map, a scale, decode scales of rows for down, a map.
      const std::size_t at = 5 * 8 + 2 * sizeof(TensorMap) + 2 * 8;
      CHECK(std::memcmp(launched.arguments + at - 8, &weights.decode, 8) == 0);
      CHECK(std::memcmp(launched.arguments + at, &weights.bias, 8) == 0);
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "W4A4 needs the scale of hidden states") {
  input.hidden_scale = nullptr;
  CHECK(refusal() == "input.hidden_scale is null; expected a device pointer");
}

namespace {

struct BlackwellFixture : Fixture {
  BlackwellFixture() : Fixture(100) {}
};

}  // namespace

TEST_CASE_FIXTURE(BlackwellFixture, "many tokens use sm_100a's grouped GEMM") {
  shape = {300, 2, 4, 256, 128};
  layer.expert_map.data = address<std::int32_t>(0xE000);
  REQUIRE(launch());
  FakeLaunch launched{};
  const char* const names[] = {"moe_combine_rows", "nvfp4_gemm_grouped_128x128", "moe_grouped_up",
                               "moe_route_rows"};
  for (std::size_t i = 0; i < 4; ++i) {
    REQUIRE(fake.launch(i, &launched));
    CHECK(launched.kernel == std::string(names[i]));
    CHECK(launched.programmatic);
  }
  CHECK_FALSE(fake.launch(4, &launched));
  REQUIRE(fake.launch(3, &launched));
  CHECK(launched.grid[0] == 2 * 148);

  // Everything between is the workspace's, which tests/nvfp4/emulator computes with.
  const MoePlan plan = moe_plan({300, 2, 4, 256, 128, 4}, MoeKernels::grouped, 148);
  const auto in = [&](std::size_t offset) { return address<std::uint8_t>(0xD000 + offset); };
  check_arguments(3, "moe_route_rows", in(plan.row_data), in(plan.row_scales), in(plan.row_experts),
                  in(plan.tile_count), in(plan.position_of_slot), in(plan.down_global_scales),
                  static_cast<void*>(nullptr), hidden, input.hidden_scale, topk_ids,
                  layer.expert_map.data, layer.down.decode, 300u, 2u, 256u, 4u, 4u);
  check_arguments(0, "moe_combine_rows", output, in(plan.gemm_output), topk_weights,
                  in(plan.position_of_slot), 2u, 256u);
  const auto data = [](const TensorMap& map) { return address<std::uint8_t>(map.opaque[0]); };

  REQUIRE(fake.launch(2, &launched));
  CHECK(launched.grid[0] == 8);  // 600 slots are at most so many tiles of 4 experts
  struct {
    const void* token_scale;
    const float* weight_decode;
    const std::uint16_t* bias;
    const void* scale;
    const void* row_experts;
    const void* tile_count;
    std::uint32_t row_count, columns, width, layout;
    float limit, alpha, beta;
  } up;
  TensorMap up_maps[4];
  std::uint8_t* up_outputs[2];
  constexpr std::size_t kUpBytes = offsetof(decltype(up), beta) + 4;
  std::uint8_t* of_dynamic[3];  // of moe_grouped_up_dynamic alone
  REQUIRE(launched.argument_bytes ==
          sizeof up_outputs + sizeof up_maps + kUpBytes + sizeof of_dynamic);
  std::memcpy(up_outputs, launched.arguments, sizeof up_outputs);
  std::memcpy(static_cast<void*>(up_maps), launched.arguments + sizeof up_outputs, sizeof up_maps);
  std::memcpy(static_cast<void*>(&up), launched.arguments + sizeof up_outputs + sizeof up_maps,
              kUpBytes);
  std::memcpy(of_dynamic, launched.arguments + launched.argument_bytes - sizeof of_dynamic,
              sizeof of_dynamic);
  for (const std::uint8_t* pointer : of_dynamic) CHECK(pointer == nullptr);
  CHECK(up_outputs[0] == in(plan.activation_data));
  CHECK(up_outputs[1] == in(plan.activation_scales));
  CHECK(data(up_maps[0]) == in(plan.row_data));
  CHECK(data(up_maps[1]) == layer.up.data);
  CHECK(data(up_maps[2]) == in(plan.row_scales));
  CHECK(data(up_maps[3]) == layer.up.scales);
  CHECK(up.token_scale == input.hidden_scale);
  CHECK(up.weight_decode == layer.up.decode);
  CHECK(up.bias == layer.up.bias);
  CHECK(up.scale == layer.activation_scale);
  CHECK(up.row_experts == in(plan.row_experts));
  CHECK(up.tile_count == in(plan.tile_count));
  CHECK(up.row_count == 8 * 128);
  CHECK(up.columns == 256);
  CHECK(up.width == 128);
  CHECK(up.layout == 0);
  CHECK(up.limit == layer.activation.limit);
  CHECK(up.alpha == layer.activation.alpha);
  CHECK(up.beta == layer.activation.beta);

  REQUIRE(fake.launch(1, &launched));
  struct {
    TensorMap rows, columns, row_scales, column_scales, output;
    const GlobalScale* a_scale;
    const void* b_scale;
    const std::uint16_t* bias;
    std::uint32_t m, n, k;
  } down;
  const void* experts = nullptr;
  std::uint32_t stride = 1;
  const void* tile_count = nullptr;
  constexpr std::size_t kBytes = offsetof(decltype(down), k) + 4;
  REQUIRE(launched.argument_bytes == kBytes + 20);
  std::memcpy(static_cast<void*>(&down), launched.arguments, kBytes);
  std::memcpy(&experts, launched.arguments + kBytes, sizeof experts);
  std::memcpy(&stride, launched.arguments + kBytes + 8, sizeof stride);
  std::memcpy(&tile_count, launched.arguments + kBytes + 12, sizeof tile_count);
  CHECK(data(down.rows) == in(plan.activation_data));
  CHECK(data(down.row_scales) == in(plan.activation_scales));
  CHECK(data(down.columns) == layer.down.data);
  CHECK(data(down.column_scales) == layer.down.scales);
  CHECK(data(down.output) == in(plan.gemm_output));
  CHECK(down.a_scale == layer.activation_scale);
  CHECK(down.b_scale == in(plan.down_global_scales));
  CHECK(down.bias == layer.down.bias);
  CHECK(down.m == 8 * 128);
  CHECK(down.n == 256);
  CHECK(down.k == 128);
  CHECK(experts == in(plan.row_experts));
  CHECK(stride == 0);
  CHECK(tile_count == in(plan.tile_count));
  CHECK(moe.workspace_bytes(shape) == plan.total_bytes);
  CHECK(moe.max_workspace_bytes(shape) ==
        moe_max_bytes({300, 2, 4, 256, 128, 4}, MoeKernels::grouped, 148));
}

TEST_CASE_FIXTURE(BlackwellFixture, "a dynamic scale takes no further kernel on sm_100a") {
  layer.activation_scale = nullptr;
  layer.dynamic_activation_scale = true;
  shape = {300, 2, 4, 256, 128, 4, false, true};
  REQUIRE(launch());
  FakeLaunch launched{};
  const char* const names[] = {"moe_combine_rows", "nvfp4_gemm_grouped_128x128",
                               "moe_grouped_up_dynamic", "moe_route_rows"};
  for (std::size_t i = 0; i < 4; ++i) {
    REQUIRE(fake.launch(i, &launched));
    CHECK(launched.kernel == std::string(names[i]));
    CHECK(launched.programmatic);
  }
  CHECK_FALSE(fake.launch(4, &launched));

  const MoePlan plan = moe_plan(shape, MoeKernels::grouped, 148);
  CHECK(moe.workspace_bytes(shape) == plan.total_bytes);
  const auto in = [&](std::size_t offset) { return address<std::uint8_t>(0xD000 + offset); };
  const auto pointer_at = [&](std::size_t newest_first, std::size_t byte) {
    FakeLaunch of{};
    REQUIRE(fake.launch(newest_first, &of));
    std::uint8_t* pointer = nullptr;
    std::memcpy(&pointer, of.arguments + byte, sizeof pointer);
    return pointer;
  };
  CHECK(pointer_at(3, 6 * 8) == in(plan.row_states));
  constexpr std::size_t kBehindMaps = 2 * 8 + 4 * sizeof(TensorMap);
  CHECK(pointer_at(2, 0) == in(plan.activation_data));
  CHECK(pointer_at(2, 8) == in(plan.activation_scales));
  CHECK(pointer_at(2, kBehindMaps + 3 * 8) == nullptr);  // the scale that is given
  REQUIRE(fake.launch(2, &launched));
  CHECK(pointer_at(2, launched.argument_bytes - 24) == in(plan.activation_row_scales));
  CHECK(pointer_at(2, launched.argument_bytes - 16) == in(plan.wide_scales));
  CHECK(pointer_at(2, launched.argument_bytes - 8) == in(plan.row_states));
  CHECK(pointer_at(1, 5 * sizeof(TensorMap)) == in(plan.activation_row_scales));
  REQUIRE(fake.launch(1, &launched));
  std::uint32_t a_scales = 0;
  std::memcpy(&a_scales, launched.arguments + launched.argument_bytes - 12, sizeof a_scales);
  CHECK(a_scales == 2);
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

TEST_CASE_FIXTURE(BlackwellFixture, "W4A16 uses the kernels that every device has") {
  layer.activation_scale = nullptr;
  shape = {300, 2, 4, 256, 128, 4, true};
  REQUIRE(launch());
  FakeLaunch launched{};
  const char* const names[] = {"moe_combine", "moe_w4a16_down", "moe_w4a16_up", "moe_route"};
  for (std::size_t i = 0; i < 4; ++i) {
    REQUIRE(fake.launch(i, &launched));
    CHECK(launched.kernel == std::string(names[i]));
  }
  CHECK_FALSE(fake.launch(4, &launched));
  CHECK(moe.workspace_bytes(shape) == moe_plan(shape, MoeKernels::grouped, 148).total_bytes);
}

TEST_CASE_FIXTURE(Fixture, "nvfp4_moe_gemm refuses unsupported shapes with the supported ones") {
  const MoeShape good = shape;
  const auto with = [&](auto member, std::int64_t value) {
    shape = good;
    shape.*member = value;
    CHECK(moe.workspace_bytes(shape) == 0);
    CHECK(moe.max_workspace_bytes(shape) == 0);
    return refusal();
  };
  CHECK(with(&MoeShape::tokens, -1) == "tokens is -1; expected 0 to 2147483647");
  CHECK(with(&MoeShape::hidden, 48) == "hidden is 48; expected a positive multiple of 32");
  CHECK(with(&MoeShape::width, 0) == "width is 0; expected a positive multiple of 32");
  CHECK(with(&MoeShape::experts, 1025) == "experts is 1025; expected 1 to 1024");
  CHECK(with(&MoeShape::topk, 0) == "topk is 0; expected 1 to 1024");
  CHECK(with(&MoeShape::global_experts, -2) == "global_experts is -2; expected 0 to 2147483647");
  CHECK(with(&MoeShape::tokens, 1 << 20) ==
        "1048576 tokens with 2 experts each; expected at most 1048576 in all: launch parts of the "
        "tokens");
  shape = {1, 1, 1024, 64, 1 << 21};
  CHECK(refusal() ==
        "1024 experts with 4194304 and 64 rows of weights; expected at most 2147483647 in all");
  shape = good;
  CHECK(moe.workspace_bytes(shape) > 0);
  moe = {};
  CHECK(refusal() == "an empty MoeGemm; expected one that MoeGemm::create made");
}

TEST_CASE_FIXTURE(Fixture, "nvfp4_moe_gemm refuses unusable pointers by name") {
  output = address<std::uint16_t>(0xB008);
  CHECK(refusal() == "output is 0xb008; expected a multiple of 16 bytes");
  output = address<std::uint16_t>(0xB000);
  topk_ids = nullptr;
  CHECK(refusal() == "input.topk_ids is null; expected a device pointer");
  topk_ids = address<std::int32_t>(0x3000);
  layer.down.scales = nullptr;
  CHECK(refusal() == "layer.down.scales is null; expected a device pointer");
  layer.down.scales = address<std::uint8_t>(0x9000);
  layer.up.bias = address<std::uint16_t>(0x1F008);
  CHECK(refusal() == "layer.up.bias is 0x1f008; expected a multiple of 16 bytes");
  layer.up.bias = nullptr;  // none
  workspace.data = nullptr;
  CHECK(refusal() == "workspace.data is null; expected a device pointer");
  workspace = {address<void>(0xD000), 100};
  CHECK(refusal() == "workspace has 100 bytes; expected " +
                         std::to_string(moe.workspace_bytes(shape)) + ", see workspace_bytes()");
  workspace.size_bytes = std::size_t{1} << 40;
  layer.activation.limit = 0;
  CHECK(refusal() == "activation.limit is 0; expected a positive number, infinity for no limit");
}

}  // namespace cukiln::nvfp4
