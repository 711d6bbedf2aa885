// SPDX-License-Identifier: Apache-2.0
#pragma once

// Launchers of shipped kernels, compiled by the real NVRTC, on a fake driver that runs nothing and
// records what it was given.

#include <cstdint>

#include <doctest/doctest.h>

#include "support/fake_cuda.hpp"
#include "support/loader_fixture.hpp"

#include <cukiln/nvfp4/nvfp4.hpp>

namespace cukiln::testing {

/// Addresses that are never dereferenced.
template <class T>
T* address(std::uintptr_t value) {
  return reinterpret_cast<T*>(value);
}

/// A loader for one device.
struct LaunchFixture : LoaderFixture {
  explicit LaunchFixture(int capability, int num_sms = 148)
      : opened(open(store_options(), options_for(capability, num_sms))) {}
  ~LaunchFixture() {
    using Pop = CUresult (*)(CUcontext*);
    const auto pop = reinterpret_cast<Pop>(dlsym(fake.handle, "cuCtxPopCurrent_v2"));
    CUcontext context = nullptr;
    for (; pushed > 0; --pushed) pop(&context);
  }
  LaunchFixture(const LaunchFixture&) = delete;
  LaunchFixture& operator=(const LaunchFixture&) = delete;

  /// The store of all launch fixtures of this process, so that each module is compiled once. What a
  /// test puts there besides, it removes.
  static StoreOptions store_options() {
    static const ScratchFolder folder;
    StoreOptions options;
    options.directory = folder / "store";
    options.system_directory.clear();
    return options;
  }

  /// Creates a launcher in a thread without a context, and then makes one of the device current.
  template <class Launcher>
  Launcher made() const {
    auto launcher = Launcher::create(opened.loader, 0);
    if (!launcher) {
      FAIL(launcher.error().message() << "\n" << launcher.error().log());
    }
    using Push = CUresult (*)(CUcontext);
    REQUIRE(reinterpret_cast<Push>(dlsym(fake.handle, "cuCtxPushCurrent_v2"))(
                fake.new_context(0)) == 0);
    ++pushed;
    return *launcher;
  }

  FakeCuda fake;
  Opened opened;
  mutable int pushed = 0;  ///< contexts, by `made`

 private:
  LoaderOptions options_for(int capability, int num_sms) {
    fake.set_capability(0, capability);
    fake.set_num_sms(num_sms);
    fake.read_parameters(1);
    LoaderOptions options = loader_options();
    options.cuda_library = fake.path;
    return options;
  }
};

inline nvfp4::GemmOptions with_tactic(int tactic) {
  nvfp4::GemmOptions options;
  options.tactic = tactic;
  return options;
}

/// What the launches of W4A4 and of W4A16 have in common. `Gemm`: the launcher.
template <class Gemm>
struct GemmFixtureOf : LaunchFixture {
  explicit GemmFixtureOf(int capability) : LaunchFixture(capability) {}

  Gemm gemm = made<Gemm>();
  nvfp4::QuantizedMatrix b{address<std::uint8_t>(0x40000), address<std::uint8_t>(0x50000),
                           address<nvfp4::GlobalScale>(0x60000)};
  std::uint16_t* output = address<std::uint16_t>(0x70000);
  nvfp4::Workspace workspace;
};

struct GemmFixture : GemmFixtureOf<nvfp4::Gemm> {
  using GemmFixtureOf::GemmFixtureOf;
  static constexpr const char* kFamily = "nvfp4_gemm";
  static constexpr const char* kOtherFamily = "nvfp4_w4a16_gemm";

  Result<void> launch(std::int64_t m, std::int64_t n, std::int64_t k,
                      const nvfp4::GemmOptions& options = {}) {
    a.rows = m;
    b.rows = n;
    a.columns = b.columns = k;
    return gemm.launch(nullptr, {DataType::bf16, output, m, n}, a, b, workspace, options);
  }

  nvfp4::QuantizedMatrix a{address<std::uint8_t>(0x10000), address<std::uint8_t>(0x20000),
                           address<nvfp4::GlobalScale>(0x30000)};
};

struct W4a16Fixture : GemmFixtureOf<nvfp4::W4a16Gemm> {
  using GemmFixtureOf::GemmFixtureOf;
  static constexpr const char* kFamily = "nvfp4_w4a16_gemm";
  static constexpr const char* kOtherFamily = "nvfp4_gemm";

  /// `gap`: between rows of A.
  Result<void> launch(std::int64_t m, std::int64_t n, std::int64_t k,
                      const nvfp4::GemmOptions& options = {}, std::int64_t gap = 8) {
    b.rows = n;
    b.columns = k;
    return gemm.launch(nullptr, {DataType::bf16, output, m, n},
                       {DataType::bf16, tokens, m, k, k + gap}, b, workspace, options);
  }

  std::uint16_t* tokens = address<std::uint16_t>(0x10000);
};

}  // namespace cukiln::testing
