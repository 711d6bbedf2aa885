// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "support/child.hpp"
#include "support/paths.hpp"
#include "support/scratch.hpp"
#include "support/wait.hpp"

namespace cukiln::testing {

/// A child that runs build_process, with standard output and error in files. The destructor kills
/// it.
class BuildProcess {
 public:
  /// Uses no daemon, unless `runtime` is the folder of a daemon's socket.
  BuildProcess(const ScratchFolder& scratch, const std::string& source, int number,
               const std::vector<std::string>& extra = {},
               const std::string& worker = bin() + "/cukiln-compile-worker",
               const std::string& runtime = {}, const std::string& store = "store")
      : out_(scratch / ("out" + std::to_string(number))),
        err_(scratch / ("err" + std::to_string(number))) {
    std::vector<std::string> words = {bin() + "/build_process", scratch / store,
                                      bin() + "/libnvrtc_fake.so", worker, source};
    words.insert(words.end(), extra.begin(), extra.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::vector<std::string> folders = {
        "XDG_RUNTIME_DIR=" + (runtime.empty() ? scratch / "nowhere" : runtime),
        "TMPDIR=" + scratch.path()};
    std::vector<char*> environment = environment_with(folders);
    // Spawned and not forked: a child of a process with threads must not allocate, and under
    // AddressSanitizer it waits forever if another thread held one of the allocator's locks.
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
    ::posix_spawn_file_actions_addopen(&actions, 1, out_.c_str(), kFlags, 0600);
    ::posix_spawn_file_actions_addopen(&actions, 2, err_.c_str(), kFlags, 0600);
    const int failed =
        ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environment.data());
    ::posix_spawn_file_actions_destroy(&actions);
    REQUIRE(failed == 0);
  }
  ~BuildProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  BuildProcess(const BuildProcess&) = delete;
  BuildProcess& operator=(const BuildProcess&) = delete;

  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }
  /// True if it ends in time, with status 0.
  bool ends_within(std::chrono::seconds limit = kTestTimeout) {
    int status = 0;
    if (!becomes_true([&] { return ::waitpid(pid_, &status, WNOHANG) != 0; }, limit)) {
      return false;
    }
    pid_ = -1;
    return status == 0;
  }
  void kill(int signal) const { ::kill(pid_, signal); }
  std::string output() const { return read_all(out_); }
  std::string log() const { return read_all(err_); }

 private:
  std::string out_, err_;
  pid_t pid_ = -1;
};

/// A request whose compiles are counted. With the directive `wait_go` they wait for `go()`.
struct FlightFixture {
  ScratchFolder scratch;
  std::string count_file = scratch / "count";
  std::string wait_go = "// fake: wait " + (scratch / "go") + "\n";
  void go() const { scratch.write("go", ""); }
  std::size_t compiles() const { return read_all(count_file).size(); }
  bool begins_to_compile() const {
    return becomes_true([this] { return compiles() == 1; });
  }
  std::string source(const std::string& directives) const {
    return scratch.write("slow.cu", "// fake: count " + count_file + "\n" + directives +
                                        "\n__global__ void slow() {}\n");
  }
};

}  // namespace cukiln::testing
