// SPDX-License-Identifier: Apache-2.0
// NVRTC is updated in place while a process runs that has it in use.
#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <string>

#include "support/loader_fixture.hpp"
#include "support/paths.hpp"
#include "support/wait.hpp"

using namespace cukiln;

namespace {

/// The number of the last process that the script started.
pid_t last_of(const std::string& file) {
  const std::string text = testing::read_all(file);
  const std::size_t line = text.find_last_of('\n', text.size() - 2);
  return static_cast<pid_t>(std::stol(text.substr(line == std::string::npos ? 0 : line + 1)));
}

}  // namespace

// fault 346
TEST_CASE_FIXTURE(testing::LoaderFixture,
                  "a compile goes on with the NVRTC that replaced its own") {
  const std::string started = scratch / "started";
  const std::string library = scratch / "libnvrtc.so.13";
  std::filesystem::copy_file(testing::bin() + "/libnvrtc_fake.so", library);
  const std::string builtins = scratch / "libnvrtc-builtins.so.13.";  // and the minor version
  std::filesystem::copy_file(testing::bin() + "/libnvrtc_fake.so", builtins + "0");  // any library
  LoaderOptions options;
  options.nvrtc_library = library;
  options.cuda_library = testing::bin() + "/libcuda_fake.so";
  options.worker =
      scratch.write("worker.sh", "#!/bin/sh\necho $$ >>'" + started + "'\nexec '" + testing::bin() +
                                     "/cukiln-compile-worker' \"$@\"\n");
  std::filesystem::permissions(options.worker, std::filesystem::perms::owner_all);
  const auto loader = open(options);
  const std::string source = scratch.write("k.cu", "__global__ void k() {}\n");
  const auto compile = [&](int number) {
    ModuleSpec module = spec(source, {{90, 'a'}});
    module.define["N"] = std::to_string(number);
    return testing::only(loader->compile(module));
  };
  compile(1);
  const pid_t worker = last_of(started);
  ::kill(worker, SIGKILL);  // it has the old library open
  REQUIRE(testing::becomes_true([&] { return testing::has_ended(worker); }));
  std::filesystem::remove(library);
  std::filesystem::copy_file(testing::bin() + "/libnvrtc_fake_unobserved.so", library);
  std::filesystem::rename(builtins + "0", builtins + "5");
  CHECK(compile(2).outcome == Outcome::compiled);
}
