// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// An advisory `flock` on a file of its own, released by the destructor or by the kernel when the
/// process dies. A copy of the descriptor in a forked child would keep it: `close_inherited()` of
/// every live lock runs in the child of fork (pthread_atfork, installed once by the first lock).
class FileLock {
 public:
  enum class Mode { shared, exclusive };

  /// Creates the file (0600) when it is not there. Polls until `wait` is over.
  /// Errors: timeout (somebody else has it), io (ENOLCK, EACCES, …).
  static Result<FileLock> acquire(const std::string& path, Mode mode,
                                  std::chrono::milliseconds wait);

  /// What the holder of an exclusive lock on `path` wrote there, its first line; nothing where
  /// nobody holds it. Looks for a moment, as a reader: whoever asks for the lock just then is told
  /// that it is taken, and asks again. Creates no file.
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
