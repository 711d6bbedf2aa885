// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace cukiln::daemon {

/// Limits entries and their bytes in each minute, counted from the first entry after the previous
/// minute. Threads: one.
class RateLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Limits {
    std::uint64_t entries = 600;
    std::uint64_t bytes = 1ull << 30;
  };
  explicit RateLimit(Limits limits) noexcept : limits_(limits) {}

  /// Counts an entry. False, and counts nothing, if it is above a limit.
  bool take(std::uint64_t bytes, Time now) noexcept {
    if (now - began_ >= std::chrono::minutes(1)) {
      began_ = now;
      used_ = {0, 0};
    }
    if (used_.entries >= limits_.entries || bytes > limits_.bytes - used_.bytes) {
      return false;
    }
    ++used_.entries;
    used_.bytes += bytes;
    return true;
  }

 private:
  const Limits limits_;
  Limits used_{0, 0};
  Time began_{};
};

}  // namespace cukiln::daemon
