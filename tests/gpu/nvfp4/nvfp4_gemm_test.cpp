// SPDX-License-Identifier: Apache-2.0
#include <random>

#include <doctest/doctest.h>

#include <cukiln/nvfp4/nvfp4.hpp>

#include "gpu/nvfp4/amax_workspace.hpp"
#include "gpu/nvfp4/gemm_operands.hpp"
#include "gpu/nvfp4/matrices.hpp"
#include "gpu/nvfp4/reference.hpp"
#include "gpu/support/device.hpp"
#include "gpu/support/loader.hpp"
#include "gpu/support/test_loader.hpp"

namespace cukiln::testing {
namespace {

struct Fixture {
  nvfp4::Gemm gemm = create<nvfp4::Gemm>();
  TestStream stream;
  std::mt19937_64 random{20250603};

  static nvfp4::Workspace view(const DeviceBuffer<std::uint8_t>& space) {
    return {space.data(), space.bytes()};
  }

  DeviceBuffer<std::uint8_t> workspace(std::size_t m, std::size_t n, std::size_t k) {
    DeviceBuffer<std::uint8_t> made(gemm.workspace_bytes(
        static_cast<std::int64_t>(m), static_cast<std::int64_t>(n), static_cast<std::int64_t>(k)));
    made.fill_bytes(0, stream);
    return made;
  }

  Result<void> launch(std::uint16_t* output, const DeviceOperand& a, const DeviceOperand& b,
                      const nvfp4::Workspace& space, const nvfp4::GemmOptions& options = {}) {
    return gemm.launch(stream, bf16(output, a.rows, b.rows), a.view(), b.view(), space, options);
  }

  // A quantiser writes `written`, which is `a` or `b`, and the GEMM follows it immediately. Its
  // result is that of a launch with nothing running before it.
  void check_early(const DeviceOperand& a, const DeviceOperand& b, const DeviceOperand& written,
                   const nvfp4::GemmOptions& options) {
    const auto quantize = create<nvfp4::QuantizeStatic>();
    const auto outputs = static_cast<std::size_t>(a.rows * b.rows);
    const auto inputs = static_cast<std::size_t>(written.rows * written.columns);
    DeviceBuffer<std::uint16_t> output(outputs);
    DeviceBuffer<std::uint16_t> late(outputs);
    for (int i = 0; i < 8; ++i) {
      const DeviceBuffer<std::uint16_t> input(random_bf16(Kind::normal, inputs, random));
      require_ok(quantize.launch(stream, written.view(),
                                 bf16(input.data(), written.rows, written.columns), 100.0f));
      require_ok(launch(late.data(), a, b, {}, options));
      stream.synchronize();
      require_ok(launch(output.data(), a, b, {}));
      CHECK(late.download() == output.download());
    }
  }

