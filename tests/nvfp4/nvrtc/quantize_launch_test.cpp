// SPDX-License-Identifier: Apache-2.0
// What the launchers of the quantisers do and refuse: kernels compiled by the real NVRTC, on a fake
// driver that runs nothing.
#include <cmath>
#include <cstring>
#include <string>

#include <doctest/doctest.h>

#include "nvfp4/nvrtc/launch_fixture.hpp"

namespace cukiln::nvfp4 {
namespace {

using testing::address;
using testing::FakeLaunch;

constexpr std::size_t kSms = 148;        // as the fake driver reports
constexpr std::size_t kBlocksPerSm = 4;  // of 512 threads, likewise

struct Fixture : testing::LaunchFixture {
  Fixture() : LaunchFixture(90) {}

  std::string refusal(const Result<void>& result) const {
    REQUIRE_FALSE(result);
    CHECK(result.error().code() == ErrorCode::invalid_argument);
    return result.error().message();
  }

  MutableQuantizedMatrix output(std::int64_t rows, std::int64_t columns) const {
    return {address<std::uint8_t>(0x1000), address<std::uint8_t>(0x2000),
            address<GlobalScale>(0x3000), rows, columns};
  }
  MatrixView input(std::int64_t rows, std::int64_t columns) const {
    return {DataType::bf16, address<const std::uint16_t>(0x4000), rows, columns};
  }
};

struct QuantizeFixture : Fixture {
  Quantize quantize = made<Quantize>();
};

struct AmaxFixture : Fixture {
  ComputeGlobalScale amax = made<ComputeGlobalScale>();
  GlobalScale* scale = address<GlobalScale>(0x3000);
  Workspace workspace{address<void>(0x5000), std::size_t{1} << 20};
};

struct GateUpFixture : Fixture {
  DeinterleaveQuantize quantize = made<DeinterleaveQuantize>();
};

}  // namespace

TEST_CASE_FIXTURE(AmaxFixture,
                  "amax_gsa launches and reserves for as many blocks as the device holds") {
  CHECK(amax.workspace_bytes() == 2 * kBlocksPerSm * kSms * 4);
  REQUIRE(amax.launch(nullptr, scale, input(16384, 7168), workspace));
  CHECK(fake.last_launch().grid[0] == 2 * kBlocksPerSm * kSms);
  REQUIRE(amax.launch(nullptr, scale, input(3, 1024), workspace));
  CHECK(fake.last_launch().grid[0] == 1);
  const std::size_t before = fake.launches();
  workspace.size_bytes = amax.workspace_bytes() - 4;
  CHECK(refusal(amax.launch(nullptr, scale, input(3, 1024), workspace)) ==
        "workspace has 4732 bytes; expected 4736, see workspace_bytes()");
  workspace = {address<void>(0x5002), 4736};
  CHECK(refusal(amax.launch(nullptr, scale, input(3, 1024), workspace)) ==
        "workspace.data is 0x5002; expected a multiple of 4 bytes");
  workspace.data = address<void>(0x5000);
  CHECK(refusal(amax.launch_by_row(nullptr, scale, {DataType::f32, address<void>(0x6000), 2},
                                   input(3, 1024), workspace)) == "row_amax is [2]; expected [3]");
  CHECK(refusal(ComputeGlobalScale().launch(nullptr, scale, input(3, 1024), workspace)) ==
        "an empty ComputeGlobalScale; expected one that ComputeGlobalScale::create made");
  CHECK(ComputeGlobalScale().workspace_bytes() == 0);
  CHECK(fake.launches() == before);
}

TEST_CASE_FIXTURE(AmaxFixture, "a global scale takes the divisors that NVFP4 can hold") {
  const auto launched = [&](float divisor) {
    return amax.launch(nullptr, scale, input(3, 1024), workspace, divisor);
  };
  const auto passed = [&] {  // the last parameter
    const FakeLaunch last = fake.last_launch();
    float value = 0;
    std::memcpy(&value, last.arguments + last.argument_bytes - sizeof value, sizeof value);
    return value;
  };
  REQUIRE(amax.launch(nullptr, scale, input(3, 1024), workspace));
  CHECK(passed() == 2688);
  for (const float divisor : {1.0f, 1536.0f, 2688.0f}) {
    REQUIRE(launched(divisor));
    CHECK(passed() == divisor);
  }
  const MutableVectorView row_amax(DataType::f32, address<void>(0x6000), 3);
  REQUIRE(amax.launch_by_row(nullptr, scale, row_amax, input(3, 1024), workspace, 448));
  CHECK(passed() == 448);
  const auto swiglu = made<ComputeSwiGluGlobalScale>();
  const auto launched_swiglu = [&](float divisor) {
    return swiglu.launch(nullptr, scale, input(3, 1024), GateUpLayout::pairs, {}, workspace,
                         divisor);
  };
  REQUIRE(launched_swiglu(1792));
  CHECK(passed() == 1792);
  REQUIRE(swiglu.launch(nullptr, scale, input(3, 1024), GateUpLayout::pairs, SwiGlu(), workspace));
  CHECK(passed() == 2688);

  const std::size_t before = fake.launches();
  CHECK(refusal(launched(2689)) ==
        "divisor is 2689; expected a number from 1 to 2688: the value that amax is scaled to, "
        "at most the largest block scale, 448, times the largest element, 6");
  for (const float divisor : {0.0f, -6.0f, 0.99f, std::nanf(""), HUGE_VALF}) {
    CAPTURE(divisor);
    CHECK(refusal(launched(divisor)).rfind("divisor is ", 0) == 0);
    CHECK(refusal(launched_swiglu(divisor)).rfind("divisor is ", 0) == 0);
    CHECK(refusal(amax.launch_by_row(nullptr, scale, row_amax, input(3, 1024), workspace, divisor))
              .rfind("divisor is ", 0) == 0);
  }
  CHECK(fake.launches() == before);
}

TEST_CASE("grids follow from the SMs of the device") {
  struct Device {
    int num_sms;
    unsigned amax_blocks;      // for [2304, 7168]: 1008, or two waves
    unsigned quantise_blocks;  // of 2016 tiles
  };
  // Four tiles each in one wave of 592 blocks; three each in two of 456; four each in two of 312.
  for (const Device device :
       {Device{148, 1008, 504}, Device{114, 912, 672}, Device{78, 624, 504}}) {
    CAPTURE(device.num_sms);
    const testing::LaunchFixture fixture(90, device.num_sms);
    const auto grid = [&] { return fixture.fake.last_launch().grid[0]; };
    const std::size_t wave = kBlocksPerSm * static_cast<std::size_t>(device.num_sms);
    GlobalScale* const scale = address<GlobalScale>(0x3000);
    const Workspace workspace{address<void>(0x5000), 2 * wave * 4};
    const MatrixView input(DataType::bf16, address<const std::uint16_t>(0x4000), 2304, 7168);

    const auto amax = fixture.made<ComputeGlobalScale>();
    CHECK(amax.workspace_bytes() == 2 * wave * 4);
    REQUIRE(amax.launch(nullptr, scale, input, workspace));
    CHECK(grid() == device.amax_blocks);
    const auto swiglu = fixture.made<ComputeSwiGluGlobalScale>();
    CHECK(swiglu.workspace_bytes() == wave * 4);
    REQUIRE(swiglu.launch(nullptr, scale, input, GateUpLayout::halves, SwiGlu(), workspace));
    CHECK(grid() == wave);
    const auto quantize = fixture.made<Quantize>();
    REQUIRE(quantize.launch(
        nullptr, {address<std::uint8_t>(0x1000), address<std::uint8_t>(0x2000), scale, 2304, 7168},
        input));
    CHECK(grid() == device.quantise_blocks);
  }
}

TEST_CASE_FIXTURE(QuantizeFixture, "a quantiser's grid follows from the device") {
  REQUIRE(quantize.launch(nullptr, output(128, 7168), input(128, 7168)));
  const FakeLaunch last = fake.last_launch();
  CHECK(std::string(last.kernel) == "quantize_nvfp4_from_buffer");
  CHECK(last.grid[0] == 112);  // a tile each
  CHECK(last.block[0] == 512);
  CHECK(last.programmatic);
  REQUIRE(quantize.launch(nullptr, output(2560, 7168), input(2560, 7168)));
  CHECK(fake.last_launch().grid[0] == 560);  // one wave of 592: four tiles each, not three
}

TEST_CASE_FIXTURE(QuantizeFixture, "a quantiser refuses operands that do not fit together") {
  const std::size_t before = fake.launches();
  const auto refused = [&](const MutableQuantizedMatrix& to, const MatrixView& from) {
    return refusal(quantize.launch(nullptr, to, from));
  };
  CHECK(refused(output(3, 64), input(4, 64)) ==
        "output is [3, 64]; expected [4, 64] for an input of [4, 64]");
  CHECK(refused(output(4, 40), input(4, 40)) ==
        "input is [4, 40]; expected a multiple of 16 columns, one block scale each");
  CHECK(refused(output(4, 64), {DataType::f16, address<void>(0x4000), 4, 64}) ==
        "input is f16; expected bf16");
  CHECK(refused(output(4, 64), {DataType::bf16, address<void>(0x4000), 4, 64, 65}) ==
        "input has a row stride of 65; expected a multiple of 8, so that rows lie on 16 bytes");
  CHECK(refused(output(4, 64), {DataType::bf16, address<void>(0x4000), 4, 64, 1, 4}) ==
        "input has a column stride of 4; expected 1: contiguous rows");
  CHECK(refused(output(4, 64), {DataType::bf16, address<void>(0x4002), 4, 64}) ==
        "input is 0x4002; expected a multiple of 16 bytes");
  CHECK(refused(output(-1, 64), input(-1, 64)) ==
        "input is [-1, 64]; expected sizes of 0 to 2147483647");
  MutableQuantizedMatrix unscaled = output(4, 64);
  unscaled.global_scale = nullptr;
  CHECK(refused(unscaled, input(4, 64)) ==
        "output.global_scale is null; expected a device pointer");
  REQUIRE(quantize.launch(nullptr, output(0, 64), input(0, 64)));
  CHECK(fake.launches() == before);
}

TEST_CASE_FIXTURE(GateUpFixture,
                  "gate and up are quantised as one matrix, or as SwiGLU of half as many columns") {
  REQUIRE(quantize.launch(nullptr, output(4, 128), input(4, 128), GateUpLayout::halves));
  CHECK(std::string(fake.last_launch().kernel) == "quantize_nvfp4_from_buffer");
  REQUIRE(quantize.launch(nullptr, output(4, 128), input(4, 128), GateUpLayout::pairs));
  CHECK(std::string(fake.last_launch().kernel) == "deinterleave_quantize_from_buffer");
  REQUIRE(quantize.launch_swiglu(nullptr, output(4, 64), input(4, 128), GateUpLayout::pairs, {}));
  CHECK(std::string(fake.last_launch().kernel) == "swiglu_quantize_from_buffer");
  CHECK(refusal(quantize.launch_swiglu(nullptr, output(4, 128), input(4, 128), GateUpLayout::pairs,
                                       {})) ==
        "output is [4, 128]; expected [4, 64] for an input of [4, 128]");
  CHECK(refusal(quantize.launch(nullptr, output(4, 48), input(4, 48), GateUpLayout::pairs)) ==
        "input is [4, 48]; expected a multiple of 32 columns: gate and up have a multiple of 16 "
        "each");
  SwiGlu activation;
  activation.limit = 0;
  CHECK(refusal(quantize.launch_swiglu(nullptr, output(4, 64), input(4, 128), GateUpLayout::pairs,
                                       activation)) ==
        "activation.limit is 0; expected a positive number, infinity for no limit");
}

}  // namespace cukiln::nvfp4
