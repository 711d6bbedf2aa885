// SPDX-License-Identifier: Apache-2.0
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
  AmaxWorkspace workspace{amax.workspace_bytes()};
  DeviceBuffer<nvfp4::GlobalScale> scale{1};
  TestStream stream;
  std::mt19937_64 random{20250601};
};

void check_scale(const DeviceBuffer<nvfp4::GlobalScale>& on_device, nvfp4::GlobalScale expected) {
  const nvfp4::GlobalScale given = on_device.download().front();
  CHECK_MESSAGE(same_bits(given.encode, expected.encode), given.encode, " is not ",
                expected.encode);
  CHECK_MESSAGE(same_bits(given.decode, expected.decode), given.decode, " is not ",
                expected.decode);
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "amax_gsa takes any shape, stride and alignment") {
  struct Shape {
    std::size_t rows, columns, row_stride, offset;
  };
  for (const Shape shape :
       {Shape{1, 1, 1, 0}, Shape{1, 1, 1, 1}, Shape{7, 3, 5, 1}, Shape{128, 16, 16, 0},
        Shape{300, 80, 88, 0}, Shape{3, 1025, 1025, 0}, Shape{5, 1023, 1031, 3},
        Shape{9, 4099, 4099, 7}, Shape{129, 7168, 7168, 0}, Shape{2, 100003, 100004, 2}}) {
    for (const Kind kind : kKinds) {
      CAPTURE(shape.rows);
      CAPTURE(shape.columns);
      CAPTURE(shape.row_stride);
      CAPTURE(static_cast<int>(kind));
      const auto dense = random_bf16(kind, shape.rows * shape.columns, random);
      auto host = spread(dense, shape.rows, shape.columns, shape.row_stride);
      host.insert(host.begin(), shape.offset, 0x7FC0);
      const DeviceBuffer<std::uint16_t> input(host);
      require_ok(amax.launch(
          stream, scale.data(),
          bf16(input.data() + shape.offset, shape.rows, shape.columns, shape.row_stride),
          workspace));
      check_scale(scale, global_scale_of(dense));
    }
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "amax_gsa_by_row gives the amax of each row, and the same global scale") {
  struct Shape {
    std::size_t rows, columns, row_stride;
  };
  for (const Shape shape : {Shape{1, 1, 1}, Shape{7, 3, 5}, Shape{300, 80, 88},
                            Shape{5, 1025, 1031}, Shape{2000, 2100, 2104}}) {
    for (const Kind kind : kKinds) {
      CAPTURE(shape.rows);
      CAPTURE(shape.columns);
      CAPTURE(static_cast<int>(kind));
      const auto dense = random_bf16(kind, shape.rows * shape.columns, random);
      const DeviceBuffer<std::uint16_t> input(
          spread(dense, shape.rows, shape.columns, shape.row_stride));
      DeviceBuffer<float> row_amax(shape.rows);
      require_ok(amax.launch_by_row(
          stream, scale.data(),
          {DataType::f32, row_amax.data(), static_cast<std::int64_t>(shape.rows)},
          bf16(input.data(), shape.rows, shape.columns, shape.row_stride), workspace));
      check_scale(scale, global_scale_of(dense));
      const auto given = row_amax.download();
      std::size_t wrong = 0;
      for (std::size_t row = 0; row < shape.rows; ++row) {
        const auto first = dense.begin() + static_cast<std::ptrdiff_t>(row * shape.columns);
        const float expected = amax_of({first, first + static_cast<std::ptrdiff_t>(shape.columns)});
        wrong += !same_bits(given[row], expected);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "amax is mapped to the divisor") {
  constexpr std::size_t kRows = 130;
  const auto swiglu = create<nvfp4::ComputeSwiGluGlobalScale>();
  const AmaxWorkspace swiglu_workspace(swiglu.workspace_bytes());
  DeviceBuffer<float> row_amax(kRows);
  for (const Kind kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    const auto host = random_bf16(kind, kRows * 96, random);
    const DeviceBuffer<std::uint16_t> device(host);
    const MatrixView input = bf16(device.data(), kRows, 96);
    require_ok(swiglu.launch(stream, scale.data(), input, nvfp4::GateUpLayout::pairs, {},
                             swiglu_workspace));
    const nvfp4::GlobalScale of_swiglu = scale.download().front();
    for (const float divisor : {2688.0f, 1536.0f, 6.0f, 1.0f}) {
      CAPTURE(divisor);
      const nvfp4::GlobalScale expected = global_scale_of_amax(amax_of(host), divisor);
      require_ok(amax.launch(stream, scale.data(), input, workspace, divisor));
      check_scale(scale, expected);
      require_ok(amax.launch_by_row(stream, scale.data(), {DataType::f32, row_amax.data(), kRows},
                                    input, workspace, divisor));
      check_scale(scale, expected);
      require_ok(swiglu.launch(stream, scale.data(), input, nvfp4::GateUpLayout::pairs, {},
                               swiglu_workspace, divisor));
      const nvfp4::GlobalScale given = scale.download().front();
      if (of_swiglu.encode > 1e-30f && of_swiglu.encode < 1e30f && of_swiglu.encode != 1) {
        CHECK(given.encode == doctest::Approx(of_swiglu.encode / 2688 * divisor).epsilon(1e-6));
      }
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "amax_gsa of nothing is one") {
  require_ok(amax.launch(stream, scale.data(), {DataType::bf16, nullptr, 0, 64}, workspace));
  check_scale(scale, {1, 1});
}

TEST_CASE_FIXTURE(Fixture, "a thousand launches share one workspace and leave it zero") {
  constexpr std::size_t kLaunches = 1000;
  constexpr std::size_t kElements = 3 * 16384;
  std::vector<std::uint16_t> host(kLaunches * kElements);
  std::vector<float> expected(kLaunches);
  for (std::size_t i = 0; i < kLaunches; ++i) {
    const auto largest = static_cast<std::uint16_t>(0x3000 + random() % 0x2000);
    for (std::size_t j = 0; j < kElements; ++j) {
      host[i * kElements + j] = static_cast<std::uint16_t>((j * 31 % largest) | (j & 1) << 15);
    }
    host[i * kElements + random() % kElements] = largest;
    expected[i] = global_scale_of_amax(float_of_bf16(largest)).encode;
  }
  const DeviceBuffer<std::uint16_t> input(host);
  DeviceBuffer<nvfp4::GlobalScale> scales(kLaunches);
  for (std::size_t i = 0; i < kLaunches; ++i) {
    require_ok(amax.launch(stream, scales.data() + i, bf16(input.data() + i * kElements, 3, 16384),
                           workspace));
  }
  const auto given = scales.download();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kLaunches; ++i) {
    wrong += !same_bits(given[i].encode, expected[i]);
  }
  CHECK(wrong == 0);
  CHECK(workspace.is_zero());
}

TEST_CASE_FIXTURE(Fixture, "the largest is found whichever of all thread blocks reads it") {
  constexpr std::size_t kColumns = 1024;  // what a warp reads at a time
  const std::size_t rows = workspace.blocks() * 16;
  std::vector<std::uint16_t> host(rows * kColumns, 0);
  DeviceBuffer<std::uint16_t> input(host);
  for (const std::size_t at : {std::size_t{0}, host.size() - 1, random() % host.size(),
                               random() % host.size(), random() % host.size()}) {
    CAPTURE(at);
    host[at] = 0xC2A8;  // -84
    input.upload(host);
    for (int i = 0; i < 3; ++i) {
      require_ok(amax.launch(stream, scale.data(), bf16(input.data(), rows, kColumns), workspace));
    }
    check_scale(scale, global_scale_of_amax(84));
    host[at] = 0;
  }
  CHECK(workspace.is_zero());
}

TEST_CASE_FIXTURE(Fixture, "a captured amax_gsa reads its input anew at every replay") {
  DeviceBuffer<std::uint16_t> input(std::vector<std::uint16_t>(1 << 16, 0));
  TestGraph graph(stream, [&] {
    require_ok(amax.launch(stream, scale.data(), bf16(input.data(), 16, 4096), workspace));
  });
  for (const float largest : {1.0f, 64.0f, 0.25f}) {
    std::vector<std::uint16_t> host(1 << 16, bf16_of_float(-largest / 2));
    host[random() % host.size()] = bf16_of_float(largest);
    input.upload(host);
    graph.launch(stream);
    check_scale(scale, global_scale_of_amax(largest));
  }
}

TEST_CASE_FIXTURE(Fixture, "amax_gsa refuses what it cannot do") {
  DeviceBuffer<std::uint16_t> input(64);
  const MatrixView row = bf16(input.data(), 1, 64);
  CHECK(refusal(amax.launch(stream, nullptr, row, workspace)) ==
        "scale is null; expected a device pointer");
  CHECK(refusal(amax.launch(stream, scale.data(), bf16(input.data(), -1, 64), workspace)) ==
        "input is [-1, 64]; expected sizes of 0 to 2147483647");
  CHECK(refusal(amax.launch(stream, scale.data(), row, {})) ==
        "workspace.data is null; expected a device pointer");
  CHECK(refusal(amax.launch_by_row(stream, scale.data(), {DataType::f32, nullptr, 1}, row,
                                   workspace)) == "row_amax is null; expected a device pointer");
}

}  // namespace cukiln::testing
