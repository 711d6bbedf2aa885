// SPDX-License-Identifier: Apache-2.0
#include "cli/application.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "core/base/file.hpp"
#include "core/base/result.hpp"

extern char** environ;  // NOLINT: POSIX's own

namespace cukiln::cli {

namespace {

constexpr std::uint64_t kMaxReportBytes = 1ull << 30;

/// Passes on the signals that processes send to this one, and returns the status of the child.
/// What the terminal sends, such as SIGINT for Ctrl-C, reaches the child anyway.
int pass_signals_until_end(pid_t child, const sigset_t& signals) {
  for (;;) {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&signals, &info);
    int status = 0;
    if (signal == SIGCHLD && ::waitpid(child, &status, WNOHANG) == child) {
      return status;
    }
    if (signal > 0 && signal != SIGCHLD && info.si_code <= 0) {
      ::kill(child, signal);
    }
  }
}

}  // namespace

Result<ReportFile> ReportFile::make(std::string start) {
  std::string path = std::filesystem::absolute(start + "XXXXXX").string();
  const UniqueFd file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file) {
    return make_error(ErrorCode::io, "cannot create a file beside {}: {}", start,
                      errno_text(errno));
  }
  return ReportFile(std::move(path));
}

ReportFile::~ReportFile() {
  if (!path_.empty()) {
    ::unlink(path_.c_str());
  }
}

Result<void> ReportFile::for_each_line(
    const std::function<Result<void>(std::string_view)>& line) const {
  CUKILN_TRY(const FileContent content, read_file(path_, kMaxReportBytes));
  ByteView rest = content.bytes.view();
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    CUKILN_CHECK(line(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return {};
}

std::string inherited_variable(std::string_view name) {
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view entry = *one;
    if (entry.starts_with(name) && entry.substr(name.size()).starts_with("=")) {
      return std::string(entry.substr(name.size() + 1));
    }
  }
  return {};
}

Result<int> run_application(std::vector<std::string> command,
                            const std::vector<std::pair<std::string, std::string>>& variables,
                            bool output_to_stderr) {
  std::vector<char*> argv;
  for (std::string& word : command) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  std::vector<std::string> assignments;
  for (const auto& [name, value] : variables) {
    assignments.push_back(name + "=" + value);
  }
  const auto is_replaced = [&](std::string_view entry) {
    return std::any_of(variables.begin(), variables.end(), [&](const auto& variable) {
      return entry.starts_with(variable.first) &&
             entry.substr(variable.first.size()).starts_with("=");
    });
  };
  std::vector<char*> environment;
  for (char** one = environ; *one != nullptr; ++one) {
    if (!is_replaced(*one)) {
      environment.push_back(*one);
    }
  }
  for (std::string& assignment : assignments) {
    environment.push_back(assignment.data());
  }
  environment.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  if (output_to_stderr) {
    ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  }
  // Taken here one by one, so that each reaches the application while it exists, also where this is
  // process 1, for which signals without a handler have no effect.
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    ::sigaddset(&signals, signal);
  }
  sigset_t before;
  ::signal(SIGCHLD, SIG_DFL);  // if it was ignored, there would be no exit code
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t defaults;
  ::sigemptyset(&defaults);
  ::sigaddset(&defaults, SIGXFSZ);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setsigmask(&attributes, &before);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  pid_t child = -1;
  const int error =
      ::posix_spawnp(&child, argv[0], &actions, &attributes, argv.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  const int status = error == 0 ? pass_signals_until_end(child, signals) : 0;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    return make_error(ErrorCode::not_found, "cannot start {}: {}", command[0], errno_text(error));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace cukiln::cli
