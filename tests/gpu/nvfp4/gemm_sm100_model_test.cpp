// SPDX-License-Identifier: Apache-2.0
// The sm_100a GEMM on sm_90a: the shipped source, with tensor memory and MMAs modelled, so
// that TMA, tensor maps as the driver makes them, mbarriers, scheduling and the epilogue are the
// hardware's.
#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "gpu/support/device.hpp"
#include "gpu/support/loader.hpp"
#include "gpu/support/nvfp4_gemm.hpp"
#include "gpu/support/sm100_model.hpp"
#include "nvfp4/host/sm100_plan.hpp"

namespace cukiln::testing {
namespace {

using nvfp4::Sm100Kernel;

struct Case {
  std::int64_t m, n, k;
  int num_sms;
  bool bias;
  const Sm100Kernel* kernel;
  std::vector<int> experts = {};
  std::uint32_t splits = 1;
};

const Sm100Kernel* kernel_named(const std::string& name) {
  const Sm100Kernel* const found =
      std::find_if(std::begin(nvfp4::kSm100Kernels), std::end(nvfp4::kSm100Kernels),
                   [&](const Sm100Kernel& kernel) { return kernel.name == name; });
  REQUIRE(found != std::end(nvfp4::kSm100Kernels));
  return found;
}

void check_gemm(const Case& c) {
  constexpr std::int64_t kExperts = 3;
  const bool grouped = !c.experts.empty();
  std::mt19937 random(static_cast<unsigned>(c.m * 7 + c.n * 3 + c.k));
  const HostMatrix a = random_matrix(c.m, c.k, random);
  const HostMatrix b = random_matrix(grouped ? c.n * kExperts : c.n, c.k, random);
  const std::vector<nvfp4::GlobalScale> a_scales = {{2, 0.5f}, {1, 0.75f}, {9, 2}};
  const std::vector<nvfp4::GlobalScale> b_scales = {{0.8f, 1.25f}, {7, 3}, {5, 0.375f}};
  const std::vector<std::uint16_t> bias = random_bias(b.rows, random);
  const DeviceBuffer<std::uint8_t> a_data(a.data), a_block_scales(a.scales), b_data(b.data),
      b_block_scales(b.scales);
  const DeviceBuffer<nvfp4::GlobalScale> device_a_scales(a_scales), device_b_scales(b_scales);
  const DeviceBuffer<std::uint16_t> device_bias(bias);
  const DeviceBuffer<int> experts(grouped ? c.experts : std::vector<int>{0});
  constexpr std::size_t kAfter = 64;
  constexpr std::uint16_t kUntouched = 0x7FC1;
  DeviceBuffer<std::uint16_t> d(
      std::vector<std::uint16_t>(static_cast<std::size_t>(c.m * c.n) + kAfter, kUntouched));

  const nvfp4::Sm100Plan plan =
      plan_sm100(*c.kernel, {a_data.data(), a_block_scales.data(), nullptr, a.rows, c.k},
                 {b_data.data(), b_block_scales.data(), nullptr, b.rows, c.k}, d.data(), c.n,
                 c.num_sms, c.splits);
  const std::uint16_t* const given_bias = c.bias ? device_bias.data() : nullptr;
  if (c.kernel->swapped) {
    using Swapped = nvfp4::detail::Sm100SwappedGemm;
    require_ok(nvfp4::detail::launch_sm100<Swapped>(
        sm100_model<Swapped>(*c.kernel), nullptr, plan, device_a_scales.data(),
        device_b_scales.data(), given_bias, static_cast<std::uint32_t>(c.m),
        static_cast<std::uint32_t>(c.n), static_cast<std::uint32_t>(c.k), c.m % 2 != 0 ? 1u : 0u));
  } else {
    require_ok(launch_sm100_model(sm100_model(*c.kernel), nullptr, plan, device_a_scales.data(),
                                  device_b_scales.data(), given_bias, c.m, c.n, c.k, experts.data(),
                                  1));
  }
  const std::vector<std::uint16_t> given = d.download();

  std::size_t wrong = 0;
  for (std::int64_t row = 0; row < c.m; ++row) {
    const int expert = grouped ? c.experts[static_cast<std::size_t>(row / 128)] : 0;
    for (std::int64_t column = 0; column < c.n; ++column) {
      const std::uint16_t number = given[static_cast<std::size_t>(row * c.n + column)];
      if (expert < 0) {
        wrong += static_cast<std::size_t>(number != kUntouched);
        continue;
      }
      const auto at = static_cast<std::size_t>(expert);
      const std::int64_t of_b = expert * c.n + column;
      const double added = c.bias ? float_of(bias[static_cast<std::size_t>(of_b)]) : 0;
      wrong += static_cast<std::size_t>(!is_dot_product(
          number, a, row, b, of_b, double{a_scales[at].decode} * b_scales[at].decode, added));
    }
  }
  CHECK(wrong == 0);
  for (std::size_t i = given.size() - kAfter; i < given.size(); ++i) {
    REQUIRE(given[i] == kUntouched);
  }
}

}  // namespace

TEST_CASE("the sm_100a GEMM is right on sm_90a's hardware, its tensor core modelled") {
  if (Device::first().capability() != kSm100ModelCapability) {
    MESSAGE("the model is for sm_90a; this device has its own tensor core");
    return;
  }
  const Sm100Kernel* const k128 = kernel_named("nvfp4_gemm_128x128");
  const Sm100Kernel* const k256 = kernel_named("nvfp4_gemm_128x256");
  const Sm100Kernel* const narrow = kernel_named("nvfp4_gemm_swapped_16");
  const Sm100Kernel* const swapped = kernel_named("nvfp4_gemm_swapped_64");
  const Sm100Kernel* const wide = kernel_named("nvfp4_gemm_swapped_128");
  const Sm100Kernel* const half = kernel_named("nvfp4_gemm_swapped_64_half");
  const Sm100Kernel* const grouped = kernel_named("nvfp4_gemm_grouped_128x128");
  const Sm100Kernel* const wide_grouped = kernel_named("nvfp4_gemm_grouped_128x256");
  for (const Case& c : {Case{130, 136, 96, 4, true, k128},
                        {300, 264, 576, 2, true, k128},
                        {257, 384, 1600, 9, false, k128},
                        {200, 520, 320, 3, true, k256},
                        {384, 256, 1120, 2, false, k256},
                        {1, 8, 32, 1, true, narrow},
                        {13, 392, 2592, 1, true, narrow},
                        {16, 136, 2048, 1, true, narrow, {}, 6},
                        {70, 264, 608, 1, true, swapped, {}, 4},
                        {150, 128, 1120, 1, false, wide, {}, 3},
                        {17, 264, 608, 2, true, swapped},
                        {64, 1024, 1856, 8, false, swapped},
                        {210, 264, 608, 2, true, swapped},
                        {17, 328, 608, 1, true, half},
                        {130, 200, 1888, 2, false, half},
                        {33, 232, 1184, 1, true, half, {}, 4},
                        {640, 128, 352, 4, true, grouped, {2, 0, -1, 0, 1}},
                        {384, 384, 160, 2, true, wide_grouped, {1, -1, 2}}}) {
    CAPTURE(c.kernel->name);
    CAPTURE(c.m);
    CAPTURE(c.n);
    CAPTURE(c.k);
    CAPTURE(c.splits);
    check_gemm(c);
  }
}

}  // namespace cukiln::testing
