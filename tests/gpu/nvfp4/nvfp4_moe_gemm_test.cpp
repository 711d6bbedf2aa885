// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <random>

#include <doctest/doctest.h>

#include <cukiln/nvfp4/moe.hpp>

#include "gpu/nvfp4/moe_problem.hpp"
#include "gpu/nvfp4/reference.hpp"
#include "gpu/support/device.hpp"
#include "gpu/support/loader.hpp"

namespace cukiln::testing {
namespace {

using Case = MoeCase;
using Problem = MoeProblem;

constexpr nvfp4::SwiGlu kGptOss{7, 1.702f, 1};

struct Run : MoeBuffers {
  Run(const nvfp4::MoeGemm& with, const Problem& of, unsigned char garbage = 0xA5)
      : MoeBuffers(of, with.workspace_bytes(of.shape), garbage), moe(with) {}

  Result<void> launch(Stream stream) {
    return moe.launch(stream, bf16(output.data(), problem.shape.tokens, problem.shape.hidden),
                      input(), layer(), {workspace.data(), workspace_bytes});
  }

  const nvfp4::MoeGemm& moe;
};

struct Fixture {
  nvfp4::MoeGemm moe = create<nvfp4::MoeGemm>();
  TestStream stream;
  std::mt19937_64 random{20250607};

  void check(Problem& problem) {
    problem.solve();
    Run run(moe, problem);
    require_ok(run.launch(stream));
    problem.check(run.result());
  }

