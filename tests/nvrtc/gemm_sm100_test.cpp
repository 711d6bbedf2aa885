// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <string>

#include "driver/cuda_types.hpp"
#include "kernels/nvfp4/sm100_plan.hpp"
#include "nvrtc/launch_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

constexpr std::int64_t kB200 = 148;  // multiprocessors, as the stand-in for the driver has them

std::string chosen(std::int64_t m, std::int64_t n) {
  return nvfp4::sm100_kernel_for(m, n, kB200).name;
}

// What a launch passes, as the kernel declares it; the maps are the stand-in's.
struct Arguments {
  TensorMap rows, columns, row_scales, column_scales, output;
  const float* gsa_a;
  const float* gsa_b;
  const std::uint16_t* bias;
  std::uint32_t m, n, k;
};
constexpr std::size_t kArgumentBytes = offsetof(Arguments, k) + 4;

const void* data_of(const TensorMap& map) {
  return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(map.opaque[0]));
}

struct Sm100Fixture : GemmFixture {
  Sm100Fixture() : GemmFixture(100) {}

  Arguments arguments() const {
    const FakeLaunch last = fake.last_launch();
    REQUIRE(last.argument_bytes == kArgumentBytes);
    Arguments out;
    std::memcpy(&out, last.arguments, kArgumentBytes);
    return out;
  }
};

}  // namespace

TEST_CASE("a GEMM uses the tile that is estimated to be fastest") {
  CHECK(chosen(1, 8192) == "nvfp4_gemm_swapped");
  CHECK(chosen(64, 8192) == "nvfp4_gemm_swapped");
  CHECK(chosen(65, 8192) == "nvfp4_gemm_128x128");
  CHECK(chosen(128, 7168) == "nvfp4_gemm_128x128");       // one wave: the smaller tile ends first
  CHECK(chosen(128, 148 * 256) == "nvfp4_gemm_128x256");  // a pair's second half would be empty
  CHECK(chosen(8192, 8192) == "nvfp4_gemm_256x256");
  CHECK(std::string(nvfp4::sm100_kernel_for(8192, 8192, 1).name) != "nvfp4_gemm_swapped");
}

TEST_CASE_FIXTURE(Sm100Fixture, "a GEMM on sm_100a is one launch, planned for its shape") {
  REQUIRE(launch(4096, 4096, 7168));
  FakeLaunch last = fake.last_launch();
  CHECK(std::string(last.kernel) == "nvfp4_gemm_256x256");
  CHECK(last.grid[0] == 148);  // 74 pairs at once
  CHECK(last.block[0] == 192);
  CHECK(last.shared_bytes == 228352);
  Arguments passed = arguments();
  CHECK(data_of(passed.rows) == a.codes);
  CHECK(data_of(passed.columns) == b.codes);
  CHECK(data_of(passed.row_scales) == a.scales);
  CHECK(data_of(passed.column_scales) == b.scales);
  CHECK(data_of(passed.output) == output);
  CHECK(passed.gsa_a == a.gsa);
  CHECK(passed.gsa_b == b.gsa);
  CHECK(passed.bias == nullptr);
  CHECK(passed.m == 4096);
  CHECK(passed.k == 7168);

  // Few rows of A: the weights' rows fill the lanes, and a small product takes a small grid.
  const auto* bias = address<const std::uint16_t>(0x80000);
  REQUIRE(launch(3, 264, 96, bias));
  last = fake.last_launch();
  CHECK(std::string(last.kernel) == "nvfp4_gemm_swapped");
  CHECK(last.grid[0] == 3);
  passed = arguments();
  CHECK(data_of(passed.rows) == b.codes);
  CHECK(data_of(passed.columns) == a.codes);
  CHECK(data_of(passed.row_scales) == b.scales);
  CHECK(data_of(passed.column_scales) == a.scales);
  CHECK(passed.gsa_a == a.gsa);
  CHECK(passed.bias == bias);
  CHECK(passed.m == 3);
  CHECK(passed.n == 264);
}

