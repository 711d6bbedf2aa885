// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// Finds a second copy of this library (and so of SQLite) in one process that has the same
/// generation open. POSIX record locks belong to the process: either copy closing a file would drop
/// the other's. The bytes of `lock_file` are shared out among processes and their copies of the
/// library; each store locks its copy's, and looks whether another of its process's is locked.
class ProcessLock {
 public:
  /// Errors: incompatible (another copy has it), io (no such locks here).
  static Result<ProcessLock> acquire(const std::string& lock_file);

  ProcessLock() = default;
  ProcessLock(ProcessLock&&) noexcept = default;
  ProcessLock& operator=(ProcessLock&&) = delete;
  ~ProcessLock();

 private:
  explicit ProcessLock(UniqueFd fd);
  UniqueFd fd_;
  int process_ = 0;
};

}  // namespace cukiln
