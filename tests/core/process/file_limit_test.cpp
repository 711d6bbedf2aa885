// SPDX-License-Identifier: Apache-2.0
// Hosts with a limit on the sizes of their files, and the default action of SIGXFSZ: to end.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <string>

#include "core/base/file.hpp"
#include "core/base/file_size_limit.hpp"
#include "support/forked.hpp"
#include "support/loader_fixture.hpp"

using namespace cukiln;
using cukiln::testing::status_of_child;

namespace {

void limit_files(rlim_t bytes) {
  const rlimit both{bytes, bytes};
  ::setrlimit(RLIMIT_FSIZE, &both);
  ::signal(SIGXFSZ, SIG_DFL);
}

struct Fixture : testing::LoaderFixture {
  /// Compiles modules, the first of them twice, puts a blob, and closes the store. Returns 0, or
  /// the number of the step that failed: none may, with or without a store.
  int use_store(int modules) const {
    auto store = Store::open(store_options());
    if (!store) return 1;
    auto loader = KernelLoader::create(*store, fake_options());
    if (!loader) return 2;
    for (int i = 0; i <= modules; ++i) {
      ModuleSpec module = spec(source, {{90, 'a'}});
      module.define["N"] = std::to_string(i % modules);
      const auto compiled = loader->compile(module);
      if (!compiled || compiled->front().error) return 3;
    }
    return 0;
  }

  std::string source = scratch.write("k.cu", "__global__ void k() {}\n");
};

}  // namespace

// fault 341
TEST_CASE_FIXTURE(Fixture,
                  "a limit on file sizes ends no host: a new store, an old one, and hits") {
  const auto run = [&](rlim_t limit, int modules) {
    CAPTURE(limit);
    CAPTURE(modules);
    CHECK(status_of_child([&] {
            limit_files(limit);
            return use_store(modules);
          }) == 0);
  };
  for (const rlim_t limit : {0u, 4096u, 30'000u, 100'000u, 1u << 20, 3u << 20}) {
    std::filesystem::remove_all(scratch / "store");
    run(limit, 2);  // creates the store
    run(limit, 3);
    REQUIRE(status_of_child([&] { return use_store(6); }) == 0);  // without a limit
    run(limit, 6);                                                // hits
    run(limit, 8);
  }
}

// fault 341
TEST_CASE("a signal that the host blocks stays pending, and one of a guarded write does not") {
  const testing::ScratchFolder folder;
  const auto write_beyond = [&] {
    const std::string path = folder.write("a", "0123456789");
    return write_file_atomically(path, std::string(100, 'x')).has_value();
  };
  const auto is_pending = [] {
    sigset_t pending;
    ::sigpending(&pending);
    return ::sigismember(&pending, SIGXFSZ) == 1;
  };
  CHECK(status_of_child([&] {
          limit_files(50);
          sigset_t signal;
          ::sigemptyset(&signal);
          ::sigaddset(&signal, SIGXFSZ);
          if (write_beyond()) return 1;
          ::pthread_sigmask(SIG_BLOCK, &signal, nullptr);
          if (write_beyond() || is_pending()) return 2;
          ::raise(SIGXFSZ);
          return !write_beyond() && is_pending() ? 0 : 3;
        }) == 0);
}
