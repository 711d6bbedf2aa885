// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <random>

#include <doctest/doctest.h>

#include <cukiln/nvfp4.hpp>

#include "gpu/nvfp4/amax_workspace.hpp"
#include "gpu/nvfp4/reference.hpp"
#include "gpu/support/device.hpp"
#include "gpu/support/loader.hpp"

namespace cukiln::testing {
namespace {

constexpr std::array<float, 16> kCodeValues = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                               -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/// A quantised matrix on both sides. Padding rows' scales are NaN: no result may depend on them.
/// Those beyond the columns are 0, as the quantisers write them.
struct HostMatrix {
  std::size_t rows;
  std::size_t columns;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;
  Gsa gsa;

  float at(std::size_t row, std::size_t column) const {
    const std::uint8_t pair = codes[(row * columns + column) / 2];
    return kCodeValues[column % 2 != 0 ? pair >> 4 : pair & 15] *
           float_of_ue4m3(scales[nvfp4::scale_offset(row, column / 16, columns)]);
  }
  std::uint8_t& scale(std::size_t row, std::size_t block) {
    return scales[nvfp4::scale_offset(row, block, columns)];
  }
};

/// Every E2M1 value and every finite scale byte, so that the GEMM meets fp16's and float's whole
/// range.
HostMatrix random_matrix(std::size_t rows, std::size_t columns, float decode,
                         std::mt19937_64& random) {
  HostMatrix made{
      rows, columns, std::vector<std::uint8_t>(rows * columns / 2), {}, {1 / decode, decode}};
  made.scales.assign(
      nvfp4::scales_bytes(static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)),
      0x7F);
  for (std::uint8_t& pair : made.codes) pair = static_cast<std::uint8_t>(random());
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t block = 0; block < (columns + 63) / 64 * 4; ++block) {
      made.scale(row, block) =
          static_cast<std::uint8_t>(block < columns / 16 ? random() % 0x7F : 0);
    }
  }
  return made;
}

struct DeviceMatrix {
  explicit DeviceMatrix(const HostMatrix& host)
      : codes(host.codes),
        scales(host.scales),
        gsa(std::vector<float>{host.gsa.encode, host.gsa.decode}) {}
  operator nvfp4::Matrix() const { return {codes.data(), scales.data(), gsa.data()}; }  // NOLINT

  DeviceBuffer<std::uint8_t> codes;
  DeviceBuffer<std::uint8_t> scales;
  DeviceBuffer<float> gsa;
};

struct Fixture {
  nvfp4::Gemm gemm = create<nvfp4::Gemm>();
  TestStream stream;
  std::mt19937_64 random{20250603};

  DeviceBuffer<std::uint8_t> workspace(std::size_t m, std::size_t n, std::size_t k) {
    DeviceBuffer<std::uint8_t> made(gemm.workspace_bytes(
        static_cast<std::int64_t>(m), static_cast<std::int64_t>(n), static_cast<std::int64_t>(k)));
    made.fill_bytes(0, stream);
    return made;
  }

  Result<void> launch(std::uint16_t* output, const DeviceMatrix& a, const DeviceMatrix& b,
                      const std::uint16_t* bias, std::size_t m, std::size_t n, std::size_t k,
                      void* space) {
    return gemm.launch(stream, output, a, b, bias, static_cast<std::int64_t>(m),
                       static_cast<std::int64_t>(n), static_cast<std::int64_t>(k), space);
  }

