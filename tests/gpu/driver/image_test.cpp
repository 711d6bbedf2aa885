// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include <doctest/doctest.h>

#include "core/driver/module.hpp"
#include "gpu/support/test_loader.hpp"

namespace cukiln {
namespace {

using testing::Device;
using testing::TestLoader;

constexpr const char* kNothing = R"(extern "C" __global__ void nothing() {})";

Result<std::shared_ptr<LoadedModule>> load(const std::string& image,
                                           const char* symbol = "nothing") {
  return LoadedModule::load(Device::first().api(), image, {{"nothing", symbol}}, std::vector{0},
                            nullptr);
}

Target own_target() { return target_of({0, "", Device::first().capability(), 0}); }

TEST_CASE("A cubin for the device's own target loads, again and again") {
  TestLoader loader;
  const std::string image = loader.cubin("nothing", kNothing, own_target());
  for (int i = 0; i < 20; ++i) {
    const auto module = load(image);
    REQUIRE_MESSAGE(module, module.error().message());
    CHECK((*module)->kernels().front().launch(nullptr, {}, nullptr));
    Device::first().synchronize();
  }
}

TEST_CASE("A cubin for another architecture is incompatible and names both") {
  TestLoader loader;
  const Target other = own_target() == Target{100, 'a'} ? Target{90, 'a'} : Target{100, 'a'};
  const auto module = load(loader.cubin("nothing", kNothing, other));
  REQUIRE(!module);
  MESSAGE(module.error().message());
  CHECK(module.error().code() == ErrorCode::incompatible);
  CHECK(module.error().message().find("sm_" + std::to_string(other.capability)) !=
        std::string::npos);
}

TEST_CASE("A damaged cubin is corrupt, and the next good one loads") {
  TestLoader loader;
  const std::string image = loader.cubin("nothing", kNothing, own_target());
  std::string no_sections = image;
  std::memset(no_sections.data() + 56, 0, 2);  // e_phnum
  std::memset(no_sections.data() + 60, 0, 2);  // e_shnum
  for (const std::string& damaged :
       {no_sections, image.substr(0, image.size() / 2), std::string(4096, '\0'), std::string()}) {
    const auto module = load(damaged);
    REQUIRE(!module);
    MESSAGE(module.error().message());
    CHECK(module.error().code() == ErrorCode::corrupt);
  }
  CHECK(load(image));
}

TEST_CASE("A symbol that is not in the image is not_found") {
  TestLoader loader;
  const auto module = load(loader.cubin("nothing", kNothing, own_target()), "something");
  REQUIRE(!module);
  CHECK(module.error().code() == ErrorCode::not_found);
}

}  // namespace
}  // namespace cukiln