TEST_CASE_FIXTURE(Sm100Fixture, "a given tactic is used, and an unknown one is refused") {
  REQUIRE(gemm.tactics(4096, 4096, 7168) == 4);
  for (int tactic = 0; tactic < 4; ++tactic) {
    REQUIRE(
        gemm.launch(nullptr, output, a, b, nullptr, 4096, 4096, 7168, nullptr, {false, tactic}));
    CHECK(std::string(fake.last_launch().kernel) == nvfp4::kSm100Kernels[tactic].name);
  }
  const std::size_t before = fake.launches();
  const auto refused =
      gemm.launch(nullptr, output, a, b, nullptr, 4096, 4096, 7168, nullptr, {false, 4});
  REQUIRE(!refused);
  CHECK(refused.error().message() ==
        "tactic is 4; [4096, 4096, 7168] has 4, counted from 0, and -1 is the one that should be "
        "fastest");
  CHECK(fake.launches() == before);
  CHECK(nvfp4::Gemm().tactics(4096, 4096, 7168) == 0);
}

TEST_CASE_FIXTURE(Sm100Fixture,
                  "a GEMM on sm_100a needs no workspace, and an empty one launches nothing") {
  CHECK(gemm.workspace_bytes(8192, 8192, 8192) == 0);
  const std::size_t before = fake.launches();
  CHECK(launch(0, 128, 128));
  CHECK(launch(128, 0, 128));
  CHECK(fake.launches() == before);
}

TEST_CASE_FIXTURE(Sm100Fixture,
                  "a tensor map that the driver rejects is an error without a launch") {
  fake.fail("cuTensorMapEncodeTiled", kCudaInvalidValue, 1);
  const std::size_t before = fake.launches();
  const auto refused = launch(128, 128, 128);
  REQUIRE(!refused);
  CHECK(refused.error().code() == ErrorCode::driver);
  CHECK(refused.error().message().find("nvfp4_gemm_128x128") != std::string::npos);
  CHECK(fake.launches() == before);
}

TEST_CASE_FIXTURE(Sm100Fixture, "a grouped GEMM is one launch, whatever the groups' experts") {
  const auto made = nvfp4::GroupedGemm::create(opened.loader);
  REQUIRE_MESSAGE(made, made.error().message());
  const auto* experts = address<const std::int32_t>(0x90000);
  nvfp4::GroupedGemm::Shape shape{1000, 384, 96, 5, true};
  REQUIRE(made->launch(nullptr, output, a, b, nullptr, experts, shape));
  const FakeLaunch last = fake.last_launch();
  CHECK(std::string(last.kernel) == "nvfp4_gemm_grouped_128x128");
  CHECK(last.grid[0] == 24);  // 8 groups of rows, 3 tiles each
  REQUIRE(last.argument_bytes == kArgumentBytes + 12);
  TensorMap columns;
  std::memcpy(&columns, last.arguments + 128, sizeof columns);
  CHECK(data_of(columns) == b.codes);
  CHECK(columns.opaque[3] == 5 * 384);  // the rows of every expert
  TensorMap written;
  std::memcpy(&written, last.arguments + 4 * 128, sizeof written);
  CHECK(written.opaque[2] == 384);
  const std::int32_t* passed = nullptr;
  std::uint32_t stride = 0;
  std::memcpy(&passed, last.arguments + kArgumentBytes, sizeof passed);
  std::memcpy(&stride, last.arguments + kArgumentBytes + 8, sizeof stride);
  CHECK(passed == experts);
  CHECK(stride == 2);

  shape.a_scale_per_expert = false;
  shape.rows = 128 * 148;
  REQUIRE(made->launch(nullptr, output, a, b, nullptr, experts, shape));
  const FakeLaunch wide = fake.last_launch();
  std::memcpy(&stride, wide.arguments + kArgumentBytes + 8, sizeof stride);
  CHECK(stride == 0);
  CHECK(wide.grid[0] == 148);

  const std::size_t before = fake.launches();
  shape.rows = 0;
  CHECK(made->launch(nullptr, output, a, b, nullptr, experts, shape));
  shape.rows = 128;
  shape.n = 192;
  const auto refused = made->launch(nullptr, output, a, b, nullptr, experts, shape);
  REQUIRE(!refused);
  CHECK(refused.error().message() == "n is 192; a positive multiple of 128 is expected");
  shape.n = 128;
  CHECK(made->launch(nullptr, output, a, b, nullptr, nullptr, shape).error().message() ==
        "row_experts is null; a device pointer is expected");
  CHECK(fake.launches() == before);
}

TEST_CASE_FIXTURE(Sm100Fixture, "the grouped GEMM reports the devices that support it") {
  fake.set_capability(0, 90);
  LoaderOptions options = loader_options();
  options.cuda_library = fake.path;
  const Opened hopper = open(options);
  const auto made = nvfp4::GroupedGemm::create(hopper.loader);
  REQUIRE(!made);
  CHECK(made.error().code() == ErrorCode::incompatible);
}
