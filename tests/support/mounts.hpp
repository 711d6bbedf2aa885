// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "support/forked.hpp"

namespace cukiln::testing {

/// Returns what `body` returns in a child process with mounts of its own, which end with it. Empty
/// where this process may not mount an image of a file system: only root may, with loop devices.
template <class Body>
std::string with_own_mounts(const Body& body) {
  if (::geteuid() != 0 || std::system("losetup -f >/dev/null 2>&1") != 0) {
    return {};
  }
  return text_of_child([&] {
    const bool is_own = ::unshare(CLONE_NEWNS) == 0 &&
                        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    return is_own ? body() : std::string();
  });
}

/// Runs a shell command in a child process of `with_own_mounts`. Ends the child if it fails.
inline void shell_or_end(const std::string& command) {
  if (std::system(("(" + command + ") >&2").c_str()) != 0) {
    ::_exit(1);
  }
}

}  // namespace cukiln::testing
