// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "core/base/file.hpp"

namespace cukiln::testing {

/// Runs `body` in a forked child. Returns its exit code, or 1000 and the signal that ended it.
template <class Body>
int status_of_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/// The text that `body` returns in a forked child; empty if the child ends before.
template <class Body>
std::string text_of_child(const Body& body) {
  int ends[2];
  if (::pipe(ends) != 0) {
    std::abort();
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(cukiln::write_all(ends[1], body()) ? 0 : 1);
  }
  ::close(ends[1]);
  const UniqueFd from(ends[0]);
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = ::read(from.get(), part, sizeof part)) > 0;) {
    text.append(part, static_cast<std::size_t>(got));
  }
  ::waitpid(child, nullptr, 0);
  return text;
}

}  // namespace cukiln::testing
