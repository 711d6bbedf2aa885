#include <array>
#include <cmath>
#include <random>

#include <doctest/doctest.h>

#include <cukiln/nvfp4_moe.hpp>

#include "gpu/nvfp4/reference.hpp"
#include "gpu/support/device.hpp"
#include "gpu/support/loader.hpp"

namespace cukiln::testing {
namespace {

constexpr std::array<double, 16> kCodeValues = {0,    0.5,  1,  1.5,  2,  3,  4,  6,
                                                -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};

std::size_t index_of(std::int64_t value) { return static_cast<std::size_t>(value); }

/// [rows, columns] out of codes and swizzled scales.
std::vector<double> dequantised(const std::uint8_t* codes, const std::uint8_t* scales,
                                std::size_t rows, std::size_t columns, double decode) {
  std::vector<double> made(rows * columns);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      const std::uint8_t pair = codes[(row * columns + column) / 2];
      made[row * columns + column] =
          kCodeValues[column % 2 != 0 ? pair >> 4 : pair & 15] *
          float_of_ue4m3(scales[nvfp4::scale_offset(row, column / 16, columns)]) * decode;
    }
  }
  return made;
}

/// Experts' weights [experts, rows, columns] on both sides. Padding of the scales is NaN: nobody
/// may use it.
struct Weights {
  Weights(std::int64_t experts, std::int64_t rows, std::int64_t columns, std::mt19937_64& random) {
    const std::size_t scale_bytes = nvfp4::scales_bytes(rows, columns);
    std::vector<std::uint8_t> codes(index_of(experts) * nvfp4::codes_bytes(rows, columns));
    std::vector<std::uint8_t> scales(index_of(experts) * scale_bytes, 0x7F);
    std::vector<float> decode(index_of(experts));
    for (std::uint8_t& pair : codes) pair = static_cast<std::uint8_t>(random());
    for (std::size_t e = 0; e < index_of(experts); ++e) {
      for (std::size_t row = 0; row < index_of(rows); ++row) {
        for (std::size_t block = 0; block < index_of(columns) / 16; ++block) {
          scales[e * scale_bytes + nvfp4::scale_offset(row, block, index_of(columns))] =
              static_cast<std::uint8_t>(0x20 + random() % 0x20);
        }
      }
      decode[e] = 0.01f + static_cast<float>(random() % 100) * 1e-4f;
      dense.push_back(dequantised(&codes[e * nvfp4::codes_bytes(rows, columns)],
                                  &scales[e * scale_bytes], index_of(rows), index_of(columns),
                                  decode[e]));
    }
    device_codes = std::make_unique<DeviceBuffer<std::uint8_t>>(codes);
    device_scales = std::make_unique<DeviceBuffer<std::uint8_t>>(scales);
    device_decode = std::make_unique<DeviceBuffer<float>>(decode);
  }
  operator nvfp4::MoeWeights() const {  // NOLINT
    return {device_codes->data(), device_scales->data(), device_decode->data()};
  }

  std::vector<std::vector<double>> dense;
  std::unique_ptr<DeviceBuffer<std::uint8_t>> device_codes;
  std::unique_ptr<DeviceBuffer<std::uint8_t>> device_scales;
  std::unique_ptr<DeviceBuffer<float>> device_decode;
};

struct Case {
  nvfp4::MoeShape shape;
  nvfp4::GateUpLayout layout = nvfp4::GateUpLayout::halves;
  nvfp4::SwiGlu activation{};
};

