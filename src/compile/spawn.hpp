// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// A process that was started without the host noticing: no SIGCHLD, and nothing that its wait(-1)
/// could find. Its end of the socket pair is descriptor 3, a pidfd of this process descriptor 4
/// (where the kernel has pidfds), 0 and 1 are /dev/null, 2 is a file in memory.
struct SpawnedProcess {
  pid_t pid = -1;
  UniqueFd socket;            ///< our end
  UniqueFd process;           ///< its pidfd; empty where the kernel has none
  UniqueFd error_log;         ///< what it wrote to stderr
  bool ours_to_reap = false;  ///< this process is init or a subreaper, and became its parent
};

/// Starts `path` with `arguments` (argv[0] is `path`), an empty environment and no other
/// descriptor. With `program`, a descriptor of what is at `path`, it is that file that is run,
/// whatever has taken its place since (a script is run by its path all the same: its interpreter
/// opens it). Threads: safe. Errors: not_found (no such program), io.
Result<SpawnedProcess> spawn_detached(const std::string& path,
                                       const std::vector<std::string>& arguments, int program = -1);

/// Reaps it if that is ours to do and it has ended; by its pidfd, so that no other child, which may
/// have got the number since, is reaped in its place. False: it is not ours.
bool reap_if_ours(int process) noexcept;

}  // namespace cukiln