  // A quantiser writes `written`, which is `a` or `b`, and the GEMM follows it at once: it is
  // the one of a launch that has nothing running before it.
  void check_early(const DeviceMatrix& a, const DeviceMatrix& b, const DeviceMatrix& written,
                   std::size_t m, std::size_t n, std::size_t k, const nvfp4::GemmOptions& options) {
    const auto quantize = create<nvfp4::QuantizeStatic>();
    const std::size_t rows = &written == &a ? m : n;
    DeviceBuffer<std::uint16_t> output(m * n);
    DeviceBuffer<std::uint16_t> late(m * n);
    for (int i = 0; i < 8; ++i) {
      const DeviceBuffer<std::uint16_t> input(random_bf16(Kind::normal, rows * k, random));
      require_ok(quantize.launch(stream, written.codes.data(), written.scales.data(), input.data(),
                                 100.0f, static_cast<std::int64_t>(rows),
                                 static_cast<std::int64_t>(k)));
      require_ok(gemm.launch(stream, late.data(), a, b, nullptr, static_cast<std::int64_t>(m),
                             static_cast<std::int64_t>(n), static_cast<std::int64_t>(k), nullptr,
                             options));
      stream.synchronize();
      require_ok(launch(output.data(), a, b, nullptr, m, n, k, nullptr));
      CHECK(late.download() == output.download());
    }
  }

  std::vector<std::uint16_t> product(const HostMatrix& a, const HostMatrix& b,
                                     const std::vector<std::uint16_t>& bias) {
    const DeviceMatrix device_a(a);
    const DeviceMatrix device_b(b);
    const DeviceBuffer<std::uint16_t> device_bias(bias);
    DeviceBuffer<std::uint16_t> output(a.rows * b.rows + 8);
    output.fill_bytes(0xA5, stream);
    const auto space = workspace(a.rows, b.rows, a.columns);
    require_ok(launch(output.data(), device_a, device_b,
                      bias.empty() ? nullptr : device_bias.data(), a.rows, b.rows, a.columns,
                      space.data()));
    auto given = output.download();
    for (int i = 0; i < 8; ++i) {
      REQUIRE_MESSAGE(given.back() == 0xA5A5, "written after the end");
      given.pop_back();
    }
    return given;
  }
};

struct Expected {
  double value;
  double tolerance;  // one rounding to bf16 and float's of a sum of that size
};

Expected expected_at(const HostMatrix& a, const HostMatrix& b,
                     const std::vector<std::uint16_t>& bias, std::size_t row, std::size_t column) {
  double sum = 0;
  double size = 0;
  for (std::size_t k = 0; k < a.columns; ++k) {
    const double term = static_cast<double>(a.at(row, k)) * b.at(column, k);
    sum += term;
    size += std::abs(term);
  }
  const double alpha = static_cast<double>(a.gsa.decode) * b.gsa.decode;
  const double value = sum * alpha + (bias.empty() ? 0.0 : float_of_bf16(bias[column]));
  return {value, std::abs(value) * 0x1p-8 + size * alpha * 0x1p-18};
}

void check_product(const std::vector<std::uint16_t>& given, const HostMatrix& a,
                   const HostMatrix& b, const std::vector<std::uint16_t>& bias, std::size_t samples,
                   std::mt19937_64& random) {
  const std::size_t count = a.rows * b.rows;
  std::size_t wrong = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < std::min(samples, count); ++i) {
    const std::size_t at = count <= samples ? i : random() % count;
    const Expected expected = expected_at(a, b, bias, at / b.rows, at % b.rows);
    if (!(std::abs(float_of_bf16(given[at]) - expected.value) <= expected.tolerance)) {
      first = wrong == 0 ? at : first;
      ++wrong;
    }
  }
  const Expected there = expected_at(a, b, bias, first / b.rows, first % b.rows);
  CHECK_MESSAGE(wrong == 0, wrong, " numbers differ, the first at [", first / b.rows, ", ",
                first % b.rows, "]: ", float_of_bf16(given[first]), " is given, ", there.value,
                " expected");
}