  void check_many_shapes(bool w4a16) {
    const auto halves = nvfp4::GateUpLayout::halves;
    const auto pairs = nvfp4::GateUpLayout::pairs;
    // tokens, topk, experts, hidden, width: every tile size, and K split by 2 and by 4 in both
    // GEMMs. Widths with and without whole atoms, K with and without whole groups.
    for (Case of :
         {Case{{1, 1, 1, 32, 32}}, Case{{1, 2, 4, 64, 32}, pairs, kGptOss},
          Case{{3, 2, 8, 128, 128}, halves, {10, 1, 0}}, Case{{5, 4, 16, 224, 96}, pairs, kGptOss},
          Case{{9, 8, 300, 512, 64}}, Case{{33, 4, 1024, 64, 32}},
          Case{{70, 2, 5, 288, 160}, halves, {2, 1, 0}}, Case{{40, 3, 6, 160, 384}, pairs},
          Case{{16, 1, 1, 1056, 288}, pairs, {0.5f, 1.702f, 0}}, Case{{90, 2, 3, 96, 192}},
          Case{{128, 2, 8, 320, 128}}, Case{{130, 2, 8, 1056, 192}, pairs, kGptOss},
          Case{{200, 2, 4, 416, 64}, pairs}, Case{{150, 4, 7, 128, 320}, halves, {2, 1, 0}},
          Case{{56, 2, 8, 160, 64}}, Case{{500, 2, 3, 96, 64}, pairs}, Case{{2, 1, 3, 1088, 1056}},
          Case{{1, 2, 4, 2080, 2080}, pairs},
          Case{{1100, 2, 64, 256, 320}}}) {  // on 148 SMs, several tiles for some thread blocks
      of.shape.w4a16 = w4a16;
      CAPTURE(of.shape.tokens);
      CAPTURE(of.shape.topk);
      CAPTURE(of.shape.experts);
      CAPTURE(of.shape.hidden);
      CAPTURE(of.shape.width);
      Problem problem(of, random);
      check(problem);
    }
  }
};

/// A case with both formats of tokens.
std::array<Case, 2> w4a4_and_w4a16(const Case& of) {
  std::array<Case, 2> both{of, of};
  both[1].shape.w4a16 = true;
  return both;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "nvfp4_moe_gemm equals float64 on many shapes") {
  check_many_shapes(false);
}

TEST_CASE_FIXTURE(Fixture, "W4A16 equals float64 on many shapes") { check_many_shapes(true); }

TEST_CASE_FIXTURE(Fixture, "experts' biases are added before SwiGLU and before the weights") {
  const auto halves = nvfp4::GateUpLayout::halves;
  const auto pairs = nvfp4::GateUpLayout::pairs;
  // Every tile size, both GEMMs with K split, and results whose last tile is not full.
  for (const Case& of : {Case{{3, 2, 8, 128, 96}, pairs, kGptOss, true},
                         Case{{1, 2, 4, 2080, 2080}, halves, {}, true},
                         Case{{16, 1, 2, 160, 288}, halves, {3, 1, 0.5f}, true},
                         Case{{40, 3, 6, 160, 384}, pairs, kGptOss, true},
                         Case{{90, 2, 3, 96, 192}, halves, {2, 1, 0}, true},
                         Case{{130, 2, 8, 1056, 192}, pairs, kGptOss, true},
                         Case{{150, 4, 7, 288, 320}, halves, {2, 1, 0}, true},
                         Case{{300, 2, 4, 416, 64}, pairs, {}, true}}) {
    for (const Case& each : w4a4_and_w4a16(of)) {
      CAPTURE(each.shape.tokens);
      CAPTURE(each.shape.w4a16);
      Problem problem(each, random);
      check(problem);
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "biases of -0 change no bit") {
  for (const std::int64_t tokens : {3, 20, 40, 90, 300}) {
    for (const Case& of : w4a4_and_w4a16({{tokens, 2, 4, 160, 192}, {}, kGptOss, true})) {
      Problem problem(of, random);
      problem.activation_scale = global_scale_of_amax(20);
      for (MoeMatrices* const matrices : {&problem.up, &problem.down}) {
        const std::vector<std::uint16_t> zeros(matrices->bias.size(), 0x8000);
        matrices->device_bias->upload(zeros);
      }
      Run with(moe, problem);
      require_ok(with.launch(stream));
      problem.up.device_bias.reset();
      problem.down.device_bias.reset();
      Run without(moe, problem);
      require_ok(without.launch(stream));
      CHECK(with.result() == without.result());
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "experts may have no token, and one of them all") {
  for (const std::int64_t width : {96, 128}) {
    for (const Case& of : w4a4_and_w4a16({{175, 2, 6, 128, width}})) {
      Problem problem(of, random);
      problem.ids.assign(problem.ids.size(), 4);
      check(problem);
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "a token may name an expert twice") {
  Problem problem({{20, 3, 4, 128, 96}}, random);
  for (std::size_t i = 0; i + 2 < problem.ids.size(); i += 3) {
    problem.ids[i] = problem.ids[i + 2];
  }
  check(problem);
}

TEST_CASE_FIXTURE(Fixture, "ids outside of the experts are skipped, and a token with none gets 0") {
  Problem problem({{12, 2, 3, 128, 96}}, random);
  const std::int32_t outside[] = {-1, 3, INT32_MAX, INT32_MIN};
  for (std::size_t i = 0; i < 8; ++i) problem.ids[i] = outside[i % 4];
  problem.ids[9] = -7;
  check(problem);
  Run run(moe, problem);
  require_ok(run.launch(stream));
  const auto given = run.result();
  CHECK(std::all_of(given.begin(), given.begin() + 4 * 128, [](auto bits) { return bits == 0; }));

  problem.ids.assign(problem.ids.size(), -1);
  Run none(moe, problem);
  require_ok(none.launch(stream));
  CHECK(none.result() == std::vector<std::uint16_t>(problem.hidden.size(), 0));
}

// A scale that is not there cannot make them zeros.
TEST_CASE_FIXTURE(Fixture, "W4A16 keeps values between the GEMMs that are very small") {
  for (const std::int64_t tokens : {3, 40, 300}) {
    Problem problem({{tokens, 2, 4, 128, 128, 0, true}}, random);
    for (std::uint16_t& value : problem.hidden) {
      value = bf16_of_float(float_of_bf16(value) * 0x1p-20f);
    }
    check(problem);
    CHECK(std::any_of(problem.magnitude.begin(), problem.magnitude.end(),
                      [](double size) { return size > 0 && size < 1e-10; }));
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "a dynamic scale is each row's own: small ones are kept, beside large ones") {
  for (const Case& of : {Case{{3, 2, 8, 128, 96}, nvfp4::GateUpLayout::pairs, kGptOss, true},
                         Case{{1, 2, 4, 2080, 2080}}, Case{{40, 3, 6, 160, 384}},
                         Case{{90, 2, 3, 96, 192}, {}, {2, 1, 0}, true},
                         Case{{130, 2, 8, 1056, 192}, nvfp4::GateUpLayout::pairs},
                         Case{{300, 2, 4, 416, 64}, {}, kGptOss, true}}) {
    CAPTURE(of.shape.tokens);
    Case dynamic = of;
    dynamic.shape.dynamic_activation_scale = true;
    Problem problem(dynamic, random);
    check(problem);
    // Tokens so small that a scale of all would make what lies between their GEMMs zeros.
    const std::size_t k = index_of(of.shape.hidden);
    for (std::size_t i = 0; i < problem.hidden.size(); ++i) {
      if (i / k % 2 == 0) continue;
      problem.hidden[i] = bf16_of_float(float_of_bf16(problem.hidden[i]) * 0x1p-6f);
    }
    check(problem);
    // A NaN, and what is large beyond its own row.
    Run clean(moe, problem);
    require_ok(clean.launch(stream));
    problem.hidden[17] = 0x7FC0;
    Run run(moe, problem);
    require_ok(run.launch(stream));
    require_nan_in_one_token(run.result(), clean.result(), 0, k);
  }
}

TEST_CASE_FIXTURE(Fixture, "expert_map chooses the experts that are here") {
  for (const std::int64_t tokens : {4, 100, 300, -100, -300}) {  // negative: W4A16
    const std::int64_t count = std::abs(tokens);
    Problem problem({{count, 4, 3, 128, count == 100 ? 96 : 64, 16, tokens < 0}}, random);
    problem.map.assign(16, -1);
    problem.map[5] = 2;
    problem.map[0] = 0;
    problem.map[15] = 1;
    problem.map[7] = 3;           // beyond the last
    problem.map[8] = -INT32_MAX;  // below -1
    check(problem);
  }
}

TEST_CASE_FIXTURE(Fixture, "two ranks of experts make together what one makes alone") {
  Problem whole({{6, 2, 4, 128, 96}}, random);
  whole.solve();
  std::vector<double> sum(whole.expected.size(), 0);
  for (const std::int32_t rank : {0, 1}) {
    Problem part = Problem({{6, 2, 4, 128, 96, 4}}, random);
    part.map = rank == 0 ? std::vector<std::int32_t>{0, 1, -1, -1}
                         : std::vector<std::int32_t>{-1, -1, 2, 3};
    part.hidden = whole.hidden;
    part.hidden_scale = whole.hidden_scale;
    part.activation_scale = whole.activation_scale;
    part.ids = whole.ids;
    part.weights = whole.weights;
    std::swap(part.up, whole.up);
    std::swap(part.down, whole.down);
    Run run(moe, part);
    require_ok(run.launch(stream));
    const auto given = run.result();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += float_of_bf16(given[i]);
    std::swap(part.up, whole.up);
    std::swap(part.down, whole.down);
  }
  for (std::size_t i = 0; i < sum.size(); ++i) {
    REQUIRE(std::abs(sum[i] - whole.expected[i]) <= whole.magnitude[i] * 0.02);
  }
}

TEST_CASE_FIXTURE(Fixture, "a NaN makes its token NaN and no other") {
  for (const std::int64_t tokens : {9, 90, -9, -90}) {  // negative: W4A16
    Problem problem({{std::abs(tokens), 2, 2, 128, 64, 0, tokens < 0}, {}, {}, true}, random);
    problem.solve();
    Run clean(moe, problem);
    require_ok(clean.launch(stream));
    const auto expected = clean.result();
    problem.hidden[3 * 128 + 17] = 0x7FC0;
    Run run(moe, problem);
    require_ok(run.launch(stream));
    require_nan_in_one_token(run.result(), expected, 3, 128);
  }
}

TEST_CASE_FIXTURE(Fixture, "the same inputs give the same bytes, whatever the workspace holds") {
  for (const Case& of :
       {Case{{1, 8, 16, 2048, 1024}}, Case{{20, 4, 8, 256, 192}}, Case{{90, 4, 8, 256, 192}},
        Case{{900, 4, 8, 256, 192}}, Case{{1, 8, 16, 2048, 1024, 0, true}},
        Case{{20, 4, 8, 256, 192, 0, true}}, Case{{90, 4, 8, 256, 192, 0, true}},
        Case{{900, 4, 8, 256, 192, 0, true}}}) {
    Problem problem(of, random);
    problem.activation_scale = global_scale_of_amax(100);
    Run run(moe, problem);
    require_ok(run.launch(stream));
    const auto first = run.result();
    for (int again = 0; again < 20; ++again) {
      require_ok(run.launch(stream));
      CHECK(run.result() == first);
    }
    for (const unsigned char garbage : {0x00, 0x7F, 0xFF}) {
      Run other(moe, problem, garbage);
      require_ok(other.launch(stream));
      CHECK(other.result() == first);
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "a captured nvfp4_moe_gemm routes anew at every replay") {
  for (const std::int64_t tokens : {7, 97, -7, -97}) {  // negative: W4A16
    Problem problem({{std::abs(tokens), 3, 5, 160, 64, 0, tokens < 0}}, random);
    problem.activation_scale = global_scale_of_amax(20);
    Run run(moe, problem);
    TestGraph graph(stream, [&] { require_ok(run.launch(stream)); });
    for (int replay = 0; replay < 4; ++replay) {
      for (std::int32_t& id : problem.ids)
        id = static_cast<std::int32_t>(random() % 6) - replay % 2;
      problem.hidden = random_bf16(Kind::normal, problem.hidden.size(), random);
      run.ids.upload(problem.ids);
      run.hidden.upload(problem.hidden);
      graph.launch(stream);
      const auto replayed = run.result();
      Run direct(moe, problem);
      require_ok(direct.launch(stream));
      CHECK(direct.result() == replayed);
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "nvfp4_moe_gemm of no tokens launches nothing") {
  CHECK(moe.workspace_bytes({0, 2, 4, 64, 64}) == 0);
  nvfp4::MoeInput input;
  input.hidden = {DataType::bf16, nullptr, 0, 64};
  input.topk_ids = {DataType::i32, nullptr, 0, 2};
  nvfp4::MoeLayer layer;
  layer.up = {nullptr, nullptr, nullptr, 4, 128, 64};
  layer.down = {nullptr, nullptr, nullptr, 4, 64, 64};
  require_ok(moe.launch(stream, {DataType::bf16, nullptr, 0, 64}, input, layer, {}));
}

}  // namespace cukiln::testing
