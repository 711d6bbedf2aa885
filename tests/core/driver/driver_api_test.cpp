// SPDX-License-Identifier: Apache-2.0
#include "core/driver/driver_api.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

#include "core/driver/module.hpp"
#include "support/fake_cuda.hpp"
#include "support/paths.hpp"

namespace cukiln {
namespace {

using testing::FakeCuda;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("A missing driver is not_found, with the dynamic linker's message and what still works") {
  const auto api = DriverApi::open("/nonexistent/libcuda.so.1");
  REQUIRE(!api);
  CHECK(api.error().code() == ErrorCode::not_found);
  CHECK(contains(api.error().message(), "can be compiled"));
  CHECK(contains(api.error().message(), "/nonexistent/libcuda.so.1"));
  CHECK(contains(api.error().message(), "install the NVIDIA driver"));
}

TEST_CASE("A library without the driver's functions is incompatible") {
  const auto api = DriverApi::open("libm.so.6");
  REQUIRE(!api);
  CHECK(api.error().code() == ErrorCode::incompatible);
  CHECK(contains(api.error().message(), "cuInit"));
}

// fault 336
TEST_CASE("A driver without a function is too old, or is not NVIDIA's") {
  const auto message = [](const char* version) {
    ::setenv("FAKE_CUDA_PARTIAL_VERSION", version, 1);
    const auto api = DriverApi::open(testing::bin() + "/libcuda_fake_partial.so");
    REQUIRE(!api);
    CHECK(api.error().code() == ErrorCode::incompatible);
    return api.error().message();
  };
  CHECK(contains(message("11080"), "for CUDA 11.8, expected 12.0 or later; update the NVIDIA"));
  CHECK(contains(message("13050"), "says that it is for CUDA 13.5, and has no "));
  CHECK_FALSE(contains(message("13050"), "update"));
}

TEST_CASE("The driver is initialised once and knows its version") {
  FakeCuda fake;
  fake.set_version(12040);
  const auto api = DriverApi::open(fake.path);
  REQUIRE(api);
  CHECK((*api)->version == 12040);
  CHECK((*api)->version_text() == "12.4");
  CHECK(fake.calls("cuInit") == 1);
}

TEST_CASE("Functions that older drivers lack are optional") {
  FakeCuda fake("libcuda_fake_old.so");
  const auto api = DriverApi::open(fake.path);
  REQUIRE(api);
  const bool has_param_info = (*api)->call.cuKernelGetParamInfo != nullptr;
  const bool has_func_load = (*api)->call.cuFuncLoad != nullptr;
  CHECK(!has_param_info);
  CHECK(!has_func_load);
}

TEST_CASE("A failing cuInit is reported with the driver's error and advice") {
  FakeCuda fake;
  fake.fail("cuInit", kCudaNoDevice, -1);
  const auto api = DriverApi::open(fake.path);
  REQUIRE(!api);
  CHECK(api.error().code() == ErrorCode::driver);
  CHECK(contains(api.error().message(), "CUDA_ERROR_NO_DEVICE (100)"));
  CHECK(contains(api.error().message(), "CUDA_VISIBLE_DEVICES"));
}

TEST_CASE("An error that the driver cannot name is reported by number") {
  FakeCuda fake;
  const auto api = DriverApi::open(fake.path);
  REQUIRE(api);
  CHECK((*api)->describe(31337) == "CUDA error 31337");
  CHECK((*api)->describe(200) == "CUDA_ERROR_INVALID_IMAGE (200): device kernel image is invalid");
}

TEST_CASE("Devices are listed with their capability") {
  FakeCuda fake;
  fake.set_devices(3);
  fake.set_capability(0, 86);
  fake.set_capability(1, 90);
  fake.set_capability(2, 100);
  const auto api = DriverApi::open(fake.path);
  REQUIRE(api);
  const auto devices = list_devices(**api);
  REQUIRE(devices);
  REQUIRE(devices->size() == 3);
  CHECK((*devices)[1].ordinal == 1);
  CHECK((*devices)[1].name == "Fake GPU 1");
  CHECK((*devices)[1].memory_bytes == std::uint64_t{80} << 30);
  CHECK((*devices)[1].num_sms == 148);
  CHECK(target_of((*devices)[0]) == Target{86, 0});
  CHECK(target_of((*devices)[1]) == Target{90, 'a'});
  CHECK(target_of((*devices)[2]) == Target{100, 'a'});
}

TEST_CASE("No device is an empty list, a failing query an error") {
  FakeCuda fake;
  const auto api = DriverApi::open(fake.path);
  REQUIRE(api);
  fake.set_devices(0);
  auto devices = list_devices(**api);
  REQUIRE(devices);
  CHECK(devices->empty());
  fake.set_devices(1);
  fake.fail("cuDeviceGetName", 999, -1);
  devices = list_devices(**api);
  REQUIRE(!devices);
  CHECK(devices.error().code() == ErrorCode::driver);
  CHECK(contains(devices.error().message(), "device 0"));
}

}  // namespace
}  // namespace cukiln
