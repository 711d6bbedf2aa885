// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cukiln::worker {

/// The lock of one compile across processes. The worker holds it, and not the process that wants
/// the result: that one may fork, and a forgotten child would hold a copy of the descriptor for
/// ever.
class CompileLock {
 public:
  enum class State { held, busy, failed };

  /// Never waits. `failed`: locks do not work there; `reason()` says why.
  State acquire(const std::string& path, const std::string& owner_line);
  void release();

  bool held() const noexcept { return fd_ >= 0; }
  /// Busy: the line that the holder wrote. Failed: why.
  const std::string& reason() const noexcept { return reason_; }

 private:
  int fd_ = -1;
  std::string path_;
  std::string reason_;
};

}  // namespace cukiln::worker
