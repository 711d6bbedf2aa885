// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace cukiln {

/// What this process may use of its machine.
struct Machine {
  unsigned cores = 1;              ///< at least one
  std::uint64_t memory_bytes = 0;  ///< 0: not known
  std::string cores_from;          ///< `affinity`, or the file with the quota that is lower
  std::string memory_from;         ///< `available memory`, or the file with the limit that is lower
};

/// Returns the number of processors in the affinity mask, or the processor quota of the process's
/// control groups if it is lower, rounded up; and the memory that is available, or the lowest limit
/// of these groups. Reads cgroup v1, v2 and both side by side, from the process's own group up to
/// the root of the mount. A file that is absent or malformed is no limit. Takes a fraction of a
/// millisecond; nothing is cached. `root` stands before every path, for tests.
Machine measure_machine(const std::string& root = {});

}  // namespace cukiln
