// SPDX-License-Identifier: Apache-2.0
// A mixture of experts by grouped GEMMs, all of it, on sm_90a: the launcher's own steps and the
// shipped kernels, the tensor core modelled.
#include <cmath>
#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <cukiln/nvfp4/moe.hpp>

#include "gpu/nvfp4/moe_grouped_kernels.hpp"
#include "gpu/nvfp4/moe_problem.hpp"
#include "gpu/nvfp4/reference.hpp"
#include "gpu/support/device.hpp"
#include "gpu/support/loader.hpp"
#include "gpu/support/sm100_model.hpp"
#include "kernels_src/nvfp4/moe_grouped_signatures.cuh"
#include "nvfp4/host/moe_grouped_launch.hpp"
#include "nvfp4/host/sm100_select.hpp"

namespace cukiln::testing {
namespace {

using MoeGroupedUp = kernels::KernelSignature<signatures::MoeGroupedUp>;

constexpr std::uint32_t kNumSms = 4;  // few, so that a thread block computes several tiles

/// The launcher's steps, with the modelled tensor core.
struct Fixture : MoeGroupedKernels {
  bool here = Device::first().capability() == kSm100ModelCapability;
  Kernel gemms[2];
  Kernel up;
  Kernel up_dynamic;
  TestStream stream;
  std::mt19937_64 random{20251121};

  Fixture() {
    for (std::size_t i = 0; here && i < std::size(gemms); ++i) {
      gemms[i] = sm100_model(nvfp4::kSm100Kernels[nvfp4::kSm100Grouped + i]);
    }
    if (here) {
      up = sm100_model<MoeGroupedUp>(nvfp4::kMoeGroupedUp);
      up_dynamic = sm100_model<MoeGroupedUp>(nvfp4::kMoeGroupedUpDynamic);
    }
    if (!here) MESSAGE("the model is for sm_90a; this device has its own tensor core");
  }

  struct Steps {
    const Fixture& with;

    template <class... Args>
    Result<void> route(const nvfp4::MoeGrid& grid, Args... args) const noexcept {
      return with.route.launch(with.stream, config_of(grid, 512), args...);
    }
    template <class... Args>
    Result<void> up(const nvfp4::Sm100Plan& plan, std::uint8_t* data, std::uint8_t* scales,
                    Args... args) const noexcept {
      const Kernel& kernel =
          plan.kernel == &nvfp4::kMoeGroupedUpDynamic ? with.up_dynamic : with.up;
      return nvfp4::launch_grouped_up(plan, kernel,
                                      [&](const LaunchConfig& config, const auto&... maps) {
                                        return MoeGroupedUp::launch(kernel, with.stream, config,
                                                                    data, scales, maps..., args...);
                                      });
    }
    template <class... Args>
    Result<void> combine(const nvfp4::MoeGrid& grid, Args... args) const noexcept {
      return with.combine.launch(with.stream, config_of(grid, 256), args...);
    }
    /// As GroupedGemm::launch.
    Result<void> gemm(const MutableMatrixView& output, const nvfp4::QuantizedMatrix& a,
                      const nvfp4::QuantizedMatrix& b, const VectorView& row_experts,
                      const nvfp4::GroupedGemmOptions& options) const noexcept {
      const nvfp4::Sm100Kernel& chosen = nvfp4::select_sm100_grouped(
          {a.rows, output.columns, a.columns, kNumSms, b.rows / output.columns});
      const nvfp4::Sm100Plan plan =
          nvfp4::plan_sm100(chosen, a, b, output.data, output.columns, kNumSms);
      return launch_sm100_model(with.gemms[&chosen - nvfp4::kSm100Kernels - nvfp4::kSm100Grouped],
                                with.stream, plan, a.global_scale, b.global_scale,
                                options.bias.data_as<const std::uint16_t>(), a.rows, output.columns,
                                a.columns, row_experts.data_as<const std::int32_t>(),
                                options.a_scale_per_row ? 2 : 0, options.group_count);
    }
  };

  struct Run : MoeBuffers {
    Run(const MoeProblem& of, unsigned char garbage = 0xA5)
        : MoeBuffers(of, plan_of(of).total_bytes, garbage) {}

    static nvfp4::MoePlan plan_of(const MoeProblem& of) {
      nvfp4::MoeShape shape = of.shape;
      shape.global_experts = of.global_experts();
      const nvfp4::MoePlan plan = nvfp4::moe_plan(shape, nvfp4::MoeKernels::grouped, kNumSms);
      REQUIRE(plan.kernels == nvfp4::MoeKernels::grouped);
      return plan;
    }

    Result<void> launch(const Fixture& with) {
      const nvfp4::MoePlan plan = plan_of(problem);
      nvfp4::MoeCall call{with.stream, output.data(), problem.shape,
                          input(),     layer(),       workspace.data()};
      call.shape.global_experts = problem.global_experts();
      return nvfp4::run_moe_grouped(plan, call, kNumSms, Steps{with});
    }
  };

