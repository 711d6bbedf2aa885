// SPDX-License-Identifier: Apache-2.0
#include "core/base/clock.hpp"

#include <chrono>
#include <new>

namespace cukiln {

const Clock& Clock::system() noexcept {
  struct SystemClock final : Clock {
    std::int64_t now_ns() const noexcept override {
      return std::chrono::duration_cast<std::chrono::nanoseconds>(
                 std::chrono::system_clock::now().time_since_epoch())
          .count();
    }
  };
  // Never destroyed: threads may use it while the process exits.
  alignas(SystemClock) static unsigned char storage[sizeof(SystemClock)];
  static const SystemClock* const clock = new (storage) SystemClock;
  return *clock;
}

std::int64_t steady_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace cukiln
