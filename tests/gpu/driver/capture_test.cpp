// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "core/driver/module.hpp"
#include "gpu/support/test_loader.hpp"

namespace cukiln {
namespace {

using testing::CaptureMode;
using testing::Device;
using testing::DeviceBuffer;
using testing::TestGraph;
using testing::TestLoader;
using testing::TestStream;

constexpr const char* kAdd = R"(
extern "C" __global__ void add(int* x, int value) { x[threadIdx.x] += value; })";

template <class R>
void require(const R& result) {
  REQUIRE_MESSAGE(result, result.error().message());
}

// add(), loaded, and the cubin of another module that is not.
struct Fixture {
  Fixture()
      : kernel(loader.get("add", kAdd)),
        late(loader.cubin("late", R"(extern "C" __global__ void late() {})",
                          target_of({0, "", Device::first().capability(), 0}))) {
    auto typed = TypedKernel<int*, int>::create(kernel);
    require(typed);
    add = *typed;
    x.fill_bytes(0);
    Device::first().synchronize();
  }
  Result<std::shared_ptr<LoadedModule>> load_late(Stream guard) const {
    return LoadedModule::load(Device::first().api(), late, {{"late", "late"}}, std::vector{0},
                              guard);
  }
  TestLoader loader;
  Kernel kernel;
  std::string late;
  TypedKernel<int*, int> add;
  DeviceBuffer<int> x{32};
};

TEST_CASE_FIXTURE(Fixture, "A captured launch replays with the arguments of its capture") {
  TestStream stream;
  TestGraph graph(stream, [&] {
    require(add.launch(stream, {{1}, {32}}, x.data(), 1));
    require(add.launch(stream, {{1}, {32}}, x.data(), 10));
  });
  CHECK(x.download()[0] == 0);
  for (int i = 0; i < 3; ++i) {
    graph.launch(stream);
  }
  stream.synchronize();
  CHECK(x.download()[31] == 33);
}

TEST_CASE_FIXTURE(Fixture,
                  "A load while the given stream captures is refused, the capture lives on") {
  TestStream stream;
  TestGraph graph(stream, [&] {
    const auto module = load_late(stream);
    REQUIRE(!module);
    CHECK(module.error().code() == ErrorCode::invalid_argument);
    CHECK(module.error().message().find("capture_guard") != std::string::npos);

    PreloadOptions options;
    options.capture_guard = stream;
    Manifest manifest({testing::module_of("later", R"(extern "C" __global__ void later() {})")});
    CHECK(!loader->preload(manifest, options));
    require(add.launch(stream, {{1}, {32}}, x.data(), 5));
  });
  graph.launch(stream);
  stream.synchronize();
  CHECK(x.download()[0] == 5);
}

TEST_CASE_FIXTURE(Fixture,
                  "A load while a blocking stream captures is refused, the capture lives on") {
  TestStream blocking(true);
  TestGraph graph(blocking, [&] {
    const auto module = load_late(nullptr);
    REQUIRE(!module);
    CHECK(module.error().code() == ErrorCode::invalid_argument);
    CHECK(module.error().message().find("legacy") != std::string::npos);
    require(add.launch(blocking, {{1}, {32}}, x.data(), 5));
  });
  graph.launch(blocking);
  blocking.synchronize();
  CHECK(x.download()[0] == 5);
}

TEST_CASE_FIXTURE(Fixture, "A load does not end the capture of a stream that it was not told of") {
  for (const CaptureMode mode :
       {CaptureMode::global, CaptureMode::thread_local_mode, CaptureMode::relaxed}) {
    CAPTURE(static_cast<int>(mode));
    x.fill_bytes(0);
    Device::first().synchronize();
    TestStream stream;
    TestGraph graph(
        stream,
        [&] {
          require(add.launch(stream, {{1}, {32}}, x.data(), 1));
          require(load_late(nullptr));  // and unloads it
          require(add.launch(stream, {{1}, {32}}, x.data(), 2));
        },
        mode);
    graph.launch(stream);
    stream.synchronize();
    CHECK(x.download()[0] == 3);
  }
}

}  // namespace
}  // namespace cukiln