/// A mixture of experts, its inputs and its result in double.
struct Problem {
  Problem(const Case& of, std::mt19937_64& random)
      : shape(of.shape),
        layout(of.layout),
        activation(of.activation),
        up(shape.experts, 2 * shape.width, shape.hidden, random),
        down(shape.experts, shape.hidden, shape.width, random),
        hidden(random_bf16(Kind::normal, index_of(shape.tokens * shape.hidden), random)),
        ids(index_of(shape.tokens * shape.topk)),
        weights(ids.size()),
        hidden_gsa(gsa_of(hidden)) {
    std::uniform_real_distribution<float> uniform(0, 1);
    for (float& weight : weights) weight = uniform(random);
    const std::int64_t global = shape.global_experts == 0 ? shape.experts : shape.global_experts;
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % index_of(global));
  }

  std::int64_t expert_of(std::size_t slot) const {
    const std::int64_t global = shape.global_experts == 0 ? shape.experts : shape.global_experts;
    if (ids[slot] < 0 || ids[slot] >= global) return -1;
    const std::int64_t expert = map.empty() ? ids[slot] : map[index_of(ids[slot])];
    return expert >= 0 && expert < shape.experts ? expert : -1;
  }

  /// SwiGLU of one slot's token.
  std::vector<std::uint16_t> activated(const std::vector<double>& x, std::size_t slot) const {
    const std::size_t width = index_of(shape.width);
    const std::size_t k = index_of(shape.hidden);
    const std::vector<double>& w = up.dense[index_of(expert_of(slot))];
    const double* token = &x[slot / index_of(shape.topk) * k];
    const auto product = [&](std::size_t row) {
      double sum = 0;
      for (std::size_t i = 0; i < k; ++i) sum += token[i] * w[row * k + i];
      return sum;
    };
    const bool pairs = layout == nvfp4::GateUpLayout::pairs;
    const double limit = activation.limit;
    std::vector<std::uint16_t> y(width);
    for (std::size_t i = 0; i < width; ++i) {
      const double gate = std::min(product(pairs ? 2 * i : i), limit);
      const double rise = std::clamp(product(pairs ? 2 * i + 1 : width + i), -limit, limit);
      y[i] = bf16_of_float(static_cast<float>(gate / (1 + std::exp(-activation.alpha * gate)) *
                                              (rise + activation.beta)));
    }
    return y;
  }

  /// Fills `expected`, `magnitude` (the sum of what is added up, without signs) and, if it has not
  /// been set, the scale of the activations.
  void solve() {
    const std::size_t k = index_of(shape.hidden);
    const std::size_t width = index_of(shape.width);
    const Quantized tokens = testing::quantize(hidden, index_of(shape.tokens), k, hidden_gsa);
    const auto x = dequantised(tokens.codes.data(), tokens.scales.data(), index_of(shape.tokens), k,
                               hidden_gsa.decode);
    std::vector<std::vector<std::uint16_t>> y(ids.size());
    float amax = 0;
    for (std::size_t slot = 0; slot < ids.size(); ++slot) {
      if (expert_of(slot) < 0) continue;
      y[slot] = activated(x, slot);
      for (const std::uint16_t bits : y[slot]) amax = std::max(amax, std::abs(float_of_bf16(bits)));
    }
    if (activation_gsa.encode == 0) activation_gsa = gsa_of_amax(amax);
    expected.assign(hidden.size(), 0);
    magnitude.assign(hidden.size(), 0);
    for (std::size_t slot = 0; slot < ids.size(); ++slot) {
      if (y[slot].empty()) continue;
      const Quantized quantised = testing::quantize(y[slot], 1, width, activation_gsa);
      const auto row = dequantised(quantised.codes.data(), quantised.scales.data(), 1, width,
                                   activation_gsa.decode);
      const std::vector<double>& w = down.dense[index_of(expert_of(slot))];
      const std::size_t at = slot / index_of(shape.topk) * k;
      for (std::size_t column = 0; column < k; ++column) {
        double sum = 0;
        double size = 0;
        for (std::size_t i = 0; i < width; ++i) {
          sum += row[i] * w[column * width + i];
          size += std::abs(row[i] * w[column * width + i]);
        }
        expected[at + column] += weights[slot] * sum;
        magnitude[at + column] += weights[slot] * size;
      }
    }
  }

  nvfp4::MoeShape shape;
  nvfp4::GateUpLayout layout;
  nvfp4::SwiGlu activation;
  Weights up;
  Weights down;
  std::vector<std::uint16_t> hidden;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<std::int32_t> map;
  Gsa hidden_gsa;
  Gsa activation_gsa{0, 0};
  std::vector<double> expected;
  std::vector<double> magnitude;
};

