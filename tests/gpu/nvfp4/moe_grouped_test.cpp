// SPDX-License-Identifier: Apache-2.0
// The kernels around a mixture of experts' grouped GEMMs, each compared with a CPU.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <cukiln/nvfp4_moe.hpp>

#include "gpu/nvfp4/moe_grouped_kernels.hpp"
#include "gpu/nvfp4/moe_problem.hpp"
#include "gpu/nvfp4/reference.hpp"
#include "gpu/support/device.hpp"
#include "gpu/support/loader.hpp"

namespace cukiln::testing {
namespace {

constexpr std::size_t kTileRows = 128;
constexpr std::size_t kGuard = 64;
constexpr std::uint8_t kPoison = 0xA5;
constexpr auto kHalves = nvfp4::GateUpLayout::halves;
constexpr auto kPairs = nvfp4::GateUpLayout::pairs;
constexpr nvfp4::SwiGlu kGptOss{7, 1.702f, 1};

template <class T>
T poison_of() {
  T value{};
  std::fill_n(reinterpret_cast<std::uint8_t*>(&value), sizeof value, kPoison);
  return value;
}

/// `count` elements and a guard, all poison.
template <class T>
std::vector<T> poisoned(std::size_t count) {
  return std::vector<T>(count + kGuard, poison_of<T>());
}

struct Fixture : MoeGroupedKernels {
  TestStream stream;
  std::mt19937_64 random{20251121};

  std::vector<std::uint8_t> random_bytes(std::size_t count) {
    std::vector<std::uint8_t> bytes(count);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    return bytes;
  }

  /// moe_gather of random tokens, `expert_of_slot` the local experts or -1.
  void check_gather(const std::vector<int>& expert_of_slot, std::size_t topk, std::size_t experts,
                    std::size_t hidden) {
    const std::size_t slots = expert_of_slot.size();
    const std::size_t tokens = slots / topk;
    const std::size_t max_tiles = std::min(slots, slots / kTileRows + std::min(experts, slots));
    const auto token_data = random_bytes(tokens * hidden / 2);
    const auto token_scales = random_bytes(tokens * hidden / 16);
    std::vector<float> up_decode(experts);
    std::vector<float> down_decode(experts);
    for (std::size_t e = 0; e < experts; ++e) {
      up_decode[e] = 1 + static_cast<float>(e);
      down_decode[e] = -1 - static_cast<float>(e);
    }

    // Positions by expert, then by slot, and a tile for each 128 of an expert.
    auto tiles = poisoned<std::uint32_t>(max_tiles * 4);
    auto slot_of_position = poisoned<std::uint32_t>(slots);
    auto row_of_slot = poisoned<std::int32_t>(slots);
    auto position_of_slot = row_of_slot;
    std::fill_n(position_of_slot.begin(), slots, -1);
    std::fill_n(row_of_slot.begin(), slots, -1);
    auto data = poisoned<std::uint8_t>(max_tiles * kTileRows * hidden / 2);
    auto scales = poisoned<std::uint8_t>(max_tiles * kTileRows * hidden / 16);
    auto row_experts = poisoned<std::int32_t>(max_tiles);
    std::fill_n(row_experts.begin(), max_tiles, -1);
    auto up_global_scales = poisoned<float>(experts * 2);
    auto down_global_scales = up_global_scales;
    std::uint32_t tile_count = 0;
    std::uint32_t position = 0;
    for (std::size_t e = 0; e < experts; ++e) {
      std::uint32_t in_tile = kTileRows;
      for (std::size_t slot = 0; slot < slots; ++slot) {
        if (expert_of_slot[slot] != static_cast<int>(e)) continue;
        if (in_tile == kTileRows) {
          tiles[tile_count * 4] = static_cast<std::uint32_t>(e);
          tiles[tile_count * 4 + 1] = position;
          row_experts[tile_count] = static_cast<std::int32_t>(e);
          up_global_scales[2 * e + 1] = up_decode[e];
          down_global_scales[2 * e + 1] = down_decode[e];
          in_tile = 0;
          ++tile_count;
        }
        const std::size_t row = (tile_count - 1) * kTileRows + in_tile++;
        tiles[(tile_count - 1) * 4 + 2] = in_tile;
        slot_of_position[position] = static_cast<std::uint32_t>(slot);
        position_of_slot[slot] = static_cast<std::int32_t>(position++);
        row_of_slot[slot] = static_cast<std::int32_t>(row);
        const std::size_t token = slot / topk;
        std::copy_n(&token_data[token * hidden / 2], hidden / 2, &data[row * hidden / 2]);
        for (std::size_t block = 0; block < hidden / 16; ++block) {
          scales[nvfp4::scale_offset(row, block, hidden)] =
              token_scales[token * hidden / 16 + block];
        }
      }
    }
    REQUIRE(tile_count <= max_tiles);

    const DeviceBuffer<std::uint8_t> given_data(poisoned<std::uint8_t>(data.size() - kGuard)),
        given_scales(poisoned<std::uint8_t>(scales.size() - kGuard));
    const DeviceBuffer<std::int32_t> given_experts(poisoned<std::int32_t>(max_tiles)),
        given_rows(position_of_slot);
    const DeviceBuffer<float> given_up(poisoned<float>(experts * 2)),
        given_down(poisoned<float>(experts * 2));
    const DeviceBuffer<std::uint32_t> device_tiles(tiles), device_slots(slot_of_position),
        count(std::vector<std::uint32_t>{tile_count, position});
    const DeviceBuffer<std::uint8_t> device_data(token_data), device_scales(token_scales);
    const DeviceBuffer<float> device_up(up_decode), device_down(down_decode);
    const nvfp4::MoeGrid grid{static_cast<std::uint32_t>((hidden + 511) / 512),
                              static_cast<std::uint32_t>(max_tiles)};
    require_ok(gather.launch(
        stream, config_of(grid, 256), given_data.data(), given_scales.data(), given_experts.data(),
        given_rows.data(), given_up.data(), given_down.data(),
        reinterpret_cast<const nvfp4::MoeTile*>(device_tiles.data()), count.data(),
        device_slots.data(), device_data.data(), device_scales.data(), device_up.data(),
        device_down.data(), static_cast<std::uint32_t>(topk), static_cast<std::uint32_t>(hidden)));
    CHECK(given_data.download() == data);
    CHECK(given_scales.download() == scales);
    CHECK(given_experts.download() == row_experts);
    CHECK(given_rows.download() == row_of_slot);
    CHECK(given_up.download() == up_global_scales);
    CHECK(given_down.download() == down_global_scales);
  }

