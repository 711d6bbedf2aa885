// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/cancel_flags.hpp"
#include "core/base/kept_fd.hpp"

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
  /// The exclusive lock of a file that each holder removes. Never waits: the error is timeout if
  /// the lock is held. Other errors: as `acquire`.
  static Result<FileLock> acquire_removable(const std::string& path);

  /// The first line that the holder of an exclusive lock wrote into the lock file; nothing if the
  /// lock is free. Takes a shared lock for a moment, so that a concurrent `acquire` may have to
  /// poll once more. Creates no file.
  static std::optional<std::string> holder(const std::string& path);
  /// Polls until the lock is free. False at the deadline, or once `cancelled` is set.
  static bool await_release(const std::string& path, std::chrono::steady_clock::time_point deadline,
                            CancelFlags cancelled);

  FileLock() = default;
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

  bool held() const noexcept { return static_cast<bool>(fd_); }
  void release() noexcept;

  // For the holder of an exclusive lock; they do nothing if none is held.

  /// True if the locked file is the one of that path: another holder may have removed it.
  bool is_at(const std::string& path) const noexcept;
  /// Replaces the file's text, which `holder` reads, and renews its mtime. Informative only: on a
  /// full disk there is none.
  void write_line(std::string_view line) noexcept;
  std::string first_line() const;
  /// Removes the file, then releases the lock. Those who open such a file call `acquire_removable`.
  void remove_and_release(const std::string& path) noexcept;

  /// The descriptor, of which a copy may be sent to another process; -1 if no lock is held.
  int descriptor() const noexcept { return fd_.get(); }
  /// Closes the descriptor and leaves the lock to the holder of a copy of it.
  void hand_over() noexcept;

 private:
  explicit FileLock(KeptFd fd);
  /// False in a forked child, which has no copy of the lock.
  bool is_own() const noexcept;

  KeptFd fd_;
};

}  // namespace cukiln