/// A problem's inputs on the device, an output with a guard behind it, and a workspace of its own.
struct Run {
  static constexpr std::size_t kGuard = 64;

  /// `garbage` fills the workspace, which may hold anything.
  Run(const nvfp4::MoeGemm& with, const Problem& of, unsigned char garbage = 0xA5)
      : moe(with),
        problem(of),
        hidden(of.hidden),
        hidden_gsa(std::vector<float>{of.hidden_gsa.encode, of.hidden_gsa.decode}),
        activation_gsa(std::vector<float>{of.activation_gsa.encode, of.activation_gsa.decode}),
        ids(of.ids),
        weights(of.weights),
        map(of.map),
        output(of.hidden.size() + kGuard),
        workspace_bytes(with.workspace_bytes(of.shape)),
        workspace(workspace_bytes + kGuard),
        guard(garbage) {
    output.fill_bytes(0xA5);
    workspace.fill_bytes(garbage);
    Device::first().synchronize();
  }

  Result<void> launch(Stream stream) {
    return moe.launch(stream, output.data(), problem.shape,
                      {hidden.data(), hidden_gsa.data(), ids.data(), weights.data(),
                       problem.map.empty() ? nullptr : map.data()},
                      problem.up, problem.down, activation_gsa.data(), problem.layout,
                      problem.activation, workspace.data());
  }

  /// The output, after a look at the guards.
  std::vector<std::uint16_t> result() const {
    auto made = output.download();
    for (std::size_t i = problem.hidden.size(); i < made.size(); ++i) REQUIRE(made[i] == 0xA5A5);
    made.resize(problem.hidden.size());
    const auto bytes = workspace.download();
    for (std::size_t i = workspace_bytes; i < bytes.size(); ++i) REQUIRE(bytes[i] == guard);
    return made;
  }

  const nvfp4::MoeGemm& moe;
  const Problem& problem;
  DeviceBuffer<std::uint16_t> hidden;
  DeviceBuffer<float> hidden_gsa;
  DeviceBuffer<float> activation_gsa;
  DeviceBuffer<std::int32_t> ids;
  DeviceBuffer<float> weights;
  DeviceBuffer<std::int32_t> map;
  DeviceBuffer<std::uint16_t> output;
  std::size_t workspace_bytes;
  DeviceBuffer<std::uint8_t> workspace;
  unsigned char guard;
};

struct Fixture {
  nvfp4::MoeGemm moe = create<nvfp4::MoeGemm>();
  TestStream stream;
  std::mt19937_64 random{20250607};

