// SPDX-License-Identifier: Apache-2.0
#pragma once

// A KernelLoader for GPU tests: a store in memory, compilers and driver where the environment says
// (CUKILN_NVRTC_LIBRARY, CUKILN_WORKER, …), and device 0's primary context current.
//
//     testing::TestLoader loader;
//     Kernel scale = loader.get("scale", R"(extern "C" __global__ void scale(…) {…})");

#include <optional>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "gpu/support/device.hpp"

#include <cukiln/loader.hpp>
#include <cukiln/settings.hpp>

namespace cukiln::testing {

/// One module of one source in memory.
inline ModuleSpec module_of(const std::string& name, const std::string& text) {
  ModuleSpec spec;
  spec.name = name;
  spec.sources.push_back(SourceText{name + ".cu", text});
  return spec;
}

class TestLoader {
 public:
  TestLoader() {
    Device::first();
    auto settings = Settings::load();
    REQUIRE_MESSAGE(settings, settings.error().message());
    settings->store.memory_only = true;
    settings->store.system_directory.clear();
    auto store = Store::open(settings->store);
    REQUIRE_MESSAGE(store, store.error().message());
    store_ = *std::move(store);
    auto loader = KernelLoader::create(*store_, settings->loader);
    REQUIRE_MESSAGE(loader, loader.error().message());
    loader_ = *std::move(loader);
  }

  KernelLoader& operator*() noexcept { return *loader_; }
  KernelLoader* operator->() noexcept { return &*loader_; }

  /// The kernel `name` of `text`; a failure ends the test case with the compiler's log.
  Kernel get(const std::string& name, const std::string& text) {
    auto kernel = loader_->get(module_of(name, text), name);
    REQUIRE_MESSAGE(kernel, kernel.error().message(), "\n", kernel.error().log());
    return *kernel;
  }

  /// The cubin of `text` for `target`, not loaded.
  std::string cubin(const std::string& name, const std::string& text, Target target) {
    ModuleSpec spec = module_of(name, text);
    spec.targets = {target};
    auto reports = loader_->compile(spec);
    REQUIRE_MESSAGE(reports, reports.error().message());
    REQUIRE(reports->size() == 1);
    const std::optional<Error>& error = reports->front().error;
    REQUIRE_MESSAGE(!error, error->message());
    auto bytes = loader_->cubin(reports->front().key);
    REQUIRE_MESSAGE(bytes, bytes.error().message());
    return *std::move(bytes);
  }

 private:
  std::optional<Store> store_;
  std::optional<KernelLoader> loader_;
};

}  // namespace cukiln::testing
