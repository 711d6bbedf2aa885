// SPDX-License-Identifier: Apache-2.0
#include "cli/tool.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/file.hpp"
#include "core/base/result.hpp"

extern char** environ;  // NOLINT: POSIX's own

namespace cukiln::cli {

namespace {

constexpr int kInputDescriptor = 3;

Result<void> fill(int descriptor, ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      return make_error(ErrorCode::io, "cannot write {} bytes to memory: {}", bytes.size(),
                        errno_text(errno));
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

std::string drain(int descriptor) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(descriptor, buffer, sizeof buffer);
    if (count > 0) {
      text.append(buffer, static_cast<std::size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      return text;
    }
  }
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Result<ToolOutput> run_tool(const std::string& program, std::vector<std::string> arguments,
                            ByteView input) {
  const UniqueFd file(::memfd_create("cukiln", MFD_CLOEXEC));
  int ends[2] = {-1, -1};
  if (!file || ::pipe2(ends, O_CLOEXEC) != 0) {
    return make_error(ErrorCode::io, "cannot start {}: {}", program, errno_text(errno));
  }
  const UniqueFd output(ends[0]);
  UniqueFd child_output(ends[1]);
  CUKILN_CHECK(fill(file.get(), input));

  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (std::string& argument : arguments) {
    if (argument == "{}") {
      argument = fmt::format("/proc/self/fd/{}", kInputDescriptor);
    }
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, child_output.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, child_output.get(), STDERR_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, file.get(), kInputDescriptor);
  pid_t child = -1;
  const int error =
      ::posix_spawnp(&child, program.c_str(), &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return make_error(error == ENOENT ? ErrorCode::not_found : ErrorCode::io, "cannot start {}: {}",
                      program, errno_text(error));
  }
  child_output.reset();
  ToolOutput result;
  result.text = drain(output.get());
  result.exit_code = wait_for(child);
  return result;
}

}  // namespace cukiln::cli
