// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/base/kept_fd.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// A lock that detects a second copy of this library (and so of SQLite) in one process with the
/// same generation open. POSIX record locks belong to the process: a copy that closes a file would
/// drop the locks of the other. Each process has a range of bytes of `lock_file`, and each copy one
/// byte of the range; a store locks its own byte and tests the others.
class ProcessLock {
 public:
  /// Errors: incompatible (another copy has the generation open), io (the file system has no such
  /// locks).
  static Result<ProcessLock> acquire(const std::string& lock_file);

  ProcessLock() = default;
  ProcessLock(ProcessLock&&) noexcept = default;
  ProcessLock& operator=(ProcessLock&&) = delete;
  ~ProcessLock();

 private:
  explicit ProcessLock(KeptFd fd);
  KeptFd fd_;
  int process_ = 0;
};

}  // namespace cukiln
