// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <random>

#include <doctest/doctest.h>

#include <cukiln/nvfp4/nvfp4.hpp>

#include "gpu/nvfp4/amax_workspace.hpp"
#include "gpu/nvfp4/matrices.hpp"
#include "gpu/nvfp4/reference.hpp"
#include "gpu/support/device.hpp"
#include "gpu/support/loader.hpp"

namespace cukiln::testing {
namespace {

struct Fixture {
  nvfp4::ComputeGlobalScale amax = create<nvfp4::ComputeGlobalScale>();
  nvfp4::Quantize quantize = create<nvfp4::Quantize>();
  nvfp4::DeinterleaveQuantize deinterleave = create<nvfp4::DeinterleaveQuantize>();
  AmaxWorkspace workspace{amax.workspace_bytes()};
  TestStream stream;
  std::mt19937_64 random{20250603};
};

double share_of_differences(const std::vector<std::uint8_t>& a,
                            const std::vector<std::uint8_t>& b) {
  REQUIRE(a.size() == b.size());
  std::size_t different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) different += a[i] != b[i];
  return static_cast<double>(different) / static_cast<double>(a.size());
}

// Row by row: `gate` then `up`, or one of each in turn.
std::vector<std::uint16_t> join(const std::vector<std::uint16_t>& gate,
                                const std::vector<std::uint16_t>& up, std::size_t rows,
                                nvfp4::GateUpLayout layout) {
  const std::size_t columns = gate.size() / rows;
  std::vector<std::uint16_t> out(2 * gate.size());
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      const std::size_t from = row * columns + column;
      const std::size_t to = 2 * row * columns;
      const bool pairs = layout == nvfp4::GateUpLayout::pairs;
      out[to + (pairs ? 2 * column : column)] = gate[from];
      out[to + (pairs ? 2 * column + 1 : columns + column)] = up[from];
    }
  }
  return out;
}

