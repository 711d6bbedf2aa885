// SPDX-License-Identifier: Apache-2.0
#pragma once

// A loader for tests of the shipped kernels: a store in memory, NVRTC where the environment says.

#include <doctest/doctest.h>

#include <cukiln/loader.hpp>
#include <cukiln/settings.hpp>

#include "gpu/support/device.hpp"

namespace cukiln::testing {

/// One a process, device 0's context current. An error ends the test case.
inline KernelLoader& shipped_loader() {
  struct Holder {
    Store store;
    KernelLoader loader;
  };
  Device::first();
  static Holder holder = [] {
    auto settings = Settings::load();
    REQUIRE_MESSAGE(settings, settings.error().message());
    settings->store.memory_only = true;
    auto store = Store::open(settings->store);
    REQUIRE_MESSAGE(store, store.error().message());
    auto loader = KernelLoader::create(*store, settings->loader);
    REQUIRE_MESSAGE(loader, loader.error().message());
    return Holder{*std::move(store), *std::move(loader)};
  }();
  return holder.loader;
}

/// Creates a launcher for device 0.
template <class Launcher, class... Args>
Launcher create(Args... args) {
  auto made = Launcher::create(shipped_loader(), 0, args...);
  REQUIRE_MESSAGE(made, made.error().message(), "\n", made.error().log());
  return *std::move(made);
}

inline void require_ok(const Result<void>& result) {
  REQUIRE_MESSAGE(result, result.error().message());
}

/// The message of an error, which must be invalid_argument.
inline std::string refusal(const Result<void>& result) {
  REQUIRE_FALSE(result.has_value());
  CHECK(result.error().code() == ErrorCode::invalid_argument);
  return result.error().message();
}

}  // namespace cukiln::testing
