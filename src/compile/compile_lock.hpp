// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cukiln {

/// The lock that makes processes compile a request once (single flight). The worker holds it, not
/// the process that wants the result: that process may fork, and a child that outlives it would
/// keep a copy of the descriptor, and so the lock.
class CompileLock {
 public:
  enum class State { held, busy, failed };

  CompileLock() = default;
  ~CompileLock();
  CompileLock(const CompileLock&) = delete;
  CompileLock& operator=(const CompileLock&) = delete;

  /// Never waits. `failed` if the lock file cannot be opened or locked; `reason()` says why.
  State acquire(const std::string& path, const std::string& owner_line);
  /// Removes the file, then unlocks it.
  void release();

  bool held() const noexcept { return fd_ >= 0; }
  /// After busy: the holder's owner line. After failed: the error.
  const std::string& reason() const noexcept { return reason_; }

 private:
  int fd_ = -1;
  std::string path_;
  std::string reason_;
};

}  // namespace cukiln
