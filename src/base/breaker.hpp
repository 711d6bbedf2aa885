// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/backoff.hpp"

namespace cukiln {

/// A circuit breaker: what fails is not asked for a while, so that callers do not wait for it at
/// every kernel. It opens after some failures in a row, or when more than half of a window of
/// requests failed; after a pause one request may try, and each failure of that doubles the pause.
/// Every request that `allows` admits must be followed by `succeeded()` or `failed()`; a trial
/// whose end is never reported blocks others for kTrialLimit. Time is given, so that tests have
/// their own. Threads: safe; a fork never finds its mutex held.
class Breaker {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class State { closed, open, trying };
  static constexpr int kStates = static_cast<int>(State::trying) + 1;
  static constexpr std::chrono::seconds kTrialLimit{30};
  static constexpr int kMaxWindow = 32;

  struct Options {
    int in_a_row = 3;  ///< failures that open it
    int window = 0;    ///< more than half of so many open it too; at most kMaxWindow; 0: no window
    Backoff::Limits pause;
  };
  explicit Breaker(Options options) noexcept : options_(options), backoff_(options.pause) {}

  /// True if a request may be sent now.
  bool allows(Time now);
  void succeeded();
  /// `weight`: for how many failures it counts; one that cost its whole deadline counts for all.
  /// True when this opened it: the moment to say so.
  bool failed(Time now, int weight = 1);

  State state(Time now) const;
  /// The pause that it is in, or will be in, before jitter.
  std::chrono::milliseconds pause() const;
  /// How often it came to each state.
  std::array<std::uint64_t, kStates> turns() const;

 private:
  void open(Time now);
  void turn(State to) { ++turns_[static_cast<std::size_t>(to)]; }
  bool tries(Time now) const { return trial_ != Time() && now < trial_ + kTrialLimit; }

  const Options options_;
  mutable std::mutex mutex_;
  Backoff backoff_;
  bool opened_ = false;  ///< and has not succeeded since
  Time open_until_{};
  Time trial_{};  ///< when it began; none: there is no trial
  int in_a_row_ = 0;
  std::uint32_t recent_ = 0;  ///< the window, a bit each: 1 failed
  int known_ = 0;
  std::array<std::uint64_t, kStates> turns_{};
};

}  // namespace cukiln
