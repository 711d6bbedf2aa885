// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cassert>
#include <chrono>

namespace cukiln {

/// Exponential back-off: pauses between attempts, each twice as long as the one before up to a
/// limit, with random jitter, so that hosts that wait for the same thing do not retry in step.
/// Threads: one at a time.
class Backoff {
 public:
  struct Limits {
    std::chrono::milliseconds first{1};
    std::chrono::milliseconds most{1};
    double jitter = 0;  ///< below 1; with 0.2, a pause of 100 ms takes 80 to 120 ms
  };
  explicit Backoff(Limits limits) noexcept : limits_(limits) {
    assert(limits.first <= limits.most && limits.jitter >= 0 && limits.jitter < 1);
  }

  /// The next pause.
  std::chrono::milliseconds next();
  /// Starts again with the first pause.
  void reset() noexcept { pause_ = std::chrono::milliseconds(0); }
  /// The last pause, before jitter; zero if there was none.
  std::chrono::milliseconds pause() const noexcept { return pause_; }

 private:
  Limits limits_;
  std::chrono::milliseconds pause_{0};
};

}  // namespace cukiln
