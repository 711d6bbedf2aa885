// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cukiln {

/// The wall clock, injected so that tests can control it. Deadlines use `std::chrono::steady_clock`
/// instead.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::int64_t now_ns() const noexcept = 0;  ///< since the epoch
  std::int64_t now_s() const noexcept { return now_ns() / 1'000'000'000; }

  /// The machine's clock.
  static const Clock& system() noexcept;
};

/// Nanoseconds of `std::chrono::steady_clock`, for deadlines that are kept in atomics.
std::int64_t steady_ns() noexcept;

}  // namespace cukiln
