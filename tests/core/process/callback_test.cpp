// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <string>

#include "support/loader_fixture.hpp"

using namespace cukiln;
using cukiln::testing::without_load;

namespace {

struct Fixture : testing::LoaderFixture {
  static LoaderOptions options() {
    LoaderOptions options = fake_options();
    options.jobs = 3;
    return options;
  }
  Manifest modules(int count) const {
    const std::string source = scratch.write("k.cu", "__global__ void k() {}\n");
    Manifest manifest;
    for (int i = 0; i < count; ++i) {
      ModuleSpec module = spec(source, {{90, 'a'}});
      module.define["N"] = std::to_string(i);
      manifest.add(std::move(module));
    }
    return manifest;
  }
};

}  // namespace

// fault 96
TEST_CASE_FIXTURE(Fixture,
                  "a progress callback that throws is logged once, not called again, and fails no "
                  "module") {
  for (const bool is_exception : {true, false}) {
    CAPTURE(is_exception);
    std::atomic<int> logged{0};
    LoaderOptions with_log = options();
    with_log.log = [&](LogLevel level, std::string_view message) {
      logged +=
          level == LogLevel::warn && message.find("progress") != std::string_view::npos ? 1 : 0;
    };
    StoreOptions store = store_options();
    store.directory += is_exception ? "1" : "2";
    const Opened opened = open(store, with_log);
    std::atomic<int> calls{0};
    const auto throws = [&](std::size_t, std::size_t, const ModuleReport&) {
      ++calls;
      if (is_exception) throw std::runtime_error("the host's own trouble");
      throw 42;
    };
    const auto report =
        opened->preload(modules(8), without_load(), throws);  // calls it in its threads
    REQUIRE(report);
    CHECK(report->compiled == 8);
    CHECK(calls == 1);
    CHECK(logged == 1);
    const auto again = opened->preload(modules(8), without_load(), throws);  // hits: in this thread
    REQUIRE(again);
    CHECK(again->hits == 8);
    CHECK(calls == 2);
  }
}

// fault 96
TEST_CASE_FIXTURE(Fixture, "a log sink that throws loses its message and nothing else") {
  std::atomic<int> calls{0};
  StoreOptions store = store_options();
  LoaderOptions with_log = options();
  with_log.log = store.log = [&](LogLevel, std::string_view) {
    ++calls;
    throw std::runtime_error("no room for a log");
  };
  with_log.record = scratch / "is not there";  // what cannot be recorded is logged
  const Opened opened = open(store, with_log);
  const auto report = opened->preload(modules(4), without_load());
  REQUIRE(report);
  CHECK(report->compiled == 4);
  CHECK(calls > 0);
}
