// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cukiln {

/// Wall-clock time, injected so that tests can let it jump. Deadlines never use it: they use
/// `std::chrono::steady_clock`.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::int64_t now_ns() const noexcept = 0;  ///< since the epoch
  std::int64_t now_s() const noexcept { return now_ns() / 1'000'000'000; }

  /// The machine's clock.
  static const Clock& system() noexcept;
};

/// Since some moment in the past: for spans of time that atomics hold. It never jumps.
std::int64_t steady_ns() noexcept;

}  // namespace cukiln
