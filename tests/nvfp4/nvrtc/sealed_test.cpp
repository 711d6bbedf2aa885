// SPDX-License-Identifier: Apache-2.0
// Modules that the plans name, and nothing else: all that launches need once the loader is sealed.
#include <algorithm>
#include <string>
#include <vector>

#include "nvfp4/nvrtc/launch_fixture.hpp"

#include <cukiln/nvfp4/moe.hpp>

using namespace cukiln;
using namespace cukiln::testing;
using nvfp4::ModuleNames;

namespace {

constexpr std::int64_t kN = 1536;
constexpr std::int64_t kK = 4096;

/// A loader that has these modules of the shipped ones, and is sealed.
struct Sealed : LaunchFixture {
  Sealed(int capability, int num_sms, const ModuleNames& names)
      : LaunchFixture(capability, num_sms) {
    std::vector<ModuleSpec> modules = nvfp4::manifest().modules();
    std::erase_if(modules, [&](const ModuleSpec& each) { return names.count(each.name) == 0; });
    REQUIRE(modules.size() == names.size());
    const auto report = opened.loader.preload(Manifest(std::move(modules)));
    REQUIRE_MESSAGE(report, report.error().message());
    opened.loader.seal();
    compiles = opened.loader.stats().compiles;
  }
  ~Sealed() { CHECK(opened.loader.stats().compiles == compiles); }

  std::uint64_t compiles = 0;
  nvfp4::Workspace workspace{address<void>(0x1000000), std::size_t{1} << 40};
  nvfp4::QuantizedMatrix weights{address<std::uint8_t>(0x4000), address<std::uint8_t>(0x5000),
                                 address<nvfp4::GlobalScale>(0x6000), kN, kK};

  Result<void> launch(const nvfp4::Gemm& gemm, std::int64_t m, int tactic) const {
    const nvfp4::QuantizedMatrix a = {address<std::uint8_t>(0x1000), address<std::uint8_t>(0x2000),
                                      address<nvfp4::GlobalScale>(0x3000), m, kK};
    return gemm.launch(nullptr, {DataType::bf16, address<void>(0x7000), m, kN}, a, weights,
                       workspace, with_tactic(tactic));
  }
  Result<void> launch(const nvfp4::W4a16Gemm& gemm, std::int64_t m, int tactic) const {
    return gemm.launch(nullptr, {DataType::bf16, address<void>(0x7000), m, kN},
                       MatrixView(DataType::bf16, address<void>(0x1000), m, kK), weights, workspace,
                       with_tactic(tactic));
  }
  Result<void> launch(const nvfp4::MoeGemm& moe, const nvfp4::MoeShape& shape) const {
    const auto matrix = [&](std::int64_t rows, std::int64_t columns) -> nvfp4::MoeWeights {
      return {address<std::uint8_t>(0x4000),
              address<std::uint8_t>(0x5000),
              address<float>(0x6000),
              shape.experts,
              rows,
              columns};
    };
    nvfp4::MoeLayer layer;
    layer.up = matrix(2 * shape.width, shape.hidden);
    layer.down = matrix(shape.hidden, shape.width);
    layer.dynamic_activation_scale = shape.dynamic_activation_scale;
    const nvfp4::MoeInput input = {
        {DataType::bf16, address<void>(0x1000), shape.tokens, shape.hidden},
        address<nvfp4::GlobalScale>(0x2000),
        {DataType::i32, address<void>(0x3000), shape.tokens, shape.topk},
        {DataType::f32, address<void>(0x8000), shape.tokens, shape.topk}};
    return moe.launch(nullptr, {DataType::bf16, address<void>(0x7000), shape.tokens, shape.hidden},
                      input, layer, workspace);
  }
};

/// Every number of tokens up to `max_tokens`, and every tactic of it, as a store may keep it.
template <class Gemm>
void launch_all(int capability, int num_sms, std::int64_t max_tokens) {
  CAPTURE(capability);
  CAPTURE(max_tokens);
  const Sealed sealed(capability, num_sms, Gemm::modules(capability, max_tokens, kN, kK));
  const auto gemm = sealed.made<Gemm>();
  for (std::int64_t m = 1; m <= max_tokens; ++m) {
    for (int tactic = -1; tactic < gemm.tactics(m, kN, kK); ++tactic) {
      const auto launched = sealed.launch(gemm, m, tactic);
      REQUIRE_MESSAGE(launched,
                      m << " tokens, tactic " << tactic << ": " << launched.error().message());
    }
  }
}

}  // namespace

TEST_CASE("sealed, a GEMM launches what was preloaded for its numbers of tokens") {  // fault 446
  for (const int capability : {90, 100, 120}) {
    for (const std::int64_t max_tokens : {8, 16, 32, 300}) {
      for (const int num_sms : {78, 148}) {
        launch_all<nvfp4::Gemm>(capability, num_sms, max_tokens);
        launch_all<nvfp4::W4a16Gemm>(capability, num_sms, max_tokens);
      }
    }
  }
}

TEST_CASE("sealed, a mixture of experts launches what was preloaded for its numbers of tokens") {
  for (const int capability : {90, 100, 120}) {
    for (const bool w4a16 : {false, true}) {
      for (const std::int64_t max_tokens : {16, 60, 400}) {
        CAPTURE(capability);
        CAPTURE(w4a16);
        CAPTURE(max_tokens);
        nvfp4::MoeShape shape{max_tokens, 2, 8, 128, 128};
        shape.w4a16 = w4a16;
        shape.dynamic_activation_scale = !w4a16;
        const Sealed sealed(capability, 132, nvfp4::MoeGemm::modules(capability, shape));
        const auto moe = sealed.made<nvfp4::MoeGemm>();
        for (shape.tokens = 1; shape.tokens <= max_tokens; ++shape.tokens) {
          const auto launched = sealed.launch(moe, shape);
          REQUIRE_MESSAGE(launched, shape.tokens << " tokens: " << launched.error().message());
        }
      }
    }
  }
}

TEST_CASE("sealed, a launch for more tokens than were preloaded for is an error that says so") {
  ModuleNames names = nvfp4::Gemm::modules(90, 8, kN, kK);
  CHECK(names == ModuleNames{"nvfp4_gemm"});
  nvfp4::MoeShape shape{4, 2, 8, 128, 128};
  names.merge(nvfp4::MoeGemm::modules(90, shape));
  CHECK(names.count("nvfp4_moe_gemm") == 1);
  CHECK(names.count("nvfp4_moe_prefill") == 0);
  const Sealed sealed(90, 132, names);
  const auto refused = sealed.launch(sealed.made<nvfp4::Gemm>(), 64, -1);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::sealed);
  CHECK(refused.error().message().find("for 64 tokens") != std::string::npos);
  shape.tokens = 400;
  shape.dynamic_activation_scale = true;
  const auto of_moe = sealed.launch(sealed.made<nvfp4::MoeGemm>(), shape);
  REQUIRE_FALSE(of_moe);
  CHECK(of_moe.error().code() == ErrorCode::sealed);
  CHECK(sealed.fake.calls("cuLaunchKernelEx") == 0);
  // None of a family: its launcher is refused.
  const auto none = nvfp4::W4a16Gemm::create(sealed.opened.loader, 0);
  REQUIRE_FALSE(none);
  CHECK(none.error().code() == ErrorCode::sealed);
}
