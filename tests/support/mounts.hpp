// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "core/base/file.hpp"

namespace cukiln::testing {

/// Returns what `body` returns in a child process with mounts of its own, which end with it. Empty
/// where this process may not mount an image of a file system: only root may, with loop devices.
template <class Body>
std::string with_own_mounts(const Body& body) {
  int ends[2];
  if (::geteuid() != 0 || std::system("losetup -f >/dev/null 2>&1") != 0 || ::pipe(ends) != 0) {
    return {};
  }
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) == 0 &&
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) {
      const std::string result = body();
      static_cast<void>(write_all(ends[1], result));
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  const UniqueFd from(ends[0]);
  std::string text(4096, '\0');
  std::size_t size = 0;
  for (ssize_t got = 1; got > 0 && size < text.size(); size += static_cast<std::size_t>(got)) {
    got = ::read(from.get(), text.data() + size, text.size() - size);
    got = got < 0 ? 0 : got;
  }
  ::waitpid(child, nullptr, 0);
  text.resize(size);
  return text;
}

/// Runs a shell command in a child process of `with_own_mounts`. Ends the child if it fails.
inline void shell_or_end(const std::string& command) {
  if (std::system(("(" + command + ") >&2").c_str()) != 0) {
    ::_exit(1);
  }
}

}  // namespace cukiln::testing
