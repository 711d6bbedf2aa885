// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// An advisory `flock` on a lock file, released by the destructor, or by the kernel when the
/// process dies. A copy of the descriptor in a forked child would keep the lock, so a fork handler
/// (pthread_atfork) closes those copies in the child.
class FileLock {
 public:
  enum class Mode { shared, exclusive };

  /// Creates the file (0600) if it does not exist. Polls for at most `wait`.
  /// Errors: timeout (another process, or another FileLock of this one, holds the lock), io
  /// (ENOLCK, EACCES, …), internal (this process holds 1024 locks).
  static Result<FileLock> acquire(const std::string& path, Mode mode,
                                  std::chrono::milliseconds wait);

  /// The first line that the holder of an exclusive lock wrote into the lock file; nothing if the
  /// lock is free. Takes a shared lock for a moment, so that a concurrent `acquire` may have to
  /// poll once more. Creates no file.
  static std::optional<std::string> holder(const std::string& path);

  FileLock() = default;
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

  bool held() const noexcept { return static_cast<bool>(fd_); }
  void release() noexcept;

 private:
  explicit FileLock(UniqueFd fd);
  UniqueFd fd_;
};

}  // namespace cukiln
