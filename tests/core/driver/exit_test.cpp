// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "core/driver/module.hpp"
#include "support/fake_cuda.hpp"

namespace cukiln {
namespace {

// The test below runs this in a process of its own.
TEST_CASE("exits while threads load" * doctest::skip()) {
  auto* const fake = new testing::FakeCuda();  // never destroyed, like a host's static object
  fake->set_devices(4);
  auto api = DriverApi::open(fake->path);
  REQUIRE(api);
  for (int i = 0; i < 4; ++i) {
    std::thread([api = *api] {
      const std::string image = testing::fake_cubin({"k"});
      for (;;) {
        const auto module =
            LoadedModule::load(api, image, {{"k", "k"}}, std::vector{0, 1, 2, 3}, nullptr);
        if (module) {
          (*module)->kernels().front().name();
        }
      }
    }).detach();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  std::exit(0);
}

// fault 80
TEST_CASE("A process may exit while its threads load kernels") {
  std::string self(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", self.data(), self.size());
  REQUIRE(length > 0);
  self.resize(static_cast<std::size_t>(length));
  // Memory of an interrupted load is not a leak.
  const std::string command =
      "TSAN_OPTIONS=\"$TSAN_OPTIONS report_thread_leaks=0\" "
      "ASAN_OPTIONS=\"$ASAN_OPTIONS:detect_leaks=0\" '" +
      self + "' --no-skip --test-case='exits while threads load' >/dev/null";
  for (int i = 0; i < 10; ++i) {
    const int status = std::system(command.c_str());
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == 0);
  }
}

}  // namespace
}  // namespace cukiln
