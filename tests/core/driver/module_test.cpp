// SPDX-License-Identifier: Apache-2.0
#include "core/driver/module.hpp"

#include <thread>

#include <doctest/doctest.h>

#include "core/driver/image.hpp"
#include "support/fake_cuda.hpp"

namespace cukiln {
namespace {

using testing::fake_cubin;
using testing::FakeCuda;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Fixture {
  explicit Fixture(const char* library = "libcuda_fake.so") : fake(library) {
    auto opened = DriverApi::open(fake.path);
    REQUIRE(opened);
    api = *std::move(opened);
  }
  Result<std::shared_ptr<LoadedModule>> load(const std::string& bytes,
                                             const std::vector<int>& devices,
                                             Stream guard = nullptr) const {
    return LoadedModule::load(api, bytes, {{"scale", "_Z5scale"}, {"add", "_Z3add"}}, devices,
                              guard);
  }
  Result<std::shared_ptr<LoadedModule>> load(const std::vector<int>& devices = {0},
                                             Stream guard = nullptr) const {
    return load(image, devices, guard);
  }
  FakeCuda fake;
  std::shared_ptr<const DriverApi> api;
  std::string image = fake_cubin({"_Z5scale", "_Z3add"});
};

TEST_CASE_FIXTURE(Fixture, "One library serves every device, and every kernel is loaded on each") {
  fake.set_devices(4);
  const auto module = load({0, 1, 2, 3});
  REQUIRE(module);
  CHECK(fake.calls("cuLibraryLoadData") == 1);
  CHECK(fake.calls("cuFuncLoad") == 8);
  REQUIRE((*module)->kernels().size() == 2);
  CHECK((*module)->kernels()[0].name() == "scale");
  CHECK((*module)->kernels()[1].name() == "add");
  for (int device = 0; device < 4; ++device) {
    CHECK(fake.retained(device) == 1);
  }
}

TEST_CASE_FIXTURE(Fixture, "Devices are loaded in parallel") {
  fake.set_devices(4);
  fake.delay("cuFuncLoad", 50);
  REQUIRE(load({0, 1, 2, 3}));
  CHECK(fake.most_at_once("cuFuncLoad") >= 2);
}

TEST_CASE_FIXTURE(Fixture, "No launch loads code later, also with a driver before 12.4") {
  const auto launch_once = [](Fixture& at) {
    const auto module = at.load();
    REQUIRE(module);
    CUcontext context = nullptr;
    REQUIRE(at.api->call.cuDevicePrimaryCtxRetain(&context, 0) == 0);
    const CurrentContext current(*at.api, context);
    for (const Kernel& kernel : (*module)->kernels()) {
      CHECK(kernel.launch(nullptr, {}, nullptr));
    }
    CHECK(at.fake.launches() == 2);
    CHECK(at.fake.lazy_loads() == 0);
    REQUIRE(at.api->call.cuDevicePrimaryCtxRelease(0) == 0);
  };
  launch_once(*this);
  Fixture old("libcuda_fake_old.so");
  launch_once(old);
}

TEST_CASE_FIXTURE(Fixture, "The caller's current context is used on its own device and restored") {
  fake.set_devices(2);
  CUcontext mine = fake.new_context(1);
  REQUIRE(api->call.cuCtxPushCurrent(mine) == 0);
  {
    const auto module = load({0, 1});
    REQUIRE(module);
    CHECK(fake.retained(0) == 1);
    CHECK(fake.retained(1) == 0);
    CHECK((*module)->kernels()[0].launch(nullptr, {}, nullptr));
    CHECK(fake.lazy_loads() == 0);
    CHECK(fake.current_depth() == 1);
    CUcontext now = nullptr;
    api->call.cuCtxGetCurrent(&now);
    CHECK(now == mine);
  }
  api->call.cuCtxPopCurrent(&mine);
}

TEST_CASE_FIXTURE(Fixture, "Contexts opened in the host's thread serve loads in others") {
  CUcontext mine = fake.new_context(0);
  REQUIRE(api->call.cuCtxPushCurrent(mine) == 0);
  auto contexts = DeviceContexts::open(api, {0, 0});
  REQUIRE(contexts);
  CHECK((*contexts)->entries().size() == 1);
  std::jthread([&] {
    const auto module = LoadedModule::load(api, image, {{"add", "_Z3add"}}, *contexts, nullptr);
    CHECK(module.has_value());
    CHECK(fake.current_depth() == 0);
  }).join();
  CHECK(fake.retained(0) == 0);
  api->call.cuCtxPopCurrent(&mine);
}

TEST_CASE_FIXTURE(Fixture,
                  "All driver resources are released, after success and after every failure") {
  fake.set_devices(2);
  REQUIRE(load({0, 1}));
  for (const char* function :
       {"cuDeviceGetCount", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent",
        "cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetParamInfo", "cuKernelGetFunction",
        "cuFuncLoad", "cuStreamIsCapturing"}) {
    CAPTURE(function);
    for (const int times : {1, -1}) {
      fake.fail(function, 999, times);
      const auto module = load({0, 1});
      REQUIRE(!module);
      CHECK(module.error().code() == ErrorCode::driver);
      CHECK(contains(module.error().message(), "999"));
      fake.fail(function, 0, 0);
    }
    CHECK(fake.libraries() == 0);
    CHECK(fake.retained(0) == 0);
    CHECK(fake.retained(1) == 0);
    CHECK(fake.current_depth() == 0);
  }
}

TEST_CASE_FIXTURE(Fixture, "An image for another architecture is incompatible and names both") {
  fake.check_arch(1);
  const auto module = load(fake_cubin({"_Z5scale", "_Z3add"}, 100), {0});
  REQUIRE(!module);
  CHECK(module.error().code() == ErrorCode::incompatible);
  CHECK(contains(module.error().message(), "sm_100"));
  CHECK(contains(module.error().message(), "sm_90"));
  CHECK(contains(module.error().message(), "Fake GPU 0"));
}

TEST_CASE_FIXTURE(Fixture, "The one device of several that cannot run the image is named") {
  fake.set_devices(2);
  fake.set_capability(1, 86);
  fake.check_arch(1);
  const auto module = load({0, 1});
  REQUIRE(!module);
  CHECK(module.error().code() == ErrorCode::incompatible);
  CHECK(contains(module.error().message(), "device 1"));
}

TEST_CASE_FIXTURE(Fixture,
                  "An image too new for the driver is incompatible and names both versions") {
  fake.set_version(12020);
  api = *DriverApi::open(fake.path);
  for (const CUresult result : {kCudaUnsupportedPtxVersion, kCudaInvalidPtx, kCudaInvalidImage}) {
    CAPTURE(result);
    fake.fail("cuLibraryLoadData", result, 1);
    const auto module = load();
    REQUIRE(!module);
    CHECK(module.error().code() == ErrorCode::incompatible);
    CHECK(contains(module.error().message(), "12.2"));
    CHECK(contains(module.error().message(), "13.0"));
  }
}

TEST_CASE_FIXTURE(Fixture, "An image that the driver rejects as invalid is corrupt") {
  fake.fail("cuLibraryLoadData", kCudaInvalidImage, 1);
  const auto module = load();
  REQUIRE(!module);
  CHECK(module.error().code() == ErrorCode::corrupt);
  CHECK(contains(module.error().message(), "CUDA_ERROR_INVALID_IMAGE (200)"));
  CHECK(load());
}

TEST_CASE_FIXTURE(Fixture, "A truncated image never reaches the driver") {
  for (std::size_t size = 0; size < image.size(); ++size) {
    CAPTURE(size);
    const auto module = load(image.substr(0, size), {0});
    REQUIRE(!module);
    CHECK(module.error().code() == ErrorCode::corrupt);
  }
  CHECK(fake.calls("cuLibraryLoadData") == 0);
}

TEST_CASE("What is not an ELF file for CUDA is corrupt") {
  CHECK(check_bounds(std::string(200, 'x')).error().code() == ErrorCode::corrupt);
  std::string host = fake_cubin({"f"});
  host[18] = 62;  // EM_X86_64
  const auto checked = check_bounds(host);
  REQUIRE(!checked);
  CHECK(contains(checked.error().message(), "machine 62"));
}

TEST_CASE("Offsets that overflow are found") {
  std::string image = fake_cubin({"f"});
  const std::uint64_t huge = ~std::uint64_t{0} - 63;
  std::memcpy(image.data() + 40, &huge, sizeof huge);
  CHECK(!check_bounds(image));
}

TEST_CASE("A cubin's target and compiler release are read") {
  const std::string image = fake_cubin({"f"}, 103, "12.9");
  CHECK(image_capability(image) == 103);
  CHECK(image_compiler_release(image) == "12.9");
  std::string old = fake_cubin({"f"}, 0);
  old[8] = 7;  // the ABI up to CUDA 12
  old[48] = 90;
  CHECK(image_capability(old) == 90);
}

TEST_CASE_FIXTURE(Fixture, "A symbol missing from the image is not_found, with both names") {
  const auto module =
      LoadedModule::load(api, image, {{"k<float>", "_Z1kIfE"}}, std::vector{0}, nullptr);
  REQUIRE(!module);
  CHECK(module.error().code() == ErrorCode::not_found);
  CHECK(contains(module.error().message(), "k<float>"));
  CHECK(contains(module.error().message(), "_Z1kIfE"));
}

TEST_CASE_FIXTURE(Fixture,
                  "A variable is looked up in its device's context, which stays as it was") {
  fake.set_devices(2);
  fake.set_global("_ZN2ns1vE", 12);
  const auto module = load({0, 1});
  REQUIRE(module);
  (*module)->set_variables({{"ns::v", "_ZN2ns1vE"}});
  const auto first = (*module)->global("ns::v", 0);
  const auto second = (*module)->global("ns::v", 1);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(first->size_bytes == 12);
  CHECK(first->address != second->address);
  CHECK(fake.current_depth() == 0);
  REQUIRE_FALSE((*module)->global("ns::v", std::nullopt));
  {
    const CurrentContext current(*api, fake.new_context(1));
    const auto here = (*module)->global("ns::v", std::nullopt);
    REQUIRE(here);
    CHECK(here->address == second->address);
  }
  const auto missing = (*module)->global("w", 0);
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code() == ErrorCode::not_found);
  CHECK(contains(missing.error().message(), "its names have ns::v"));
  CHECK((*module)->global("ns::v", 2).error().code() == ErrorCode::invalid_argument);
}

TEST_CASE_FIXTURE(Fixture, "Unknown devices, or none at all, are invalid arguments") {
  for (const std::vector<int>& devices : {std::vector<int>{}, {1}, {-1}, {0, 7}}) {
    const auto module = load(devices);
    REQUIRE(!module);
    CHECK(module.error().code() == ErrorCode::invalid_argument);
  }
  CHECK(contains(load({7}).error().message(), "device 7"));
}

TEST_CASE_FIXTURE(Fixture, "A load while the given stream is captured is refused without effect") {
  int anything = 0;
  const auto stream = reinterpret_cast<Stream>(&anything);
  CHECK(load({0}, stream));
  const auto loads = fake.calls("cuLibraryLoadData");
  for (const int status : {kCaptureActive, kCaptureInvalidated}) {
    fake.set_capture(stream, status);
    const auto module = load({0}, stream);
    REQUIRE(!module);
    CHECK(module.error().code() == ErrorCode::invalid_argument);
    CHECK(contains(module.error().message(), "capture_guard"));
    CHECK(contains(module.error().message(), "preload before the capture"));
    CHECK(!check_not_capturing(*api, stream));
  }
  CHECK(check_not_capturing(*api, nullptr));
  CHECK(fake.calls("cuLibraryLoadData") == loads);
}

TEST_CASE_FIXTURE(Fixture, "A load while the legacy stream reports a capture is refused") {
  fake.set_legacy_capture(1);
  CHECK(check_not_capturing(*api, nullptr));  // no context is current, so there is no legacy stream
  const auto module = load();
  REQUIRE(!module);
  CHECK(module.error().code() == ErrorCode::invalid_argument);
  CHECK(contains(module.error().message(), "legacy"));
  CHECK(fake.calls("cuLibraryLoadData") == 0);
}

TEST_CASE_FIXTURE(Fixture, "A capture in another thread survives loads and unloads") {
  fake.set_devices(3);
  fake.set_foreign_capture(1);  // any call of a thread that is not in relaxed mode would fail
  {
    const auto module = load({0, 1, 2});
    REQUIRE_MESSAGE(module, module.error().message());
  }
  CHECK(fake.libraries() == 0);
  int mode = 0;
  api->call.cuThreadExchangeStreamCaptureMode(&mode);
  CHECK(mode == 0);  // unchanged
}

TEST_CASE_FIXTURE(Fixture, "Modules are loaded from many threads concurrently") {
  fake.set_devices(2);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        if (!load({0, 1})) {
          FAIL_CHECK("a load failed");
        }
      }
    });
  }
  threads.clear();
  CHECK(fake.libraries() == 0);
  CHECK(fake.retained(0) == 0);
}

}  // namespace
}  // namespace cukiln