constexpr nvfp4::GateUpLayout kLayouts[] = {nvfp4::GateUpLayout::halves,
                                            nvfp4::GateUpLayout::pairs};

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "amax_gsa and quantize_nvfp4_from_buffer follow each other on a stream") {
  for (const std::size_t rows : {1, 129, 300}) {
    for (const std::size_t columns : {16, 80, 7168}) {
      for (const Kind kind : kKinds) {
        CAPTURE(rows);
        CAPTURE(columns);
        CAPTURE(static_cast<int>(kind));
        const auto host = random_bf16(kind, rows * columns, random);
        const DeviceBuffer<std::uint16_t> input(host);
        DeviceBuffer<nvfp4::GlobalScale> scale(1);
        QuantizedBuffers out(static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns));
        const MatrixView matrix = bf16(input.data(), rows, columns);
        require_ok(amax.launch(stream, scale.data(), matrix, workspace));
        require_ok(quantize.launch(stream, out.view(scale), matrix));
        const Quantized expected = testing::quantize(host, rows, columns, global_scale_of(host));
        CHECK(out.data.download() == expected.data);
        CHECK(out.scales.download() == expected.scales);
      }
    }
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "both read what the kernel before them wrote, however early they start") {
  constexpr std::int64_t kRows = 64;
  constexpr std::int64_t kColumns = 8192;
  constexpr std::int64_t kWords = kColumns / 4;  // a row's packed data, taken for bf16
  QuantizedBuffers first(kRows, kColumns);
  QuantizedBuffers second(kRows, kWords);
  const MatrixView words =
      bf16(reinterpret_cast<const std::uint16_t*>(first.data.data()), kRows, kWords);
  const auto one = on_device({1, 1});
  DeviceBuffer<nvfp4::GlobalScale> scale(1);
  const auto write_words = [&] {
    auto host = random_bf16(Kind::normal, static_cast<std::size_t>(kRows * kColumns), random);
    for (std::uint16_t& value : host)
      value &= 0x7FFF;  // without signs, so that no pair of bytes is a NaN
    DeviceBuffer<std::uint16_t> input(host);
    require_ok(quantize.launch(stream, first.view(one), bf16(input.data(), kRows, kColumns)));
    return input;
  };
  const auto written = [&] {
    const auto bytes = first.data.download();
    std::vector<std::uint16_t> values(bytes.size() / 2);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  for (int i = 0; i < 8; ++i) {
    const auto input = write_words();
    require_ok(quantize.launch(stream, second.view(one), words));
    const Quantized expected = testing::quantize(written(), kRows, kWords, {1, 1});
    CHECK(second.data.download() == expected.data);
    CHECK(second.scales.download() == expected.scales);

    const auto other = write_words();
    require_ok(amax.launch(stream, scale.data(), words, workspace));
    const nvfp4::GlobalScale wanted = global_scale_of(written());
    const nvfp4::GlobalScale given = scale.download().front();
    CHECK(given.encode == wanted.encode);
    CHECK(given.decode == wanted.decode);
  }
}

TEST_CASE_FIXTURE(Fixture, "both work in a graph, on new inputs at every replay") {
  constexpr std::int64_t kRows = 33;
  constexpr std::int64_t kColumns = 96;
  DeviceBuffer<std::uint16_t> input(static_cast<std::size_t>(kRows * kColumns));
  DeviceBuffer<nvfp4::GlobalScale> scale(1);
  QuantizedBuffers out(kRows, kColumns);
  const MatrixView matrix = bf16(input.data(), kRows, kColumns);
  TestGraph graph(stream, [&] {
    require_ok(amax.launch(stream, scale.data(), matrix, workspace));
    require_ok(quantize.launch(stream, out.view(scale), matrix));
  });
  for (int replay = 0; replay < 3; ++replay) {
    const auto host = random_bf16(Kind::heavy_tail, input.size(), random);
    input.upload(host);
    graph.launch(stream);
    const Quantized expected = testing::quantize(host, kRows, kColumns, global_scale_of(host));
    CHECK(out.data.download() == expected.data);
    CHECK(out.scales.download() == expected.scales);
  }
}

TEST_CASE_FIXTURE(Fixture, "deinterleave_quantize_from_buffer quantises gate and up side by side") {
  for (const std::size_t rows : {1, 129}) {
    for (const std::size_t columns : {16, 48, 512}) {
      const auto gate = random_bf16(Kind::normal, rows * columns, random);
      const auto up = random_bf16(Kind::heavy_tail, rows * columns, random);
      const auto halves = join(gate, up, rows, nvfp4::GateUpLayout::halves);
      const nvfp4::GlobalScale host_scale = global_scale_of(halves);
      const auto scale = on_device(host_scale);
      const Quantized expected = testing::quantize(halves, rows, 2 * columns, host_scale);
      for (const nvfp4::GateUpLayout layout : kLayouts) {
        CAPTURE(rows);
        CAPTURE(columns);
        CAPTURE(static_cast<unsigned>(layout));
        const std::size_t stride = 2 * columns + 8;
        const DeviceBuffer<std::uint16_t> input(
            spread(join(gate, up, rows, layout), rows, 2 * columns, stride));
        QuantizedBuffers out(static_cast<std::int64_t>(rows),
                             static_cast<std::int64_t>(2 * columns));
        require_ok(deinterleave.launch(stream, out.view(scale),
                                       bf16(input.data(), rows, 2 * columns, stride), layout));
        CHECK(out.data.download() == expected.data);
        CHECK(out.scales.download() == expected.scales);
      }
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "SwiGLU clamps before the sigmoid and rounds to bf16 once") {
  constexpr std::size_t kRows = 70;
  constexpr std::size_t kColumns = 272;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const nvfp4::SwiGlu activation :
       {nvfp4::SwiGlu{}, nvfp4::SwiGlu{7, 1.702f, 1}, nvfp4::SwiGlu{10, 1, 0},
        nvfp4::SwiGlu{0.5f, 1, 0}, nvfp4::SwiGlu{infinity, 1.702f, 0}}) {
    std::normal_distribution<float> normal(0, 5);
    std::vector<std::uint16_t> gate(kRows * kColumns);
    std::vector<std::uint16_t> up(kRows * kColumns);
    std::vector<std::uint16_t> y(kRows * kColumns);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      gate[i] = bf16_of_float(normal(random));
      up[i] = bf16_of_float(normal(random));
      y[i] = bf16_of_float(
          static_cast<float>(swiglu(float_of_bf16(gate[i]), float_of_bf16(up[i]), activation)));
    }
    const nvfp4::GlobalScale host_scale = global_scale_of(y);
    const auto scale = on_device(host_scale);
    const Quantized expected = testing::quantize(y, kRows, kColumns, host_scale);
    for (const nvfp4::GateUpLayout layout : kLayouts) {
      CAPTURE(activation.limit);
      CAPTURE(static_cast<unsigned>(layout));
      const DeviceBuffer<std::uint16_t> input(join(gate, up, kRows, layout));
      QuantizedBuffers out(kRows, kColumns);
      require_ok(deinterleave.launch_swiglu(
          stream, out.view(scale), bf16(input.data(), kRows, 2 * kColumns), layout, activation));
      // The approximate exponential moves a bf16 rounding now and then, never more.
      CHECK(share_of_differences(out.data.download(), expected.data) < 0.01);
      CHECK(share_of_differences(out.scales.download(), expected.scales) < 0.004);
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "swiglu_amax_gsa is the scale of what launch_swiglu quantises") {
  const auto swiglu_amax = create<nvfp4::ComputeSwiGluGlobalScale>();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const nvfp4::SwiGlu activation :
       {nvfp4::SwiGlu{}, nvfp4::SwiGlu{7, 1.702f, 1}, nvfp4::SwiGlu{0.5f, 1, 0}}) {
    for (const std::size_t rows : {1, 130}) {
      for (const std::size_t columns : {16, 80, 1024}) {
        std::normal_distribution<float> normal(0, 5);
        std::vector<std::uint16_t> gate(rows * columns);
        std::vector<std::uint16_t> up(rows * columns);
        float largest = 0;
        for (std::size_t i = 0; i < gate.size(); ++i) {
          gate[i] = bf16_of_float(normal(random));
          up[i] = bf16_of_float(normal(random));
          const double y = swiglu(float_of_bf16(gate[i]), float_of_bf16(up[i]), activation);
          largest = std::max(largest, static_cast<float>(std::abs(y)));
        }
        for (const nvfp4::GateUpLayout layout : kLayouts) {
          CAPTURE(rows);
          CAPTURE(columns);
          CAPTURE(static_cast<unsigned>(layout));
          const std::size_t stride = 2 * columns + 8;
          const DeviceBuffer<std::uint16_t> input(
              spread(join(gate, up, rows, layout), rows, 2 * columns, stride));
          DeviceBuffer<nvfp4::GlobalScale> scale(1);
          QuantizedBuffers out(static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns));
          const MatrixView matrix = bf16(input.data(), rows, 2 * columns, stride);
          require_ok(
              swiglu_amax.launch(stream, scale.data(), matrix, layout, activation, workspace));
          require_ok(
              deinterleave.launch_swiglu(stream, out.view(scale), matrix, layout, activation));
          const nvfp4::GlobalScale given = scale.download().front();
          CHECK(given.encode * largest ==
                doctest::Approx(2688).epsilon(0.004));  // one bf16 rounding
          CHECK(same_bits(given.decode, 1.0f / given.encode));
          // The largest block has the largest scale, and its largest element is 6.
          const auto scales = out.scales.download();
          CHECK(*std::max_element(scales.begin(), scales.end()) == 0x7E);
          bool six = false;
          for (const std::uint8_t pair : out.data.download()) {
            six = six || (pair & 7) == 7 || (pair >> 4 & 7) == 7;
          }
          CHECK(six);
        }
      }
    }
  }
  // NaN and zero, and a gate of -inf, for which the formula gives NaN.
  for (const auto& [bits, expected] :
       {std::pair{std::uint16_t{0x7FC0}, std::numeric_limits<float>::quiet_NaN()},
        std::pair{std::uint16_t{0xFF80}, std::numeric_limits<float>::quiet_NaN()},
        std::pair{std::uint16_t{0}, 1.0f}}) {
    std::vector<std::uint16_t> host(64, 0);
    host[5] = bits;
    const DeviceBuffer<std::uint16_t> input(host);
    DeviceBuffer<nvfp4::GlobalScale> scale(1);
    require_ok(swiglu_amax.launch(stream, scale.data(), bf16(input.data(), 1, 64),
                                  nvfp4::GateUpLayout::halves, {infinity, 1, 0}, workspace));
    const nvfp4::GlobalScale given = scale.download().front();
    CHECK(same_bits(given.encode, expected));
    CHECK(same_bits(given.decode, expected));
  }
  CHECK(workspace.is_zero());
}

TEST_CASE_FIXTURE(Fixture, "the fast formula is vLLM's, with the same rule for zero and NaN") {
  const auto fast = create<nvfp4::Quantize>(nvfp4::Formula::fast);
  for (const Kind kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    constexpr std::size_t kRows = 130;
    constexpr std::size_t kColumns = 336;
    const auto host = random_bf16(kind, kRows * kColumns, random);
    const nvfp4::GlobalScale host_scale = global_scale_of(host);
    const DeviceBuffer<std::uint16_t> input(host);
    const auto scale = on_device(host_scale);
    QuantizedBuffers out(kRows, kColumns);
    require_ok(fast.launch(stream, out.view(scale), bf16(input.data(), kRows, kColumns)));
    const Quantized expected = testing::quantize(host, kRows, kColumns, host_scale, Rounding::vllm);
    // The approximate reciprocals are off by an ulp here and there.
    CHECK(share_of_differences(out.data.download(), expected.data) < 0.01);
    CHECK(share_of_differences(out.scales.download(), expected.scales) < 0.002);
  }
}

TEST_CASE_FIXTURE(Fixture, "the quantisers from a buffer refuse what they cannot do") {
  DeviceBuffer<std::uint16_t> input(256);
  const auto scale = on_device({1, 1});
  QuantizedBuffers out(1, 128);
  const auto output_of = [&](std::int64_t columns) {
    nvfp4::MutableQuantizedMatrix output = out.view(scale);
    output.columns = columns;
    return output;
  };
  nvfp4::MutableQuantizedMatrix without_scale = output_of(64);
  without_scale.global_scale = nullptr;
  CHECK(refusal(quantize.launch(stream, without_scale, bf16(input.data(), 1, 64))) ==
        "output.global_scale is null; expected a device pointer");
  CHECK(refusal(quantize.launch(stream, output_of(40), bf16(input.data(), 1, 40))) ==
        "input is [1, 40]; expected a multiple of 16 columns, one block scale each");
  CHECK(refusal(quantize.launch(stream, output_of(64), bf16(input.data(), 1, 128))) ==
        "output is [1, 64]; expected [1, 128] for an input of [1, 128]");
  CHECK(refusal(deinterleave.launch_swiglu(stream, output_of(64), bf16(input.data(), 1, 128),
                                           nvfp4::GateUpLayout::pairs, {-1, 1, 0})) ==
        "activation.limit is -1; expected a positive number, infinity for no limit");
  const auto swiglu_amax = create<nvfp4::ComputeSwiGluGlobalScale>();
  DeviceBuffer<nvfp4::GlobalScale> result(1);
  const auto refused = [&](std::int64_t columns, std::int64_t stride, float limit) {
    return refusal(swiglu_amax.launch(stream, result.data(), bf16(input.data(), 1, columns, stride),
                                      nvfp4::GateUpLayout::pairs, {limit, 1, 0}, workspace));
  };
  CHECK(refused(48, 48, 1) ==
        "input is [1, 48]; expected a multiple of 32 columns: gate and up have a multiple of 16 "
        "each");
  CHECK(refused(64, 65, 1) ==
        "input has a row stride of 65; expected a multiple of 8, so that rows lie on 16 bytes");
  CHECK(refused(64, 64, 0) ==
        "activation.limit is 0; expected a positive number, infinity for no limit");
}

}  // namespace cukiln::testing
