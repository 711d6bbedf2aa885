// SPDX-License-Identifier: Apache-2.0
// The kernels before and after a mixture of experts' grouped GEMMs, each compared with a CPU.
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

#include <cukiln/nvfp4/moe.hpp>

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

  /// moe_route_rows of random tokens, `expert_of_slot` the local experts or -1.
  void check_route(const std::vector<int>& expert_of_slot, std::size_t topk, std::size_t experts,
                   std::size_t hidden) {
    const std::size_t slots = expert_of_slot.size();
    const std::size_t tokens = slots / topk;
    const std::size_t max_tiles = std::min(slots, slots / kTileRows + std::min(experts, slots));
    const auto values = random_bf16(Kind::normal, tokens * hidden, random);
    const nvfp4::GlobalScale scale = global_scale_of(values);
    const Quantized of_tokens = testing::quantize(values, tokens, hidden, scale);
    std::vector<float> down_decode(experts);
    std::iota(down_decode.begin(), down_decode.end(), 1.0f);

    // Rows by expert, then by slot; an expert's first one begins a tile.
    auto row_of_slot = poisoned<std::int32_t>(slots);
    std::fill_n(row_of_slot.begin(), slots, -1);
    auto data = poisoned<std::uint8_t>(max_tiles * kTileRows * hidden / 2);
    auto scales = poisoned<std::uint8_t>(max_tiles * kTileRows * hidden / 16);
    auto row_experts = poisoned<std::int32_t>(max_tiles);
    auto global_scales = poisoned<float>(experts * 2);
    std::size_t tiles = 0;
    for (std::size_t e = 0; e < experts; ++e) {
      global_scales[2 * e + 1] = down_decode[e];
      std::size_t in_tile = kTileRows;
      for (std::size_t slot = 0; slot < slots; ++slot) {
        if (expert_of_slot[slot] != static_cast<int>(e)) continue;
        if (in_tile == kTileRows) {
          row_experts[tiles++] = static_cast<std::int32_t>(e);
          in_tile = 0;
        }
        const std::size_t row = (tiles - 1) * kTileRows + in_tile++;
        row_of_slot[slot] = static_cast<std::int32_t>(row);
        const std::size_t token = slot / topk;
        std::copy_n(&of_tokens.data[token * hidden / 2], hidden / 2, &data[row * hidden / 2]);
        for (std::size_t block = 0; block < hidden / 16; ++block) {
          scales[nvfp4::scale_offset(row, block, hidden)] =
              of_tokens.scales[nvfp4::scale_offset(token, block, hidden)];
        }
      }
    }
    REQUIRE(tiles <= max_tiles);
    auto states = poisoned<std::uint32_t>(max_tiles * kTileRows * 2);
    std::fill_n(states.begin(), tiles * kTileRows * 2, 0);

    const DeviceBuffer<std::uint16_t> device_hidden(values);
    const DeviceBuffer<float> device_scale(std::vector<float>{scale.encode, scale.decode}),
        device_decode(down_decode);
    const DeviceBuffer<std::int32_t> ids(expert_of_slot);
    for (const std::uint32_t grid : {1u, 3u, 200u}) {
      const DeviceBuffer<std::uint8_t> given_data(poisoned<std::uint8_t>(data.size() - kGuard)),
          given_scales(poisoned<std::uint8_t>(scales.size() - kGuard));
      const DeviceBuffer<std::int32_t> given_experts(poisoned<std::int32_t>(max_tiles)),
          given_rows(poisoned<std::int32_t>(slots));
      const DeviceBuffer<std::uint32_t> given_count(poisoned<std::uint32_t>(1)),
          given_states(poisoned<std::uint32_t>(max_tiles * kTileRows * 2));
      const DeviceBuffer<float> given_global(poisoned<float>(experts * 2));
      require_ok(route.launch(
          stream, config_of({grid}, 512), given_data.data(), given_scales.data(),
          given_experts.data(), given_count.data(), given_rows.data(), given_global.data(),
          given_states.data(), device_hidden.data(), device_scale.data(), ids.data(), nullptr,
          device_decode.data(), static_cast<std::uint32_t>(tokens),
          static_cast<std::uint32_t>(topk), static_cast<std::uint32_t>(hidden),
          static_cast<std::uint32_t>(experts), static_cast<std::uint32_t>(experts)));
      CAPTURE(grid);
      CHECK(given_data.download() == data);
      CHECK(given_scales.download() == scales);
      CHECK(given_experts.download() == row_experts);
      CHECK(given_rows.download() == row_of_slot);
      CHECK(given_global.download() == global_scales);
      CHECK(given_count.download()[0] == tiles);
      CHECK(given_states.download() == states);
    }
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "moe_route_rows brings each tile what its tokens have, and nothing else") {
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
    check_route(expert_of_slot, topk, experts, hidden);
  };
  const auto any_of = [&](int experts) {
    return [this, experts](std::size_t) { return static_cast<int>(random() % experts); };
  };
  check(60, 2, 3, 128, any_of(3));
  check(300, 3, 5, 576, any_of(5));     // nine atoms of columns
  check(40, 2, 64, 256, any_of(64));    // tiles of a token or two
  check(90, 2, 1024, 128, any_of(20));  // most experts without
  check(300, 2, 5, 1152, [](std::size_t) { return 3; });
  check(128, 2, 2, 128, [](std::size_t slot) { return static_cast<int>(slot % 2); });  // full tiles
  check(129, 1, 1, 64, [](std::size_t) { return 0; });
  check(50, 4, 3, 128, [&](std::size_t) { return static_cast<int>(random() % 6) % 4 - 1; });
  check(1, 1, 2, 128, [](std::size_t) { return 1; });
  check(20, 4, 2, 128, [](std::size_t) { return -1; });
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