  void check(MoeProblem& problem) {
    problem.solve();
    Run run(problem);
    for (int launch = 0; launch < 2; ++launch) {  // the second one with what the first one left
      require_ok(run.launch(*this));
      problem.check(run.result());
    }
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a mixture of experts by grouped GEMMs equals float64") {
  if (!here) return;
  const auto halves = nvfp4::GateUpLayout::halves;
  const auto pairs = nvfp4::GateUpLayout::pairs;
  for (const MoeCase& of :
       {MoeCase{{60, 2, 3, 128, 64}}, MoeCase{{140, 2, 2, 256, 192}, pairs, {7, 1.702f, 1}},
        MoeCase{{100, 4, 6, 128, 128}, halves, {2, 1, 0}},
        MoeCase{{300, 1, 1, 384, 64}, pairs, {10, 1, 0}},
        MoeCase{{90, 2, 3, 128, 192}, halves, {3, 1, 0.5f}, true},
        MoeCase{{140, 2, 2, 256, 128}, pairs, {7, 1.702f, 1}, true}}) {
    for (const bool dynamic : {false, true}) {
      CAPTURE(of.shape.tokens);
      CAPTURE(of.shape.experts);
      CAPTURE(dynamic);
      MoeCase scaled = of;
      scaled.shape.dynamic_activation_scale = dynamic;
      MoeProblem problem(scaled, random, GemmResults::bf16);
      check(problem);
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "by grouped GEMMs too, experts may have no token, and one of them all") {
  if (!here) return;
  MoeProblem problem({{70, 2, 4, 128, 64}}, random, GemmResults::bf16);
  problem.ids.assign(problem.ids.size(), 2);
  check(problem);
}

TEST_CASE_FIXTURE(Fixture, "by grouped GEMMs too, ids outside of the experts are skipped") {
  if (!here) return;
  MoeProblem problem({{40, 2, 3, 128, 128}}, random, GemmResults::bf16);
  const std::int32_t outside[] = {-1, 3, INT32_MAX, INT32_MIN};
  for (std::size_t i = 0; i < 8; ++i) problem.ids[i] = outside[i % 4];
  problem.ids[9] = -7;
  check(problem);

  problem.ids.assign(problem.ids.size(), -1);
  Run none(problem);
  require_ok(none.launch(*this));
  CHECK(none.result() == std::vector<std::uint16_t>(problem.hidden.size(), 0));
}

TEST_CASE_FIXTURE(Fixture, "by grouped GEMMs too, expert_map chooses the experts that are here") {
  if (!here) return;
  MoeProblem problem({{60, 2, 3, 384, 64, 6}, nvfp4::GateUpLayout::halves, {2, 1, 0}}, random,
                     GemmResults::bf16);
  problem.map = {-1, 2, 0, 7, 1, -INT32_MAX};
  check(problem);
}

TEST_CASE_FIXTURE(Fixture, "by grouped GEMMs too, a NaN makes its token NaN and no other") {
  if (!here) return;
  MoeProblem problem({{60, 2, 3, 128, 64}}, random, GemmResults::bf16);
  problem.solve();
  Run clean(problem);
  require_ok(clean.launch(*this));
  const auto expected = clean.result();
  problem.hidden[3 * 128 + 17] = 0x7FC0;
  Run run(problem);
  require_ok(run.launch(*this));
  require_nan_in_one_token(run.result(), expected, 3, 128);
}

TEST_CASE_FIXTURE(Fixture, "grouped GEMMs give the same bytes, whatever the workspace holds") {
  if (!here) return;
  MoeProblem problem({{90, 4, 8, 256, 192}}, random, GemmResults::bf16);
  problem.activation_scale = global_scale_of_amax(100);
  Run run(problem);
  require_ok(run.launch(*this));
  const auto first = run.result();
  for (const unsigned char garbage : {0x00, 0x7F, 0xFF}) {
    Run other(problem, garbage);
    require_ok(other.launch(*this));
    CHECK(other.result() == first);
  }
}

TEST_CASE_FIXTURE(Fixture, "with a scale of each row, no token's result depends on the others") {
  if (!here) return;
  MoeCase of{{50, 2, 3, 128, 320}};
  of.shape.dynamic_activation_scale = true;
  MoeProblem problem(of, random, GemmResults::bf16);
  Run run(problem);
  require_ok(run.launch(*this));
  const auto first = run.result();
  for (const unsigned char garbage : {0x00, 0x7F, 0xFF}) {
    Run other(problem, garbage);
    require_ok(other.launch(*this));
    CHECK(other.result() == first);
  }
  problem.hidden[3 * 128 + 17] = 0x7FC0;
  Run with_nan(problem);
  require_ok(with_nan.launch(*this));
  require_nan_in_one_token(with_nan.result(), first, 3, 128);
  problem.hidden[3 * 128 + 17] = 0x4780;  // 65536
  Run with_outlier(problem);
  require_ok(with_outlier.launch(*this));
  const auto changed = with_outlier.result();
  for (std::size_t i = 0; i < changed.size(); ++i)
    REQUIRE((i / 128 == 3 || changed[i] == first[i]));
}

TEST_CASE_FIXTURE(Fixture, "a captured mixture of experts routes its grouped GEMMs anew") {
  if (!here) return;
  MoeCase of{{97, 3, 5, 128, 64}};
  SUBCASE("with a given scale") { of.shape.dynamic_activation_scale = false; }
  SUBCASE("with a scale of each row") { of.shape.dynamic_activation_scale = true; }
  MoeProblem problem(of, random, GemmResults::bf16);
  problem.activation_scale = global_scale_of_amax(20);
  Run run(problem);
  TestGraph graph(stream, [&] { require_ok(run.launch(*this)); });
  for (int replay = 0; replay < 3; ++replay) {
    for (std::int32_t& id : problem.ids) id = static_cast<std::int32_t>(random() % 6) - replay % 2;
    problem.hidden = random_bf16(Kind::normal, problem.hidden.size(), random);
    run.ids.upload(problem.ids);
    run.hidden.upload(problem.hidden);
    graph.launch(stream);
    const auto replayed = run.result();
    Run direct(problem);
    require_ok(direct.launch(*this));
    CHECK(direct.result() == replayed);
  }
}

}  // namespace cukiln::testing
