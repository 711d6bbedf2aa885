// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "support/paths.hpp"
#include "support/scratch.hpp"

#include <cukiln/cukiln.hpp>

namespace cukiln::testing {

/// A loader over a store in a scratch folder, with this machine's NVRTC.
struct LoaderFixture {
  ScratchFolder scratch;

  StoreOptions store_options() const {
    StoreOptions options;
    options.directory = scratch / "store";
    options.system_directory.clear();
    return options;
  }

  static LoaderOptions loader_options() {
    Settings settings = *Settings::load();
    settings.loader.worker = kTestWorker;
    settings.loader.log = nullptr;
    return settings.loader;
  }

  /// With another libcuda, such as a FakeCuda's.
  static LoaderOptions with_driver(const std::string& library) {
    LoaderOptions options = loader_options();
    options.cuda_library = library;
    return options;
  }

  /// With fakes of NVRTC and of the driver.
  static LoaderOptions fake_options() {
    LoaderOptions options;
    options.nvrtc_library = bin() + "/libnvrtc_fake.so";
    options.cuda_library = bin() + "/libcuda_fake.so";
    options.worker = bin() + "/cukiln-compile-worker";
    return options;
  }

  struct Opened {
    mutable Store store;
    mutable KernelLoader loader;
    KernelLoader* operator->() const { return &loader; }
  };

  Opened open(LoaderOptions options = loader_options()) const {
    return open(store_options(), options);
  }
  static Opened open(const StoreOptions& store_options, LoaderOptions options = loader_options()) {
    auto store = Store::open(store_options);
    REQUIRE(store);
    auto loader = KernelLoader::create(*store, std::move(options));
    REQUIRE(loader);
    return {*std::move(store), *std::move(loader)};
  }

  static ModuleSpec spec(const std::string& path, std::vector<Target> targets = {{100, 'a'}}) {
    ModuleSpec module;
    module.sources = {SourceFile{path}};
    module.targets = std::move(targets);
    return module;
  }
};

inline PreloadOptions without_load() {
  PreloadOptions options;
  options.load = false;
  return options;
}

/// The only report of a compile that must succeed.
inline ModuleReport only(const Result<std::vector<ModuleReport>>& reports) {
  REQUIRE(reports);
  REQUIRE(reports->size() == 1);
  if (reports->front().error) {
    FAIL(reports->front().error->message() << "\n" << reports->front().error->log());
  }
  return reports->front();
}

}  // namespace cukiln::testing
