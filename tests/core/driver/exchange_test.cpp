// SPDX-License-Identifier: Apache-2.0
#include <cukiln/kernel.hpp>

#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/driver/module.hpp"
#include "support/fake_cuda.hpp"

namespace cukiln {
namespace {

using testing::fake_cubin;
using testing::FakeCuda;

constexpr std::uint32_t kReserved = 100'000;

// scale(float* data, float factor) and add(float* data), on device 0, whose context is current.
struct Fixture {
  explicit Fixture(const char* library = "libcuda_fake.so", int version = 13000) : fake(library) {
    fake.set_version(version);
    set_parameters("scale", {8, 4});
    set_parameters("add", {8});
    auto opened = DriverApi::open(fake.path);
    REQUIRE(opened);
    api = *std::move(opened);
    module = load({"scale", "add"});
    kernel = module->kernels().front();
    REQUIRE(api->call.cuCtxPushCurrent(fake.new_context(0)) == 0);
  }
  ~Fixture() {
    CUcontext context = nullptr;
    api->call.cuCtxPopCurrent(&context);
  }
  void set_parameters(const char* name, const std::vector<std::size_t>& sizes) const {
    fake.set_parameters(name, sizes.data(), sizes.size());
  }
  std::shared_ptr<LoadedModule> load(const std::vector<std::string>& names,
                                     const std::vector<int>& devices = {0}) const {
    std::vector<LoadedModule::KernelName> kernels;
    for (const std::string& name : names) {
      kernels.push_back({name, name});
    }
    auto loaded = LoadedModule::load(api, fake_cubin(names), kernels, devices, nullptr);
    REQUIRE(loaded);
    return *std::move(loaded);
  }
  int attribute(const Kernel& of, int id, int device = 0) const {
    int value = -1;
    CHECK(api->call.cuKernelGetAttribute(&value, id, of.native(), device) == 0);
    return value;
  }
  /// The message of an exchange that must be refused and change nothing.
  std::string refusal(const LoadedModule& next, ErrorCode code = ErrorCode::incompatible) const {
    CUkern_st* const before = kernel.native();
    const auto exchanged = module->exchange(next);
    REQUIRE_FALSE(exchanged.has_value());
    CHECK(exchanged.error().code() == code);
    CHECK(kernel.native() == before);
    return exchanged.error().message();
  }

  FakeCuda fake;
  std::shared_ptr<const DriverApi> api;
  std::shared_ptr<LoadedModule> module;
  Kernel kernel;
};

struct OldDriver : Fixture {
  OldDriver() : Fixture("libcuda_fake_old.so", 12030) {}
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE_FIXTURE(Fixture, "A handle launches the function that took the place of its own") {
  const auto next = load({"add", "scale", "more"});  // another order, and one more
  CUkern_st* const own = kernel.native();
  REQUIRE(module->exchange(*next));
  CHECK(kernel.native() == next->kernels()[1].native());
  float* data = nullptr;
  float factor = 2;
  void* arguments[] = {&data, &factor};
  LaunchConfig config{{1}, {32}};
  for (const bool extended : {false, true}) {
    config.cooperative = extended;
    REQUIRE(kernel.launch(nullptr, config, arguments));
    CHECK(fake.last_launch().image == fake.image(next->kernels()[1].native()));
  }
  CHECK(kernel.attributes(0));
  REQUIRE(module->exchange(*module));
  CHECK(kernel.native() == own);
}

TEST_CASE_FIXTURE(Fixture, "A kernel that is gone, or has other parameters, is refused") {
  CHECK(contains(refusal(*load({"scale"})), "the kernel add is gone"));
  set_parameters("scale", {8, 8});
  CHECK(contains(refusal(*load({"scale", "add"})),
                 "scale has parameters of 8, 8 bytes now; expected 8, 4 bytes"));
  set_parameters("scale", {8, 4, 4});
  CHECK(contains(refusal(*load({"scale", "add"})), "8, 4, 4 bytes now"));
}

TEST_CASE_FIXTURE(OldDriver, "Parameters that the driver does not report are refused") {
  CHECK(contains(refusal(*load({"scale", "add"})), "expected one for 12.4 or later"));
}

TEST_CASE_FIXTURE(Fixture, "What was set on a function is set on the one that takes its place") {
  fake.set_devices(2);
  module = load({"scale", "add"}, {0, 1});
  kernel = module->kernels().front();
  REQUIRE(kernel.reserve_shared(kReserved));
  constexpr int kHostsOwn[] = {kKernelSharedCarveout, kKernelNonPortableCluster,
                               kKernelClusterScheduling};
  for (const int id : kHostsOwn) {
    REQUIRE(api->call.cuKernelSetAttribute(id, id, kernel.native(), 1) == 0);
  }
  const auto next = load({"scale", "add"}, {0, 1});
  const auto third = load({"scale", "add"}, {0, 1});
  REQUIRE(module->exchange(*next));
  CHECK(attribute(kernel, kKernelMaxDynamicShared) == static_cast<int>(kReserved));
  for (const int id : kHostsOwn) {
    CHECK(attribute(kernel, id, 0) == 0);
    CHECK(attribute(kernel, id, 1) == id);
  }
  CHECK(attribute(module->kernels()[1], kKernelMaxDynamicShared) == 48 * 1024 - 1024);
  REQUIRE(module->exchange(*third));
  CHECK(attribute(kernel, kKernelMaxDynamicShared) == static_cast<int>(kReserved));
  // Other handles may launch the one that takes its place with what was reserved for them.
  REQUIRE(next->kernels().front().reserve_shared(2 * kReserved));
  REQUIRE(module->exchange(*next));
  CHECK(attribute(kernel, kKernelMaxDynamicShared) == 2 * static_cast<int>(kReserved));
}

TEST_CASE_FIXTURE(Fixture, "A cluster's size, which the source may have set, is not carried over") {
  REQUIRE(api->call.cuKernelSetAttribute(kKernelClusterWidth, 2, kernel.native(), 0) == 0);
  const auto next = load({"scale", "add"});
  REQUIRE(module->exchange(*next));
  CHECK(attribute(kernel, kKernelClusterWidth) == 0);
}

TEST_CASE_FIXTURE(Fixture, "A limit that the next function may not have is an error") {
  REQUIRE(kernel.reserve_shared(kReserved));
  const auto next = load({"scale", "add"});
  fake.fail("cuKernelSetAttribute", 1, 1);
  CHECK(contains(refusal(*next, ErrorCode::driver), "setting attribute 8 of the new scale"));
  REQUIRE(module->exchange(*next));
}

TEST_CASE_FIXTURE(Fixture, "A module whose variable a host has the address of stays") {
  fake.set_global("table", 80);
  const auto next = load({"scale", "add"});
  REQUIRE(module->exchange(*next));
  const auto table = module->global("table", 0);
  REQUIRE(table);
  CHECK(table->address == next->global("table", 0)->address);
  CHECK(contains(refusal(*module), "address of a variable"));
}

}  // namespace
}  // namespace cukiln
