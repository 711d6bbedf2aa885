#include "base/clock.hpp"

#include <chrono>

namespace cukiln {

const Clock& Clock::system() noexcept {
  struct SystemClock final : Clock {
    std::int64_t now_ns() const noexcept override {
      return std::chrono::duration_cast<std::chrono::nanoseconds>(
                 std::chrono::system_clock::now().time_since_epoch())
          .count();
    }
  };
  static const SystemClock* const clock = new SystemClock;  // threads may ask while the process exits
  return *clock;
}

}  // namespace cukiln