std::vector<std::uint16_t> random_bias(std::size_t n, std::mt19937_64& random) {
  return random_bf16(Kind::normal, n, random);
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "nvfp4_gemm equals the reference for every kind of shape") {
  struct Shape {
    std::size_t m, n, k;
  };
  for (const Shape shape : {Shape{1, 8, 32},
                            {1, 136, 96},
                            {2, 128, 128},
                            {7, 264, 160},
                            {8, 512, 1056},
                            {9, 200, 64},
                            {16, 384, 2048},
                            {17, 136, 224},
                            {33, 256, 512},
                            {64, 264, 96},
                            {65, 120, 288},
                            {128, 128, 128},
                            {129, 520, 352},
                            {200, 392, 1024},
                            {257, 136, 192},
                            {700, 1032, 160}}) {
    for (const bool with_bias : {false, true}) {
      CAPTURE(shape.m);
      CAPTURE(shape.n);
      CAPTURE(shape.k);
      CAPTURE(with_bias);
      const HostMatrix a = random_matrix(shape.m, shape.k, 0.37f, random);
      const HostMatrix b = random_matrix(shape.n, shape.k, 1.3e-3f, random);
      const auto bias = with_bias ? random_bias(shape.n, random) : std::vector<std::uint16_t>();
      check_product(product(a, b, bias), a, b, bias, 20000, random);
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "nvfp4_gemm equals the reference for the shapes of a language model") {
  for (const std::size_t m : {1, 16, 32, 64, 300, 4096}) {
    CAPTURE(m);
    const HostMatrix a = random_matrix(m, 7168, 1, random);
    const HostMatrix b = random_matrix(2048, 7168, 1, random);
    check_product(product(a, b, {}), a, b, {}, 1000, random);
  }
}

TEST_CASE_FIXTURE(Fixture, "every tactic computes the GEMM") {
  struct Shape {
    std::size_t m, n, k;
  };
  for (const Shape shape : {Shape{3, 264, 736},
                            {7, 1032, 4128},
                            {5, 7176, 544},  // more thread blocks than SMs
                            {11, 776, 2080},
                            {16, 520, 8224},
                            {13, 7176, 544},
                            {17, 776, 2080},
                            {32, 520, 8224},
                            {31, 7176, 544},
                            {40, 264, 2592},
                            {300, 520, 544}}) {
    const HostMatrix a = random_matrix(shape.m, shape.k, 0.37f, random);
    const HostMatrix b = random_matrix(shape.n, shape.k, 1.3e-3f, random);
    const DeviceMatrix device_a(a);
    const DeviceMatrix device_b(b);
    const auto space = workspace(shape.m, shape.n, shape.k);
    const auto m = static_cast<std::int64_t>(shape.m);
    const auto n = static_cast<std::int64_t>(shape.n);
    const auto k = static_cast<std::int64_t>(shape.k);
    REQUIRE(gemm.tactics(m, n, k) >= 3);
    for (int tactic = 0; tactic < gemm.tactics(m, n, k); ++tactic) {
      CAPTURE(shape.m);
      CAPTURE(tactic);
      DeviceBuffer<std::uint16_t> output(shape.m * shape.n);
      output.fill_bytes(0xA5, stream);
      require_ok(gemm.launch(stream, output.data(), device_a, device_b, nullptr, m, n, k,
                             space.data(), {.tactic = tactic}));
      const auto given = output.download();
      check_product(given, a, b, {}, 5000, random);
      output.fill_bytes(0xA5, stream);
      require_ok(gemm.launch(stream, output.data(), device_a, device_b, nullptr, m, n, k,
                             space.data(), {.constant_b = true, .tactic = tactic}));
      CHECK(output.download() == given);
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "a NaN scale makes its row or column NaN, and no other") {
  for (const std::size_t m : {5, 150}) {
    CAPTURE(m);
    constexpr std::size_t kN = 264;
    HostMatrix a = random_matrix(m, 160, 1, random);
    HostMatrix b = random_matrix(kN, 160, 1, random);
    a.scale(3, 9) = 0x7F;
    b.scale(130, 0) = 0x7F;
    const auto given = product(a, b, {});
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < given.size(); ++i) {
      wrong += std::isnan(float_of_bf16(given[i])) != (i / kN == 3 || i % kN == 130);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE_FIXTURE(Fixture, "zero scales give zero, and bias alone") {
  for (const std::size_t m : {3, 70}) {
    CAPTURE(m);
    const HostMatrix a = random_matrix(m, 128, 1, random);
    HostMatrix b = random_matrix(136, 128, 1, random);
    std::fill(b.scales.begin(), b.scales.end(), 0);
    const auto bias = random_bias(136, random);
    const auto given = product(a, b, bias);
    for (std::size_t i = 0; i < given.size(); ++i) REQUIRE(given[i] == bias[i % 136]);
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "the same inputs give the same bytes, launch after launch and replayed") {
  for (const std::size_t m : {1, 16, 32, 48, 130, 600}) {
    CAPTURE(m);
    constexpr std::size_t kN = 1032;
    constexpr std::size_t kK = 3104;
    const DeviceMatrix a(random_matrix(m, kK, 1, random));
    const DeviceMatrix b(random_matrix(kN, kK, 1, random));
    const auto space = workspace(m, kN, kK);
    DeviceBuffer<std::uint16_t> output(m * kN);
    require_ok(launch(output.data(), a, b, nullptr, m, kN, kK, space.data()));
    const auto first = output.download();
    for (int i = 0; i < 20; ++i) {
      require_ok(launch(output.data(), a, b, nullptr, m, kN, kK, space.data()));
    }
    CHECK(output.download() == first);
    // Each may start while the one before it ends, which reads and writes the same memory.
    for (int i = 0; i < 20; ++i) {
      require_ok(gemm.launch(stream, output.data(), a, b, nullptr, static_cast<std::int64_t>(m), kN,
                             kK, space.data(), {.constant_b = true}));
    }
    CHECK(output.download() == first);
    TestGraph graph(
        stream, [&] { require_ok(launch(output.data(), a, b, nullptr, m, kN, kK, space.data())); });
    for (int i = 0; i < 3; ++i) {
      output.fill_bytes(0, stream);
      graph.launch(stream);
      stream.synchronize();
      CHECK(output.download() == first);
    }
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "a product that starts early waits for what the kernel before it writes") {
  const DeviceMatrix b(random_matrix(7168, 7168, 1, random));
  for (const std::size_t m : {1, 16, 32}) {
    CAPTURE(m);
    const DeviceMatrix a(random_matrix(m, 7168, 1, random));
    check_early(a, b, a, m, 7168, 7168, {.constant_b = true});
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "a product that starts early reads weights that the kernel before it writes") {
  for (const std::size_t m : {1, 16, 32}) {
    CAPTURE(m);
    const DeviceMatrix a(random_matrix(m, 7168, 1, random));
    const DeviceMatrix b(random_matrix(1024, 7168, 1, random));
    check_early(a, b, b, m, 1024, 7168, {});
  }
}

TEST_CASE_FIXTURE(Fixture, "a linear layer in NVFP4 is close to the same layer in bf16") {
  constexpr std::size_t kM = 64;
  constexpr std::size_t kN = 256;
  constexpr std::size_t kK = 1024;
  const auto amax = create<nvfp4::AmaxGsa>();
  const auto quantize = create<nvfp4::Quantize>();
  struct Side {
    Side(const nvfp4::AmaxGsa& amax, const nvfp4::Quantize& quantize, Stream stream,
         std::size_t rows, std::mt19937_64& random)
        : values(random_bf16(Kind::normal, rows * kK, random)),
          input(values),
          codes(rows * kK / 2),
          scales(nvfp4::scales_bytes(static_cast<std::int64_t>(rows), kK)),
          gsa(2),
          state(kAmaxWorkspace) {
      require_ok(amax.launch(stream, gsa.data(), input.data(), static_cast<std::int64_t>(rows), kK,
                             state.data()));
      require_ok(quantize.launch(stream, codes.data(), scales.data(), input.data(), gsa.data(),
                                 static_cast<std::int64_t>(rows), kK));
    }
    HostMatrix host(std::size_t rows) const {
      const auto pair = gsa.download();
      return {rows, kK, codes.download(), scales.download(), {pair[0], pair[1]}};
    }
    std::vector<std::uint16_t> values;
    DeviceBuffer<std::uint16_t> input;
    DeviceBuffer<std::uint8_t> codes, scales;
    DeviceBuffer<float> gsa;
    DeviceBuffer<std::uint32_t> state;
  };
  const Side x(amax, quantize, stream, kM, random);
  const Side w(amax, quantize, stream, kN, random);
  DeviceBuffer<std::uint16_t> output(kM * kN);
  const auto space = workspace(kM, kN, kK);
  require_ok(gemm.launch(stream, output.data(), {x.codes.data(), x.scales.data(), x.gsa.data()},
                         {w.codes.data(), w.scales.data(), w.gsa.data()}, nullptr, kM, kN, kK,
                         space.data()));
  const auto given = output.download();
  const HostMatrix hx = x.host(kM);
  const HostMatrix hw = w.host(kN);
  double with_bf16[3] = {};
  double with_quantised[3] = {};
  const auto add = [](double(&sums)[3], double a, double b) {
    sums[0] += a * b;
    sums[1] += a * a;
    sums[2] += b * b;
  };
  for (std::size_t i = 0; i < kM; ++i) {
    for (std::size_t j = 0; j < kN; ++j) {
      double exact = 0;
      for (std::size_t k = 0; k < kK; ++k) {
        exact += static_cast<double>(float_of_bf16(x.values[i * kK + k])) *
                 float_of_bf16(w.values[j * kK + k]);
      }
      const double ours = float_of_bf16(given[i * kN + j]);
      add(with_bf16, ours, exact);
      add(with_quantised, ours, expected_at(hx, hw, {}, i, j).value);
    }
  }
  const auto cosine = [](const double(&s)[3]) { return s[0] / std::sqrt(s[1] * s[2]); };
  CHECK(cosine(with_bf16) >= 0.99);
  CHECK(cosine(with_quantised) >= 0.999);
}

TEST_CASE_FIXTURE(Fixture, "nvfp4_gemm of nothing launches nothing") {
  require_ok(gemm.launch(stream, nullptr, {}, {}, nullptr, 0, 128, 64, nullptr));
  require_ok(gemm.launch(stream, nullptr, {}, {}, nullptr, 16, 0, 64, nullptr));
}

TEST_CASE_FIXTURE(Fixture, "nvfp4_gemm refuses what it cannot do") {
  DeviceBuffer<std::uint16_t> output(4096);
  const DeviceMatrix a(random_matrix(32, 64, 1, random));
  const DeviceMatrix b(random_matrix(128, 64, 1, random));
  const auto refused = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    return refusal(gemm.launch(stream, output.data(), a, b, nullptr, m, n, k, output.data()));
  };
  CHECK(refused(1, 128, 48) == "k is 48; a positive multiple of 32 is expected");
  CHECK(refused(1, 128, 0) == "k is 0; a positive multiple of 32 is expected");
  CHECK(refused(1, 100, 64) == "n is 100; a multiple of 8 is expected");
  CHECK(refused(-1, 128, 64) == "[-1, 64] is not a shape: both are 0 to 2147483647");
  CHECK(refusal(gemm.launch(stream, nullptr, a, b, nullptr, 1, 128, 64, nullptr)) ==
        "output is null; a device pointer is expected");
  nvfp4::Matrix odd = a;
  odd.codes += 8;
  CHECK(refusal(gemm.launch(stream, output.data(), odd, b, nullptr, 1, 128, 64, nullptr))
            .find("not a multiple of 16 bytes") != std::string::npos);
  CHECK(refusal(nvfp4::Gemm().launch(stream, output.data(), a, b, nullptr, 1, 128, 64, nullptr)) ==
        "an empty Gemm: make it with Gemm::create");
}

}  // namespace cukiln::testing
