// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cukiln::testing {

/// This process's environment with these `NAME=value`, which add to or replace its variables, as
/// posix_spawn takes it. Valid until one of the two changes.
inline std::vector<char*> environment_with(const std::vector<std::string>& added) {
  std::vector<char*> variables;
  for (const std::string& variable : added) {
    variables.push_back(const_cast<char*>(variable.c_str()));
  }
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view name =
        std::string_view(*one).substr(0, std::string_view(*one).find('='));
    const bool replaced = std::any_of(added.begin(), added.end(), [&](const std::string& variable) {
      return std::string_view(variable).substr(0, variable.find('=')) == name;
    });
    if (!replaced) {  // a program reads the first of two values
      variables.push_back(*one);
    }
  }
  variables.push_back(nullptr);
  return variables;
}

/// A program that a test runs and whose standard output it reads line by line. The destructor kills
/// it.
class Child {
 public:
  /// `environment` has `NAME=value`, which adds to or replaces variables of this process.
  /// `descriptors` of this process become 3, 4, … in the child.
  explicit Child(const std::vector<std::string>& command,
                 const std::vector<std::string>& environment = {},
                 const std::vector<int>& descriptors = {}) {
    int out[2];
    int in[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(in, O_CLOEXEC) != 0) {
      return;
    }
    std::vector<char*> arguments;
    for (const std::string& argument : command) {
      arguments.push_back(const_cast<char*>(argument.c_str()));
    }
    arguments.push_back(nullptr);
    std::vector<char*> variables = environment_with(environment);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::vector<int> parked;  // numbers above all that are assigned
    for (std::size_t i = 0; i < descriptors.size(); ++i) {
      parked.push_back(::fcntl(descriptors[i], F_DUPFD_CLOEXEC, kParkedFrom));
      ::posix_spawn_file_actions_adddup2(&actions, parked[i], static_cast<int>(3 + i));
    }
    if (::posix_spawn(&process_, arguments[0], &actions, nullptr, arguments.data(),
                      variables.data()) != 0) {
      process_ = -1;
    }
    ::posix_spawn_file_actions_destroy(&actions);
    for (const int fd : parked) {
      ::close(fd);
    }
    ::close(out[1]);
    ::close(in[0]);
    out_ = out[0];
    in_ = in[1];
  }
  Child(Child&& other) noexcept
      : process_(std::exchange(other.process_, -1)),
        out_(std::exchange(other.out_, -1)),
        in_(std::exchange(other.in_, -1)),
        rest_(std::move(other.rest_)) {}
  Child& operator=(Child&&) = delete;
  ~Child() {
    signal(SIGKILL);
    wait();
    ::close(out_);
    go();
  }

  void signal(int number) const {
    if (process_ > 0) {
      ::kill(process_, number);
    }
  }

  /// Closes its standard input, on which a program may wait to begin.
  void go() {
    if (in_ >= 0) {
      ::close(std::exchange(in_, -1));
    }
  }

  /// The next line; empty at the end of the output or after `limit`.
  std::string line(std::chrono::milliseconds limit = std::chrono::seconds(30)) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    for (;;) {
      const std::size_t end = rest_.find('\n');
      if (end != std::string::npos) {
        std::string found = rest_.substr(0, end);
        rest_.erase(0, end + 1);
        return found;
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      pollfd ready{out_, POLLIN, 0};
      char buffer[65536];
      if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) {
        return {};
      }
      const ssize_t got = ::read(out_, buffer, sizeof buffer);
      if (got <= 0) {
        return {};
      }
      rest_.append(buffer, static_cast<std::size_t>(got));
    }
  }

  /// The remaining lines.
  std::vector<std::string> lines() {
    std::vector<std::string> all;
    for (std::string next = line(); !next.empty(); next = line()) {
      all.push_back(std::move(next));
    }
    return all;
  }

  /// The exit status, or minus the signal.
  int wait() {
    if (process_ <= 0) {
      return status_;
    }
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return status_;
  }

 private:
  static constexpr int kParkedFrom = 100;

  pid_t process_ = -1;
  int out_ = -1;
  int in_ = -1;
  int status_ = -1;
  std::string rest_;
};

}  // namespace cukiln::testing
