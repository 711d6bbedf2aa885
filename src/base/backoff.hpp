// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace cukiln {

/// Pauses between tries: each twice as long as the one before, up to a limit, and each varied at
/// random, so that many hosts that wait for the same thing do not ask in step. Threads: one.
class Backoff {
 public:
  struct Limits {
    std::chrono::milliseconds first{1};
    std::chrono::milliseconds most{1};
    double jitter = 0;  ///< a pause of 100 ms and 0.2: 80 to 120 ms; below 1
  };
  explicit Backoff(Limits limits) noexcept : limits_(limits) {}

  /// The next pause.
  std::chrono::milliseconds next();
  /// Begins with the first pause again.
  void reset() noexcept { pause_ = std::chrono::milliseconds(0); }
  /// The last pause, before jitter; zero: there was none.
  std::chrono::milliseconds pause() const noexcept { return pause_; }

 private:
  Limits limits_;
  std::chrono::milliseconds pause_{0};
};

}  // namespace cukiln
