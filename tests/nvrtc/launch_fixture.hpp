// SPDX-License-Identifier: Apache-2.0
#pragma once

// Launchers of shipped kernels, those compiled by the real NVRTC, on a driver that runs nothing and
// tells what it was given.

#include <cstdint>

#include <doctest/doctest.h>

#include "support/fake_cuda.hpp"
#include "support/loader_fixture.hpp"

#include <cukiln/nvfp4.hpp>

namespace cukiln::testing {

/// Addresses that are never dereferenced.
template <class T>
T* address(std::uintptr_t value) {
  return reinterpret_cast<T*>(value);
}

/// A loader for one device.
struct LaunchFixture : LoaderFixture {
  explicit LaunchFixture(int capability) : opened(open(options_for(capability))) {}
  ~LaunchFixture() {
    using Pop = CUresult (*)(CUcontext*);
    CUcontext context = nullptr;
    reinterpret_cast<Pop>(dlsym(fake.handle, "cuCtxPopCurrent_v2"))(&context);
  }
  LaunchFixture(const LaunchFixture&) = delete;
  LaunchFixture& operator=(const LaunchFixture&) = delete;

  /// What `create` of a launcher made, in a thread without a context; one of the device's is
  /// current then.
  template <class Launcher>
  Launcher made() const {
    auto launcher = Launcher::create(opened.loader);
    if (!launcher) {
      FAIL(launcher.error().message() << "\n" << launcher.error().log());
    }
    using Push = CUresult (*)(CUcontext);
    REQUIRE(reinterpret_cast<Push>(dlsym(fake.handle, "cuCtxPushCurrent_v2"))(
                fake.new_context(0)) == 0);
    return *launcher;
  }

  FakeCuda fake;
  Opened opened;

 private:
  LoaderOptions options_for(int capability) {
    fake.set_capability(0, capability);
    fake.read_parameters(1);
    LoaderOptions options = loader_options();
    options.cuda_library = fake.path;
    return options;
  }
};

struct GemmFixture : LaunchFixture {
  explicit GemmFixture(int capability) : LaunchFixture(capability) {}

  Result<void> launch(std::int64_t m, std::int64_t n, std::int64_t k,
                      const std::uint16_t* bias = nullptr) const {
    return gemm.launch(nullptr, output, a, b, bias, m, n, k, nullptr);
  }

  nvfp4::Gemm gemm = made<nvfp4::Gemm>();
  nvfp4::Matrix a{address<std::uint8_t>(0x10000), address<std::uint8_t>(0x20000),
                  address<float>(0x30000)};
  nvfp4::Matrix b{address<std::uint8_t>(0x40000), address<std::uint8_t>(0x50000),
                  address<float>(0x60000)};
  std::uint16_t* output = address<std::uint16_t>(0x70000);
};

}  // namespace cukiln::testing
