// SPDX-License-Identifier: Apache-2.0
#include <cukiln/kernel.hpp>

#include <cstring>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "core/driver/module.hpp"
#include "support/fake_cuda.hpp"

namespace cukiln {
namespace {

using testing::fake_cubin;
using testing::FakeCuda;
using testing::FakeLaunch;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// scale(float* data, float factor, int count), loaded on two devices; device 0's context is
// current.
struct Fixture {
  explicit Fixture(const char* library = "libcuda_fake.so", int version = 13000) : fake(library) {
    fake.set_devices(2);
    fake.set_version(version);
    const std::size_t sizes[] = {8, 4, 4};
    fake.set_parameters("scale", sizes, 3);
    auto opened = DriverApi::open(fake.path);
    REQUIRE(opened);
    api = *std::move(opened);
    auto loaded = LoadedModule::load(api, fake_cubin({"scale"}), {{"scale", "scale"}},
                                     std::vector{0, 1}, nullptr);
    REQUIRE(loaded);
    module = *std::move(loaded);
    kernel = module->kernels().front();
    REQUIRE(api->call.cuCtxPushCurrent(fake.new_context(0)) == 0);
  }
  ~Fixture() {
    CUcontext context = nullptr;
    api->call.cuCtxPopCurrent(&context);
  }
  FakeCuda fake;
  std::shared_ptr<const DriverApi> api;
  std::shared_ptr<LoadedModule> module;
  Kernel kernel;
};

TEST_CASE_FIXTURE(Fixture, "A kernel knows its name, its handle and its parameters") {
  CHECK(kernel);
  CHECK(kernel.name() == "scale");
  CHECK(kernel.native() != nullptr);
  CHECK(kernel.parameter_count() == 3);
  CHECK(kernel.parameter_bytes(0) == 8);
  CHECK(kernel.parameter_bytes(2) == 4);
  CHECK(kernel.parameter_bytes(3) == 0);
}

TEST_CASE("Every function of an empty handle returns without a crash") {
  const Kernel none;
  CHECK(!none);
  CHECK(none.name().empty());
  CHECK(none.native() == nullptr);
  CHECK(none.parameter_count() == 0);
  CHECK(none.parameter_bytes(0) == 0);
  CHECK(none.launch(nullptr, {}, nullptr).error().code() == ErrorCode::invalid_argument);
  CHECK(none.reserve_shared(1).error().code() == ErrorCode::invalid_argument);
  CHECK(none.check_parameters(nullptr, 0).error().code() == ErrorCode::invalid_argument);
  CHECK(!TypedKernel<int>::create(none));
  CHECK(!TypedKernel<>().launch(nullptr, {}));
}

TEST_CASE_FIXTURE(Fixture, "A typed launch passes every argument and dimension to the driver") {
  const auto scale = TypedKernel<float*, float, int>::create(kernel);
  REQUIRE(scale);
  float data = 0;
  int anything = 0;
  const auto stream = reinterpret_cast<Stream>(&anything);
  REQUIRE(scale->launch(stream, {{4, 3, 2}, {32, 2, 1}, 512}, &data, 2.5f, 7));
  const FakeLaunch launch = fake.last_launch();
  CHECK(std::string(launch.kernel) == "scale");
  CHECK(launch.grid[0] == 4);
  CHECK(launch.grid[1] == 3);
  CHECK(launch.grid[2] == 2);
  CHECK(launch.block[0] == 32);
  CHECK(launch.block[1] == 2);
  CHECK(launch.block[2] == 1);
  CHECK(launch.shared_bytes == 512);
  CHECK(launch.stream == stream);
  CHECK(!launch.extended);
  REQUIRE(launch.argument_bytes == 16);
  float* pointer = nullptr;
  float factor = 0;
  int count = 0;
  std::memcpy(&pointer, launch.arguments, 8);
  std::memcpy(&factor, launch.arguments + 8, 4);
  std::memcpy(&count, launch.arguments + 12, 4);
  CHECK(pointer == &data);
  CHECK(factor == 2.5f);
  CHECK(count == 7);
}

TEST_CASE_FIXTURE(Fixture,
                  "Cluster, programmatic and cooperative launches carry their attributes") {
  const auto scale = TypedKernel<float*, float, int>::create(kernel);
  REQUIRE(scale);
  LaunchConfig config{{4}, {32}};
  config.cluster = {2, 1, 1};
  REQUIRE(scale->launch(nullptr, config, nullptr, 1.0f, 1));
  FakeLaunch launch = fake.last_launch();
  CHECK(launch.extended);
  CHECK(launch.cluster[0] == 2);
  CHECK(launch.cluster[1] == 1);
  CHECK(!launch.programmatic);
  CHECK(!launch.cooperative);
  CHECK(!launch.balanced);

  config.cluster = {0, 0, 0};
  config.programmatic_launch = true;
  REQUIRE(scale->launch(nullptr, config, nullptr, 1.0f, 1));
  launch = fake.last_launch();
  CHECK(launch.cluster[0] == 0);
  CHECK(launch.programmatic);

  config.cluster = {1, 2, 1};
  config.cooperative = true;
  config.balance_clusters = true;
  config.shared_bytes = 64;
  REQUIRE(scale->launch(nullptr, config, nullptr, 1.0f, 1));
  launch = fake.last_launch();
  CHECK(launch.cluster[1] == 2);
  CHECK(launch.programmatic);
  CHECK(launch.cooperative);
  CHECK(launch.balanced);
  CHECK(launch.grid[0] == 4);
  CHECK(launch.shared_bytes == 64);
  CHECK(launch.argument_bytes == 16);
}

TEST_CASE("A driver without programmatic launches in graphs gets a plain launch") {
  for (const auto& [version, is_programmatic] : {std::pair(12020, false), std::pair(12030, true)}) {
    Fixture fixture("libcuda_fake.so", version);
    LaunchConfig config{{4}, {32}};
    config.programmatic_launch = true;
    const auto scale = TypedKernel<float*, float, int>::create(fixture.kernel);
    REQUIRE(scale);
    REQUIRE(scale->launch(nullptr, config, nullptr, 1.0f, 1));
    CHECK(fixture.fake.last_launch().programmatic == is_programmatic);
  }
}

TEST_CASE_FIXTURE(Fixture, "Wrong arguments are refused with index, given and expected size") {
  const auto wrong_type = TypedKernel<float*, double, int>::create(kernel);
  REQUIRE(!wrong_type);
  CHECK(wrong_type.error().code() == ErrorCode::invalid_argument);
  CHECK(contains(wrong_type.error().message(), "argument 1"));
  CHECK(contains(wrong_type.error().message(), "scale"));
  CHECK(contains(wrong_type.error().message(), "8 bytes were given"));
  CHECK(contains(wrong_type.error().message(), "has 4"));

  const auto too_few = TypedKernel<float*, float>::create(kernel);
  REQUIRE(!too_few);
  CHECK(contains(too_few.error().message(), "2 arguments were given"));
  CHECK(contains(too_few.error().message(), "3 parameters"));
  CHECK(!TypedKernel<float*, float, int, int>::create(kernel));
  CHECK(!TypedKernel<>::create(kernel));
}

TEST_CASE("Arguments are not checked if the driver cannot report parameter sizes") {
  Fixture old("libcuda_fake_old.so");
  CHECK(old.kernel.parameter_count() == 0);
  CHECK(TypedKernel<float*, float, int>::create(old.kernel));
}

TEST_CASE_FIXTURE(Fixture, "Shared memory is reserved on every device, and never lowered") {
  const auto allowed = [&](int device) {
    int value = 0;
    api->call.cuKernelGetAttribute(&value, kKernelMaxDynamicShared, kernel.native(), device);
    return value;
  };
  REQUIRE(kernel.reserve_shared(200'000));
  CHECK(allowed(0) == 200'000);
  CHECK(allowed(1) == 200'000);
  REQUIRE(kernel.reserve_shared(100'000));
  CHECK(allowed(0) == 200'000);
  CHECK(kernel.reserve_shared(0));
}

TEST_CASE_FIXTURE(Fixture, "More shared memory than a device has is refused with its limit") {
  const auto reserved = kernel.reserve_shared(232'448);
  REQUIRE(!reserved);
  CHECK(reserved.error().code() == ErrorCode::driver);
  CHECK(contains(reserved.error().message(), "232448 bytes"));
  CHECK(contains(reserved.error().message(), "static shared memory takes 1024"));
  CHECK(contains(reserved.error().message(), "at most 231424"));
  CHECK(!kernel.reserve_shared(0xffffffffu));
  CHECK(kernel.reserve_shared(231'424));
  fake.fail("cuKernelSetAttribute", 1, -1);
  CHECK(kernel.reserve_shared(231'424));  // already reserved
  fake.fail("cuKernelGetAttribute", 999, -1);
  CHECK(contains(kernel.reserve_shared(1).error().message(), "device 0"));
}

TEST_CASE_FIXTURE(Fixture, "Concurrent reservations end with the largest") {
  std::vector<std::jthread> threads;
  for (std::uint32_t i = 1; i <= 16; ++i) {
    threads.emplace_back([&, i] { CHECK(kernel.reserve_shared(i * 10'000)); });
  }
  threads.clear();
  int value = 0;
  api->call.cuKernelGetAttribute(&value, kKernelMaxDynamicShared, kernel.native(), 0);
  CHECK(value == 160'000);
}

TEST_CASE_FIXTURE(Fixture, "A kernel reports its resources on a device that it is loaded on") {
  REQUIRE(kernel.reserve_shared(100'000));
  const auto used = kernel.attributes(1);
  REQUIRE(used);
  CHECK(used->registers == 32);
  CHECK(used->max_block_threads == 1024);
  CHECK(used->static_shared_bytes == 1024);
  CHECK(used->dynamic_shared_bytes == 100'000);
  CHECK(used->constant_bytes == 64);
  CHECK(used->local_bytes == 16);
  const auto elsewhere = kernel.attributes(2);
  REQUIRE_FALSE(elsewhere);
  CHECK(elsewhere.error().code() == ErrorCode::invalid_argument);
  CHECK(contains(elsewhere.error().message(), "not loaded on device 2"));
  fake.fail("cuKernelGetAttribute", 999, 1);
  CHECK(kernel.attributes(0).error().code() == ErrorCode::driver);
  CHECK(Kernel().attributes(0).error().code() == ErrorCode::invalid_argument);
}

TEST_CASE_FIXTURE(Fixture, "Occupancy is that of the given device for the given block size") {
  CHECK(kernel.max_blocks_per_sm(0, 256).value_or(0) == 8);
  CHECK(kernel.max_blocks_per_sm(0, 1024).value_or(0) == 2);
  CHECK(kernel.max_blocks_per_sm(0, 32, 100'000).value_or(0) == 2);
  for (const std::uint32_t threads : {0u, 1025u}) {
    const auto wrong = kernel.max_blocks_per_sm(0, threads);
    REQUIRE_FALSE(wrong);
    CHECK(wrong.error().code() == ErrorCode::invalid_argument);
    CHECK(contains(wrong.error().message(), "1 to 1024"));
  }
  const auto elsewhere = kernel.max_blocks_per_sm(2, 256);
  REQUIRE_FALSE(elsewhere);
  CHECK(elsewhere.error().code() == ErrorCode::invalid_argument);
  CHECK(contains(elsewhere.error().message(), "not loaded on device 2"));
  // A context in this thread is neither needed nor changed.
  CUcontext context = nullptr;
  api->call.cuCtxPopCurrent(&context);
  CHECK(kernel.max_blocks_per_sm(0, 256).value_or(0) == 8);
  CUcontext left = nullptr;
  api->call.cuCtxGetCurrent(&left);
  CHECK(left == nullptr);
  api->call.cuCtxPushCurrent(context);
}

TEST_CASE_FIXTURE(Fixture, "A failed launch reports kernel, configuration and exceeded limits") {
  const auto scale = TypedKernel<float*, float, int>::create(kernel);
  REQUIRE(scale);
  const auto launched = scale->launch(nullptr, {{7, 1, 1}, {2048}}, nullptr, 1.0f, 1);
  REQUIRE(!launched);
  CHECK(launched.error().code() == ErrorCode::driver);
  const std::string& message = launched.error().message();
  CHECK(contains(message, "launching scale"));
  CHECK(contains(message, "grid 7x1x1"));
  CHECK(contains(message, "block 2048x1x1"));
  CHECK(contains(message, "CUDA_ERROR_INVALID_VALUE (1)"));
  CHECK(contains(message, "at most 1024"));

  fake.fail("cuLaunchKernel", 1, 1);
  const auto shared = scale->launch(nullptr, {{1}, {32}, 100'000}, nullptr, 1.0f, 1);
  REQUIRE(!shared);
  CHECK(contains(shared.error().message(), "48128 bytes of dynamic shared memory are allowed now"));
  CHECK(contains(shared.error().message(), "231424"));
}

TEST_CASE_FIXTURE(Fixture, "A lost context and a missing one are explained") {
  const auto scale = TypedKernel<float*, float, int>::create(kernel);
  REQUIRE(scale);
  fake.fail("cuLaunchKernel", kCudaIllegalAddress, 1);
  CHECK(contains(scale->launch(nullptr, {}, nullptr, 1.0f, 1).error().message(),
                 "compute-sanitizer"));
  std::jthread([&] {  // a thread without a current context
    const auto launched = scale->launch(nullptr, {}, nullptr, 1.0f, 1);
    REQUIRE(!launched);
    CHECK(contains(launched.error().message(), "make a CUDA context current"));
  })
      .join();
}

}  // namespace
}  // namespace cukiln
