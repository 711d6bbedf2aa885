// SPDX-License-Identifier: Apache-2.0
// Each of the grouped GEMMs on the hardware that they are for: a launcher's plan selects one of
// them for a shape, and the tests of mixtures of experts have few shapes.
#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <cukiln/nvfp4/nvfp4.hpp>

#include "gpu/nvfp4/moe_grouped_kernels.hpp"
#include "gpu/support/device.hpp"
#include "gpu/support/loader.hpp"
#include "gpu/support/nvfp4_gemm.hpp"
#include "nvfp4/host/sm100_launch.hpp"
#include "nvfp4/host/sm100_plan.hpp"

namespace cukiln::testing {
namespace {

constexpr std::int64_t kExperts = 3;
constexpr std::int64_t kGroupRows = 128;
constexpr std::uint16_t kUntouched = 0x7FC1;

struct Case {
  std::int64_t m, n, k;
  std::int64_t num_sms;      // few, so that a thread block computes several tiles
  std::vector<int> experts;  // of each 128 rows
  std::uint32_t row_tiles;   // that there are; 0: all
  bool scale_of_rows;        // A's, else of experts
};

void check(const nvfp4::Sm100Kernel& of, const Case& c) {
  std::mt19937 random(static_cast<unsigned>(c.m * 7 + c.n * 3 + c.k));
  const HostMatrix a = random_matrix(c.m, c.k, random);
  const HostMatrix b = random_matrix(c.n * kExperts, c.k, random);
  std::vector<nvfp4::GlobalScale> a_scales = {{2, 0.5f}, {1, 0.75f}, {9, 2}};
  for (std::int64_t row = kExperts; c.scale_of_rows && row < c.m; ++row) {
    a_scales.push_back({5, 0.25f + static_cast<float>(row) / 256});
  }
  const std::vector<nvfp4::GlobalScale> b_scales = {{0.8f, 1.25f}, {7, 3}, {5, 0.375f}};
  const std::vector<std::uint16_t> bias = random_bias(b.rows, random);
  const DeviceBuffer<std::uint8_t> a_data(a.data), a_blocks(a.scales), b_data(b.data),
      b_blocks(b.scales);
  const DeviceBuffer<nvfp4::GlobalScale> a_global(a_scales), b_global(b_scales);
  const DeviceBuffer<std::uint16_t> device_bias(bias);
  const DeviceBuffer<std::int32_t> experts(c.experts);
  const DeviceBuffer<std::uint32_t> row_tiles(std::vector<std::uint32_t>{c.row_tiles});
  DeviceBuffer<std::uint16_t> d(
      std::vector<std::uint16_t>(static_cast<std::size_t>(c.m * c.n), kUntouched));

  const ShippedKernel<nvfp4::detail::Sm100GroupedGemm> shipped(of.module, of.name);
  require_ok(shipped.kernel.reserve_shared(of.shared_bytes));
  const nvfp4::Sm100Plan plan =
      plan_sm100(of, {a_data.data(), a_blocks.data(), nullptr, a.rows, c.k},
                 {b_data.data(), b_blocks.data(), nullptr, b.rows, c.k}, d.data(), c.n, c.num_sms);
  require_ok(nvfp4::detail::launch_sm100<nvfp4::detail::Sm100GroupedGemm>(
      shipped.kernel, nullptr, plan, a_global.data(), b_global.data(), device_bias.data(),
      static_cast<std::uint32_t>(c.m), static_cast<std::uint32_t>(c.n),
      static_cast<std::uint32_t>(c.k), experts.data(), c.scale_of_rows ? 2u : 1u,
      c.row_tiles != 0 ? row_tiles.data() : nullptr));
  const std::vector<std::uint16_t> given = d.download();

  std::size_t wrong = 0;
  for (std::int64_t row = 0; row < c.m; ++row) {
    const std::int64_t tile = row / kGroupRows;
    const bool is_absent = c.row_tiles != 0 && tile >= c.row_tiles;
    const int expert = is_absent ? -1 : c.experts[static_cast<std::size_t>(tile)];
    for (std::int64_t column = 0; column < c.n; ++column) {
      const std::uint16_t number = given[static_cast<std::size_t>(row * c.n + column)];
      if (expert < 0) {
        wrong += static_cast<std::size_t>(number != kUntouched);
        continue;
      }
      const auto of_a = static_cast<std::size_t>(c.scale_of_rows ? row : expert);
      const std::int64_t of_b = expert * c.n + column;
      const double alpha =
          double{a_scales[of_a].decode} * b_scales[static_cast<std::size_t>(expert)].decode;
      wrong += static_cast<std::size_t>(!is_dot_product(
          number, a, row, b, of_b, alpha, float_of(bias[static_cast<std::size_t>(of_b)])));
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("each grouped GEMM multiplies rows by their experts' weights") {
  if (!nvfp4::GroupedGemm::runs_on(Device::first().capability())) {
    MESSAGE("this device has no grouped GEMMs");
    return;
  }
  for (std::size_t i = nvfp4::kSm100Grouped; i < std::size(nvfp4::kSm100Kernels); ++i) {
    for (const Case& c : {Case{640, 128, 352, 2, {2, 0, -1, 0, 1}, 0, false},
                          {512, 384, 1120, 1, {0, -1, -1, 2}, 0, false},
                          {500, 256, 96, 2, {1, 0, 2, 0}, 3, false},
                          {300, 256, 96, 1, {0, 2, 1}, 0, true}}) {
      CAPTURE(nvfp4::kSm100Kernels[i].name);
      CAPTURE(c.m);
      CAPTURE(c.n);
      CAPTURE(c.k);
      check(nvfp4::kSm100Kernels[i], c);
    }
  }
}

}  // namespace cukiln::testing
