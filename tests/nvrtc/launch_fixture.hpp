#pragma once

// Gemm, its kernels compiled by the real NVRTC, on a driver that runs nothing and tells what it was
// given.

#include <cstdint>

#include <doctest/doctest.h>

#include "support/fake_cuda.hpp"
#include "support/loader_fixture.hpp"

#include <cukiln/nvfp4.hpp>

namespace cukiln::testing {

template <class T>
T* address(std::uintptr_t value) {
  return reinterpret_cast<T*>(value);
}

struct GemmFixture : LoaderFixture {
  explicit GemmFixture(int capability) {
    fake.set_capability(0, capability);
    fake.read_parameters(1);
    LoaderOptions options = loader_options();
    options.cuda_library = fake.path;
    opened = open(options);
    auto made = nvfp4::Gemm::create(*opened.loader);
    if (!made) {
      FAIL(made.error().message() << "\n" << made.error().log());
    }
    gemm = *made;
    push(fake.new_context(0));
  }
  ~GemmFixture() {
    CUcontext context = nullptr;
    reinterpret_cast<CUresult (*)(CUcontext*)>(dlsym(fake.handle, "cuCtxPopCurrent_v2"))(&context);
  }
  void push(CUcontext context) const {
    REQUIRE(reinterpret_cast<CUresult (*)(CUcontext)>(dlsym(fake.handle, "cuCtxPushCurrent_v2"))(
                context) == 0);
  }
  Result<void> launch(std::int64_t m, std::int64_t n, std::int64_t k,
                      const std::uint16_t* bias = nullptr) const {
    return gemm.launch(nullptr, output, a, b, bias, m, n, k, nullptr);
  }
  FakeCuda fake;
  Opened opened;
  nvfp4::Gemm gemm;
  nvfp4::Matrix a{address<std::uint8_t>(0x10000), address<std::uint8_t>(0x20000),
                  address<float>(0x30000)};
  nvfp4::Matrix b{address<std::uint8_t>(0x40000), address<std::uint8_t>(0x50000),
                  address<float>(0x60000)};
  std::uint16_t* output = address<std::uint16_t>(0x70000);
};

}  // namespace cukiln::testing