  /// All outputs as exact as sums in float allow, but for the few tokens where a value between the
  /// products was rounded the other way, by at most a step of E2M1.
  void check(Problem& problem) {
    problem.solve();
    Run run(moe, problem);
    require_ok(run.launch(stream));
    const auto given = run.result();
    const std::size_t k = index_of(problem.shape.hidden);
    std::size_t wrong = 0;
    std::size_t moved_tokens = 0;
    for (std::size_t token = 0; token < index_of(problem.shape.tokens); ++token) {
      bool moved = false;
      for (std::size_t i = token * k; i < (token + 1) * k; ++i) {
        const double error = std::abs(float_of_bf16(given[i]) - problem.expected[i]);
        const double rounding = std::abs(problem.expected[i]) / 256;
        moved = moved || !(error <= rounding + problem.magnitude[i] * std::ldexp(1.0, -18));
        wrong += !(error <= rounding + problem.magnitude[i] * 0.02);
      }
      moved_tokens += moved;
    }
    CHECK(wrong == 0);
    CHECK(moved_tokens <= 1 + index_of(problem.shape.tokens) / 20);
  }
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr nvfp4::SwiGlu kGptOss{7, 1.702f, 1};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "nvfp4_moe_gemm equals float64 on many shapes") {
  const auto halves = nvfp4::GateUpLayout::halves;
  const auto pairs = nvfp4::GateUpLayout::pairs;
  // tokens, topk, experts, hidden, width: every tile size, and K split by 2 and by 4 in both
  // products. Widths with and without whole atoms, K with and without whole groups.
  for (const Case& of :
       {Case{{1, 1, 1, 32, 32}}, Case{{1, 2, 4, 64, 32}, pairs, kGptOss},
        Case{{3, 2, 8, 128, 128}, halves, {10, 1, 0}}, Case{{5, 4, 16, 224, 96}, pairs, kGptOss},
        Case{{9, 8, 300, 512, 64}}, Case{{33, 4, 1024, 64, 32}},
        Case{{70, 2, 5, 288, 160}, halves, {2, 1, 0}}, Case{{40, 3, 6, 160, 384}, pairs},
        Case{{16, 1, 1, 1056, 288}, pairs, {0.5f, 1.702f, 0}}, Case{{90, 2, 3, 96, 192}},
        Case{{128, 2, 8, 320, 128}}, Case{{130, 2, 8, 1056, 192}, pairs, kGptOss},
        Case{{200, 2, 4, 416, 64}, pairs}, Case{{150, 4, 7, 128, 320}, halves, {2, 1, 0}},
        Case{{2, 1, 3, 1088, 1056}}, Case{{1, 2, 4, 2080, 2080}, pairs}}) {
    CAPTURE(of.shape.tokens);
    CAPTURE(of.shape.topk);
    CAPTURE(of.shape.experts);
    CAPTURE(of.shape.hidden);
    CAPTURE(of.shape.width);
    Problem problem(of, random);
    check(problem);
  }
}

TEST_CASE_FIXTURE(Fixture, "experts may have no token, and one of them all") {
  for (const std::int64_t width : {96, 128}) {
    Problem problem({{175, 2, 6, 128, width}}, random);
    problem.ids.assign(problem.ids.size(), 4);
    check(problem);
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

TEST_CASE_FIXTURE(Fixture, "expert_map chooses the experts that are here") {
  for (const std::int64_t tokens : {4, 100, 300}) {
    Problem problem({{tokens, 4, 3, 128, tokens == 100 ? 96 : 64, 16}}, random);
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
    part.hidden_gsa = whole.hidden_gsa;
    part.activation_gsa = whole.activation_gsa;
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
  for (const std::int64_t tokens : {9, 90}) {
    Problem problem({{tokens, 2, 2, 128, 64}}, random);
    problem.solve();
    Run clean(moe, problem);
    require_ok(clean.launch(stream));
    const auto expected = clean.result();
    problem.hidden[3 * 128 + 17] = 0x7FC0;
    Run run(moe, problem);
    require_ok(run.launch(stream));
    const auto given = run.result();
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (i / 128 == 3) {
        REQUIRE(std::isnan(float_of_bf16(given[i])));
      } else {
        REQUIRE(given[i] == expected[i]);
      }
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "the same inputs give the same bytes, whatever the workspace holds") {
  for (const Case& of : {Case{{1, 8, 16, 2048, 1024}}, Case{{20, 4, 8, 256, 192}},
                         Case{{90, 4, 8, 256, 192}}, Case{{900, 4, 8, 256, 192}}}) {
    Problem problem(of, random);
    problem.activation_gsa = gsa_of_amax(100);
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
  for (const std::int64_t tokens : {7, 97}) {
    Problem problem({{tokens, 3, 5, 160, 64}}, random);
    problem.activation_gsa = gsa_of_amax(20);
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
  require_ok(moe.launch(stream, nullptr, {0, 2, 4, 64, 64}, {}, {}, {}, nullptr,
                        nvfp4::GateUpLayout::halves, {}, nullptr));
}

}  // namespace cukiln::testing
