// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// A detached process: its end sends this process no SIGCHLD, and wait(-1) does not find it. In the
/// process, descriptor 3 is its end of the socket pair, descriptor 4 a pidfd of this process (if
/// the kernel has pidfds), 0 and 1 are /dev/null, and 2 is a memory file.
struct SpawnedProcess {
  pid_t pid = -1;
  UniqueFd socket;            ///< this process's end
  UniqueFd process;           ///< its pidfd; empty if the kernel has no pidfds
  UniqueFd error_log;         ///< what it wrote to stderr, up to its file position
  bool ours_to_reap = false;  ///< this process is init or a subreaper, and became its parent
};

/// Starts `path` as a detached process with `arguments` (argv[0] is `path`), an empty environment
/// and no other descriptors. If `program`, an open descriptor of `path`, is given, exactly that
/// file is run, even if another has taken its place. (A script is run by its path all the same,
/// because its interpreter opens it.) Threads: safe. Errors: not_found (no such program), io.
Result<SpawnedProcess> spawn_detached(const std::string& path,
                                      const std::vector<std::string>& arguments, int program = -1);

/// Reaps a process that has ended, if it is a child of this one. Takes its pidfd, because its pid
/// may belong to another child by now. False if it was not reaped.
bool reap_if_ours(int process) noexcept;

}  // namespace cukiln