  /// Data, then scales, of as many tiles as `gemm_output` has, of which `tiles` are computed.
  Quantized activated(const std::vector<std::uint16_t>& gemm_output, std::uint32_t tiles,
                      std::size_t width, nvfp4::GlobalScale global_scale,
                      nvfp4::GateUpLayout layout, const nvfp4::SwiGlu& activation,
                      std::uint32_t grid) {
    const std::size_t rows = gemm_output.size() / (2 * width);
    const DeviceBuffer<std::uint8_t> data(poisoned<std::uint8_t>(rows * width / 2)),
        scales(poisoned<std::uint8_t>(rows * ((width + 63) / 64 * 4)));
    const DeviceBuffer<std::uint16_t> input(gemm_output);
    const DeviceBuffer<std::uint32_t> count(std::vector<std::uint32_t>{tiles, 0});
    const DeviceBuffer<float> scale(std::vector<float>{global_scale.encode, global_scale.decode});
    require_ok(activate.launch(
        stream, config_of({grid}, 512), data.data(), scales.data(), input.data(), count.data(),
        scale.data(), static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(layout),
        activation.limit, activation.alpha, activation.beta));
    return {data.download(), scales.download()};
  }
};

/// Where the gate of a column, or its up value, is in a row of the first GEMM's output.
std::size_t place(std::size_t column, std::size_t width, bool is_gate, nvfp4::GateUpLayout layout) {
  return layout == kPairs ? 2 * column + (is_gate ? 0 : 1) : column + (is_gate ? 0 : width);
}

/// How many of the first bytes of `given` differ; none of the others may be anything but poison.
std::size_t differences(const std::vector<std::uint8_t>& given,
                        const std::vector<std::uint8_t>& wanted) {
  std::size_t different = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) different += given[i] != wanted[i];
  for (std::size_t i = wanted.size(); i < given.size(); ++i) REQUIRE(given[i] == kPoison);
  return different;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "moe_gather brings each tile what its tokens have, and nothing else") {
  const auto check = [&](std::size_t tokens, std::size_t topk, std::size_t experts,
                         std::size_t hidden, auto expert_of) {
    CAPTURE(tokens);
    CAPTURE(topk);
    CAPTURE(experts);
    CAPTURE(hidden);
    std::vector<int> expert_of_slot(tokens * topk);
    for (std::size_t slot = 0; slot < expert_of_slot.size(); ++slot) {
      expert_of_slot[slot] = expert_of(slot);
    }
    check_gather(expert_of_slot, topk, experts, hidden);
  };
  const auto any_of = [&](int experts) {
    return [this, experts](std::size_t) { return static_cast<int>(random() % experts); };
  };
  check(60, 2, 3, 128, any_of(3));
  check(300, 3, 5, 576, any_of(5));     // columns with a part of a thread block's
  check(40, 2, 64, 256, any_of(64));    // tiles of a token or two
  check(90, 2, 1024, 128, any_of(20));  // most experts without
  check(300, 2, 5, 1152, [](std::size_t) { return 3; });
  check(128, 2, 2, 128, [](std::size_t slot) { return static_cast<int>(slot % 2); });  // full tiles
  check(129, 1, 1, 64, [](std::size_t) { return 0; });
  check(50, 4, 3, 128, [&](std::size_t) { return static_cast<int>(random() % 6) % 4 - 1; });
  check(1, 1, 2, 128, [](std::size_t) { return 1; });
  check(20, 4, 2, 128, [](std::size_t) { return -1; });
}

TEST_CASE_FIXTURE(Fixture,
                  "moe_activate is the clamped SwiGLU of as many rows as there are tiles") {
  const float infinity = std::numeric_limits<float>::infinity();
  std::normal_distribution<float> normal(0, 5);
  for (const nvfp4::SwiGlu& activation :
       {nvfp4::SwiGlu{infinity, 1, 0}, nvfp4::SwiGlu{7, 1.702f, 1}, nvfp4::SwiGlu{10, 1, 0},
        nvfp4::SwiGlu{0.5f, 1, 0}}) {
    for (const auto& [tiles, width] :
         {std::pair<std::uint32_t, std::size_t>{3, 192}, {1, 64}, {2, 80}, {0, 128}}) {
      for (const nvfp4::GateUpLayout layout : {kHalves, kPairs}) {
        CAPTURE(activation.limit);
        CAPTURE(tiles);
        CAPTURE(width);
        CAPTURE(static_cast<unsigned>(layout));
        const std::size_t rows = tiles * kTileRows;
        // One tile more than there are, of NaN.
        std::vector<std::uint16_t> gemm_output((rows + kTileRows) * 2 * width, 0x7FC0);
        std::vector<std::uint16_t> y(rows * width);
        for (std::size_t i = 0; i < y.size(); ++i) {
          const std::size_t first = i / width * 2 * width;
          const std::uint16_t gate = bf16_of_float(normal(random));
          const std::uint16_t up = bf16_of_float(normal(random));
          gemm_output[first + place(i % width, width, true, layout)] = gate;
          gemm_output[first + place(i % width, width, false, layout)] = up;
          y[i] = swiglu(float_of_bf16(gate), float_of_bf16(up), activation);
        }
        const nvfp4::GlobalScale scale = global_scale_of(y);
        const Quantized wanted = testing::quantize(y, rows, width, scale);
        const Quantized given = activated(gemm_output, tiles, width, scale, layout, activation, 1);
        // The approximate exponential moves a bf16 rounding now and then, never more.
        CHECK(differences(given.data, wanted.data) <= 1 + wanted.data.size() / 100);
        CHECK(differences(given.scales, wanted.scales) <= 1 + wanted.scales.size() / 250);
        for (const std::uint32_t grid : {5u, 64u}) {
          const Quantized same =
              activated(gemm_output, tiles, width, scale, layout, activation, grid);
          CHECK(same.data == given.data);
          CHECK(same.scales == given.scales);
        }
      }
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "a NaN in moe_activate makes its block NaN and no other") {
  constexpr std::size_t kWidth = 128;
  constexpr std::size_t kRows = 2 * kTileRows;
  for (const nvfp4::GateUpLayout layout : {kHalves, kPairs}) {
    auto gemm_output = random_bf16(Kind::normal, kRows * 2 * kWidth, random);
    const auto run = [&] {
      return activated(gemm_output, 2, kWidth, global_scale_of_amax(20), layout, kGptOss, 3);
    };
    Quantized wanted = run();
    for (const auto& [row, column, is_gate] :
         {std::tuple<std::size_t, std::size_t, bool>{5, 20, true}, {200, 127, false}}) {
      gemm_output[row * 2 * kWidth + place(column, kWidth, is_gate, layout)] = 0x7FC0;
      std::fill_n(&wanted.data[(row * kWidth + column / 16 * 16) / 2], 8, std::uint8_t{0});
      wanted.scales[nvfp4::scale_offset(row, column / 16, kWidth)] = 0x7F;
    }
    const Quantized given = run();
    CHECK(given.data == wanted.data);
    CHECK(given.scales == wanted.scales);
  }
}

TEST_CASE_FIXTURE(Fixture, "moe_combine_rows adds a token's rows up, in order, in float") {
  for (const auto& [tokens, topk, columns] :
       {std::tuple<std::size_t, std::size_t, std::size_t>{1, 1, 128},
        {7, 2, 384},
        {33, 3, 2048},
        {12, 5, 2056},
        {20, 8, 4224},
        {3, 33, 136}}) {
    CAPTURE(tokens);
    CAPTURE(topk);
    CAPTURE(columns);
    const std::size_t slots = tokens * topk;
    const std::size_t rows = slots + kTileRows;
    std::vector<std::int32_t> row_of_slot(rows);
    std::iota(row_of_slot.begin(), row_of_slot.end(), 0);
    std::shuffle(row_of_slot.begin() + 1, row_of_slot.end(), random);  // row 0 is used
    row_of_slot.resize(slots);
    // A slot without a row has a weight of NaN, and padding rows are NaN.
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> weights(slots);
    std::vector<std::uint16_t> gemm_output(rows * columns, 0x7FC0);
    for (std::size_t slot = 0; slot < slots; ++slot) {
      const bool skipped = slot % 5 == 2 || slot / topk == 4;
      weights[slot] = skipped ? nan : std::uniform_real_distribution<float>(-1, 1)(random);
      if (skipped) row_of_slot[slot] = -1;
      if (skipped) continue;
      const auto values = random_bf16(Kind::normal, columns, random);
      std::copy(values.begin(), values.end(),
                &gemm_output[static_cast<std::size_t>(row_of_slot[slot]) * columns]);
    }
    gemm_output[static_cast<std::size_t>(row_of_slot[0]) * columns + 9] = 0x7FC0;

    const DeviceBuffer<std::uint16_t> output(poisoned<std::uint16_t>(tokens * columns)),
        input(gemm_output);
    const DeviceBuffer<float> device_weights(weights);
    const DeviceBuffer<std::int32_t> device_rows(row_of_slot);
    require_ok(combine.launch(stream,
                              config_of({static_cast<std::uint32_t>(tokens),
                                         nvfp4::ceil_div(static_cast<std::int64_t>(columns), 2048)},
                                        256),
                              output.data(), input.data(), device_weights.data(),
                              device_rows.data(), static_cast<std::uint32_t>(topk),
                              static_cast<std::uint32_t>(columns)));
    const auto given = output.download();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < tokens * columns; ++i) {
      float sum = 0;
      for (std::size_t slot = i / columns * topk; slot < (i / columns + 1) * topk; ++slot) {
        if (row_of_slot[slot] < 0) continue;
        const auto row = static_cast<std::size_t>(row_of_slot[slot]);
        sum = std::fma(weights[slot], float_of_bf16(gemm_output[row * columns + i % columns]), sum);
      }
      wrong += i == 9 ? !std::isnan(float_of_bf16(given[i])) : given[i] != bf16_of_float(sum);
    }
    CHECK(wrong == 0);
    CHECK(std::all_of(given.end() - kGuard, given.end(), [](auto bits) { return bits == 0xA5A5; }));
  }
}

}  // namespace cukiln::testing
