// What the launcher does and refuses: kernels compiled by the real NVRTC, on a driver that runs
// nothing.

#include <string>

#include <doctest/doctest.h>

#include "support/fake_cuda.hpp"
#include "support/loader_fixture.hpp"

#include <cukiln/nvfp4_moe.hpp>

namespace cukiln::nvfp4 {
namespace {

using testing::FakeCuda;
using testing::FakeLaunch;

struct Fixture : testing::LoaderFixture {
  Fixture() {
    const std::size_t route[] = {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4};
    const std::size_t up_sizes[] = {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4};
    const std::size_t down_sizes[] = {8, 8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4};
    const std::size_t combine[] = {8, 8, 8, 8, 4, 4, 4};
    fake.set_parameters("moe_route", route, std::size(route));
    fake.set_parameters("moe_up", up_sizes, std::size(up_sizes));
    fake.set_parameters("moe_down", down_sizes, std::size(down_sizes));
    const std::size_t expand[] = {8, 8, 8, 8, 8, 4, 4};
    const std::size_t prefill_up[] = {8, 8, 8, 8, 128, 8, 128, 8, 8, 8, 4, 4, 4, 4, 4, 4};
    const std::size_t prefill_down[] = {8, 8, 8, 128, 8, 128, 8, 8, 4, 4};
    fake.set_parameters("moe_expand", expand, std::size(expand));
    fake.set_parameters("moe_prefill_up", prefill_up, std::size(prefill_up));
    fake.set_parameters("moe_prefill_down", prefill_down, std::size(prefill_down));
    fake.set_parameters("moe_combine", combine, std::size(combine));
    LoaderOptions options = loader_options();
    options.cuda_library = fake.path;
    opened = open(options);
    auto made = MoeGemm::create(*opened.loader);
    if (!made) {
      FAIL(made.error().message() << "\n" << made.error().log());
    }
    moe = *made;
    using Push = CUresult (*)(CUcontext);
    REQUIRE(reinterpret_cast<Push>(dlsym(fake.handle, "cuCtxPushCurrent_v2"))(
                fake.new_context(0)) == 0);
  }
  ~Fixture() {
    using Pop = CUresult (*)(CUcontext*);
    CUcontext context = nullptr;
    reinterpret_cast<Pop>(dlsym(fake.handle, "cuCtxPopCurrent_v2"))(&context);
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  // Addresses that nobody reads.
  template <class T>
  static T* address(std::uintptr_t value) {
    return reinterpret_cast<T*>(value);
  }

  Result<void> launch() {
    return moe.launch(nullptr, output, shape, input, up, down, gsa, GateUpLayout::halves,
                      activation, workspace);
  }
  std::string refusal() {
    const auto calls = fake.calls("cuLaunchKernelEx") + fake.calls("cuLaunchKernel");
    const auto result = launch();
    REQUIRE_FALSE(result);
    CHECK(result.error().code() == ErrorCode::invalid_argument);
    CHECK(fake.calls("cuLaunchKernelEx") + fake.calls("cuLaunchKernel") == calls);
    return result.error().message();
  }

  FakeCuda fake;
  Opened opened;
  MoeGemm moe;
  MoeShape shape{3, 2, 4, 64, 96};
  MoeInput input{address<std::uint16_t>(0x1000), address<float>(0x2000),
                 address<std::int32_t>(0x3000), address<float>(0x4000)};
  MoeWeights up{address<std::uint8_t>(0x5000), address<std::uint8_t>(0x6000),
                address<float>(0x7000)};
  MoeWeights down{address<std::uint8_t>(0x8000), address<std::uint8_t>(0x9000),
                  address<float>(0xA000)};
  SwiGlu activation;
  std::uint16_t* output = address<std::uint16_t>(0xB000);
  const float* gsa = address<float>(0xC000);
  void* workspace = address<void>(0xD000);
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a mixture of experts is four launches, and none without tokens") {
  REQUIRE(launch());
  FakeLaunch launched{};
  const char* const names[] = {"moe_combine", "moe_down", "moe_up", "moe_route"};
  for (std::size_t i = 0; i < 4; ++i) {
    REQUIRE(fake.launch(i, &launched));
    CHECK(launched.kernel == std::string(names[i]));
  }
  REQUIRE(fake.launch(2, &launched));
  CHECK(launched.cluster[0] == 2);
  CHECK(launched.grid[0] == 2);
  CHECK(launched.grid[1] == 4);  // as many experts may have tokens
  CHECK_FALSE(fake.launch(4, &launched));

  shape.tokens = 0;
  output = nullptr;
  workspace = nullptr;
  REQUIRE(launch());
  CHECK_FALSE(fake.launch(4, &launched));
  CHECK(moe.workspace_bytes(shape) == 0);
}

TEST_CASE_FIXTURE(Fixture, "many tokens take sm_90a's warpgroups, which want their rows as fp16") {
  shape = {256, 2, 4, 64, 128};
  REQUIRE(launch());
  FakeLaunch launched{};
  const char* const names[] = {"moe_combine",    "moe_prefill_down", "moe_expand",
                               "moe_prefill_up", "moe_expand",       "moe_route"};
  for (std::size_t i = 0; i < 6; ++i) {
    REQUIRE(fake.launch(i, &launched));
    CHECK(launched.kernel == std::string(names[i]));
  }
  CHECK_FALSE(fake.launch(6, &launched));
}

TEST_CASE_FIXTURE(Fixture, "nvfp4_moe_gemm refuses shapes it cannot do, and says which it can") {
  const MoeShape good = shape;
  const auto with = [&](auto member, std::int64_t value) {
    shape = good;
    shape.*member = value;
    CHECK(moe.workspace_bytes(shape) == 0);
    return refusal();
  };
  CHECK(with(&MoeShape::tokens, -1) == "[-1, 64] is not a shape: both are 0 to 2147483647");
  CHECK(with(&MoeShape::hidden, 48) == "hidden is 48; a positive multiple of 32 is expected");
  CHECK(with(&MoeShape::width, 0) == "width is 0; a positive multiple of 32 is expected");
  CHECK(with(&MoeShape::experts, 1025) == "experts is 1025; 1 to 1024 are expected");
  CHECK(with(&MoeShape::topk, 0) == "topk is 0; 1 to 1024 are expected");
  CHECK(with(&MoeShape::global_experts, -2) ==
        "global_experts is -2; 0 to 2147483647 are expected");
  CHECK(with(&MoeShape::tokens, 1 << 20) ==
        "1048576 tokens with 2 experts each are more than 1048576; launch parts of the tokens one "
        "by one");
  shape = {1, 1, 1024, 64, 1 << 21};
  CHECK(refusal() ==
        "1024 experts with 4194304 and 64 rows of weights; at most 2147483647 in all are expected");
  shape = good;
  CHECK(moe.workspace_bytes(shape) > 0);
  moe = {};
  CHECK(refusal() == "an empty MoeGemm: make it with MoeGemm::create");
}

TEST_CASE_FIXTURE(Fixture, "nvfp4_moe_gemm refuses pointers it cannot use, by name") {
  output = address<std::uint16_t>(0xB008);
  CHECK(refusal() == "output is 0xb008, which is not a multiple of 16 bytes");
  output = address<std::uint16_t>(0xB000);
  input.topk_ids = nullptr;
  CHECK(refusal() == "topk_ids is null; a device pointer is expected");
  input.topk_ids = address<std::int32_t>(0x3000);
  down.scales = nullptr;
  CHECK(refusal() == "down.scales is null; a device pointer is expected");
  down.scales = address<std::uint8_t>(0x9000);
  workspace = nullptr;
  CHECK(refusal() == "workspace is null; a device pointer is expected");
  workspace = address<void>(0xD000);
  activation.limit = 0;
  CHECK(refusal() == "limit is 0; a positive number is expected, infinity for no limit");
}

}  // namespace cukiln::nvfp4
