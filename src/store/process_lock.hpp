#pragma once

#include <string>

#include "base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// Finds a second copy of this library (and so of SQLite) in one process that has the same
/// generation open. POSIX record locks belong to the process: either copy closing a file would drop
/// the other's. Stores of one copy share the lock, whose file says whose it is.
class ProcessLock {
 public:
  /// Errors: incompatible (another copy has it), io.
  static Result<ProcessLock> acquire(const std::string& generation_folder);

  ProcessLock() = default;
  ProcessLock(ProcessLock&&) noexcept = default;
  ProcessLock& operator=(ProcessLock&&) = delete;
  ~ProcessLock();

 private:
  ProcessLock(UniqueFd fd, std::string path);
  UniqueFd fd_;
  int process_ = 0;
  std::string path_;
};

}  // namespace cukiln