  std::vector<std::uint16_t> multiply(const HostOperand& a, const HostOperand& b,
                                      const std::vector<std::uint16_t>& bias) {
    const DeviceOperand device_a(a);
    const DeviceOperand device_b(b);
    const DeviceBuffer<std::uint16_t> device_bias(bias);
    DeviceBuffer<std::uint16_t> output(a.rows * b.rows + 8);
    output.fill_bytes(0xA5, stream);
    const auto space = workspace(a.rows, b.rows, a.columns);
    nvfp4::GemmOptions options;
    if (!bias.empty()) {
      options.bias = {DataType::bf16, device_bias.data(), device_b.rows};
    }
    require_ok(launch(output.data(), device_a, device_b, view(space), options));
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

Expected expected_at(const HostOperand& a, const HostOperand& b,
                     const std::vector<std::uint16_t>& bias, std::size_t row, std::size_t column) {
  double sum = 0;
  double size = 0;
  for (std::size_t k = 0; k < a.columns; ++k) {
    const double term = static_cast<double>(a.at(row, k)) * b.at(column, k);
    sum += term;
    size += std::abs(term);
  }
  const double alpha = static_cast<double>(a.global_scale.decode) * b.global_scale.decode;
  const double value = sum * alpha + (bias.empty() ? 0.0 : float_of_bf16(bias[column]));
  return {value, std::abs(value) * 0x1p-8 + size * alpha * 0x1p-18};
}

void check_gemm(const std::vector<std::uint16_t>& given, const HostOperand& a, const HostOperand& b,
                const std::vector<std::uint16_t>& bias, std::size_t samples,
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
      const HostOperand a = random_operand(shape.m, shape.k, 0.37f, random);
      const HostOperand b = random_operand(shape.n, shape.k, 1.3e-3f, random);
      const auto bias = with_bias ? random_bias(shape.n, random) : std::vector<std::uint16_t>();
      check_gemm(multiply(a, b, bias), a, b, bias, 20000, random);
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "nvfp4_gemm equals the reference for the shapes of a language model") {
  for (const std::size_t m : {1, 16, 32, 64, 300, 4096}) {
    CAPTURE(m);
    const HostOperand a = random_operand(m, 7168, 1, random);
    const HostOperand b = random_operand(2048, 7168, 1, random);
    check_gemm(multiply(a, b, {}), a, b, {}, 1000, random);
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
                            {300, 520, 544},
                            // On 148 SMs, three tiles of each kernel for some thread blocks.
                            {16, 38408, 288},
                            {1300, 7176, 544}}) {
    const HostOperand a = random_operand(shape.m, shape.k, 0.37f, random);
    const HostOperand b = random_operand(shape.n, shape.k, 1.3e-3f, random);
    const DeviceOperand device_a(a);
    const DeviceOperand device_b(b);
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
      require_ok(launch(output.data(), device_a, device_b, view(space), {.tactic = tactic}));
      const auto given = output.download();
      check_gemm(given, a, b, {}, 5000, random);
      output.fill_bytes(0xA5, stream);
      require_ok(launch(output.data(), device_a, device_b, view(space),
                        {.constant_b = true, .tactic = tactic}));
      CHECK(output.download() == given);
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "a NaN scale makes its row or column NaN, and no other") {
  for (const std::size_t m : {5, 150}) {
    CAPTURE(m);
    constexpr std::size_t kN = 264;
    HostOperand a = random_operand(m, 160, 1, random);
    HostOperand b = random_operand(kN, 160, 1, random);
    a.scale(3, 9) = 0x7F;
    b.scale(130, 0) = 0x7F;
    const auto given = multiply(a, b, {});
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
    const HostOperand a = random_operand(m, 128, 1, random);
    HostOperand b = random_operand(136, 128, 1, random);
    std::fill(b.scales.begin(), b.scales.end(), 0);
    const auto bias = random_bias(136, random);
    const auto given = multiply(a, b, bias);
    for (std::size_t i = 0; i < given.size(); ++i) REQUIRE(given[i] == bias[i % 136]);
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "the same inputs give the same bytes, launch after launch and replayed") {
  for (const std::size_t m : {1, 16, 32, 48, 130, 600}) {
    CAPTURE(m);
    constexpr std::size_t kN = 1032;
    constexpr std::size_t kK = 3104;
    const DeviceOperand a(random_operand(m, kK, 1, random));
    const DeviceOperand b(random_operand(kN, kK, 1, random));
    const auto space = workspace(m, kN, kK);
    DeviceBuffer<std::uint16_t> output(m * kN);
    require_ok(launch(output.data(), a, b, view(space)));
    const auto first = output.download();
    for (int i = 0; i < 20; ++i) {
      require_ok(launch(output.data(), a, b, view(space)));
    }
    CHECK(output.download() == first);
    // Each may start while the one before it ends, which reads and writes the same memory.
    for (int i = 0; i < 20; ++i) {
      require_ok(launch(output.data(), a, b, view(space), {.constant_b = true}));
    }
    CHECK(output.download() == first);
    TestGraph graph(stream, [&] { require_ok(launch(output.data(), a, b, view(space))); });
    for (int i = 0; i < 3; ++i) {
      output.fill_bytes(0, stream);
      graph.launch(stream);
      stream.synchronize();
      CHECK(output.download() == first);
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "a GEMM that starts early waits for what the kernel before it writes") {
  const DeviceOperand b(random_operand(7168, 7168, 1, random));
  for (const std::size_t m : {1, 16, 32}) {
    CAPTURE(m);
    const DeviceOperand a(random_operand(m, 7168, 1, random));
    check_early(a, b, a, {.constant_b = true});
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "a GEMM waits for weights that a kernel far before it in a chain writes") {
  // It lets the next kernel start and writes a tenth of a millisecond later.
  auto kernel = shipped_loader().get(module_of("write_late", R"(
extern "C" __global__ void write_late(uint4* to, const uint4* from, unsigned count) {
  asm volatile("griddepcontrol.launch_dependents;");
  for (const long long end = clock64() + 200000; clock64() < end;) {
  }
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
})"),
                                     "write_late");
  REQUIRE_MESSAGE(kernel, kernel.error().message());
  const auto write_late = TypedKernel<void*, const void*, unsigned>::create(*kernel);
  REQUIRE(write_late);
  const auto amax = create<nvfp4::ComputeGlobalScale>();
  const auto quantize = create<nvfp4::Quantize>();
  const AmaxWorkspace amax_workspace(amax.workspace_bytes());
  constexpr std::size_t kN = 1024;
  constexpr std::size_t kK = 7168;
  DeviceOperand b(random_operand(kN, kK, 1, random));
  const DeviceBuffer<std::uint8_t> weights(b.data.download());
  for (const std::size_t m : {1, 16, 32, 64}) {
    CAPTURE(m);
    const DeviceBuffer<std::uint16_t> input(random_bf16(Kind::normal, m * kK, random));
    const DeviceBuffer<nvfp4::GlobalScale> scale(1);
    const QuantizedBuffers a(static_cast<std::int64_t>(m), kK);
    DeviceBuffer<std::uint16_t> early(m * kN);
    DeviceBuffer<std::uint16_t> late(m * kN);
    const auto space = workspace(m, kN, kK);
    const auto multiply_into = [&](std::uint16_t* output) {
      require_ok(gemm.launch(stream, bf16(output, m, kN), a.view(scale), b.view(), view(space),
                             {.constant_b = true}));
    };
    const MatrixView x = bf16(input.data(), m, kK);
    for (int i = 0; i < 4; ++i) {
      b.data.fill_bytes(0x22, stream);
      stream.synchronize();
      require_ok(write_late->launch(stream, {{1}, {1024}}, b.data.data(), weights.data(),
                                    static_cast<unsigned>(weights.bytes() / 16)));
      require_ok(amax.launch(stream, scale.data(), x, amax_workspace));
      require_ok(quantize.launch(stream, a.view(scale), x));
      for (int j = 0; j < i; ++j) {
        require_ok(amax.launch(stream, scale.data(), x, amax_workspace));
      }
      multiply_into(early.data());
      stream.synchronize();
      multiply_into(late.data());
      CHECK(early.download() == late.download());
    }
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "a GEMM that starts early reads weights that the kernel before it writes") {
  for (const std::size_t m : {1, 16, 32}) {
    CAPTURE(m);
    const DeviceOperand a(random_operand(m, 7168, 1, random));
    const DeviceOperand b(random_operand(1024, 7168, 1, random));
    check_early(a, b, b, {});
  }
}

TEST_CASE_FIXTURE(Fixture, "a linear layer in NVFP4 is close to the same layer in bf16") {
  constexpr std::size_t kM = 64;
  constexpr std::size_t kN = 256;
  constexpr std::size_t kK = 1024;
  const auto amax = create<nvfp4::ComputeGlobalScale>();
  const auto quantize = create<nvfp4::Quantize>();
  const AmaxWorkspace amax_workspace(amax.workspace_bytes());
  struct Side {
    Side(std::size_t row_count, std::mt19937_64& random)
        : rows(row_count),
          values(random_bf16(Kind::normal, rows * kK, random)),
          input(values),
          quantized(static_cast<std::int64_t>(rows), kK),
          global_scale(1) {}
    HostOperand host() const {
      return {rows, kK, quantized.data.download(), quantized.scales.download(),
              global_scale.download().front()};
    }
    std::size_t rows;
    std::vector<std::uint16_t> values;
    DeviceBuffer<std::uint16_t> input;
    QuantizedBuffers quantized;
    DeviceBuffer<nvfp4::GlobalScale> global_scale;
  };
  const Side x(kM, random);
  const Side w(kN, random);
  for (const Side* const side : {&x, &w}) {
    const MatrixView input = bf16(side->input.data(), side->rows, kK);
    require_ok(amax.launch(stream, side->global_scale.data(), input, amax_workspace));
    require_ok(quantize.launch(stream, side->quantized.view(side->global_scale), input));
  }
  DeviceBuffer<std::uint16_t> output(kM * kN);
  const auto space = workspace(kM, kN, kK);
  require_ok(gemm.launch(stream, bf16(output.data(), kM, kN), x.quantized.view(x.global_scale),
                         w.quantized.view(w.global_scale), view(space)));
  const auto given = output.download();
  const HostOperand hx = x.host();
  const HostOperand hw = w.host();
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
  const auto launch_nothing = [&](std::int64_t m, std::int64_t n) {
    return gemm.launch(stream, {DataType::bf16, nullptr, m, n}, {nullptr, nullptr, nullptr, m, 64},
                       {nullptr, nullptr, nullptr, n, 64}, {});
  };
  require_ok(launch_nothing(0, 128));
  require_ok(launch_nothing(16, 0));
}

TEST_CASE_FIXTURE(Fixture, "nvfp4_gemm refuses what it cannot do") {
  DeviceBuffer<std::uint16_t> output(4096);
  const DeviceOperand a(random_operand(32, 64, 1, random));
  const DeviceOperand b(random_operand(128, 64, 1, random));
  const auto refused = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    nvfp4::QuantizedMatrix left = a.view();
    nvfp4::QuantizedMatrix right = b.view();
    left.rows = m;
    right.rows = n;
    left.columns = right.columns = k;
    return refusal(gemm.launch(stream, bf16(output.data(), m, n), left, right, {}));
  };
  CHECK(refused(1, 128, 48) ==
        "a is [1, 48]; expected a positive multiple of 32 columns, which are summed over");
  CHECK(refused(1, 128, 0) ==
        "a is [1, 0]; expected a positive multiple of 32 columns, which are summed over");
  CHECK(refused(1, 100, 64) == "b is [100, 64]; expected a multiple of 8 rows");
  CHECK(refused(-1, 128, 64) == "a is [-1, 64]; expected sizes of 0 to 2147483647");
  CHECK(refusal(launch(nullptr, a, b, {})) == "output is null; expected a device pointer");
  nvfp4::QuantizedMatrix odd = a.view();
  odd.data += 8;
  CHECK(refusal(gemm.launch(stream, bf16(output.data(), 32, 128), odd, b.view(), {}))
            .find("expected a multiple of 16 bytes") != std::string::npos);
  CHECK(refusal(nvfp4::Gemm().launch(stream, bf16(output.data(), 32, 128), a.view(), b.view(),
                                     {})) == "an empty Gemm; expected one that Gemm::create made");
}

}  // namespace cukiln::testing
