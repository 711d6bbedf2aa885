// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "core/base/backoff.hpp"
#include "core/base/mutex.hpp"

namespace cukiln {

/// A circuit breaker: stops requests to a service that fails, so that callers do not wait for it
/// for every kernel. It opens after some failures in a row, or when more than half of a window of
/// requests failed. After a pause it admits one trial request; a failure of the trial opens it
/// again, for twice as long. Every request that `allows` admits must be followed by `succeeded()`
/// or `failed()`; a trial whose end is never reported blocks further trials for kTrialLimit. The
/// time is passed in, so that tests can control it. Threads: safe; a fork never finds its mutex
/// held.
class Breaker {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class State { closed, open, trying };
  static constexpr int kStates = static_cast<int>(State::trying) + 1;
  static constexpr std::chrono::seconds kTrialLimit{30};
  static constexpr int kMaxWindow = 32;

  struct Options {
    int in_a_row = 3;  ///< consecutive failures that open it
    int window = 0;  ///< requests of which more than half must not fail; at most kMaxWindow; 0: off
    Backoff::Limits pause;
    Backoff::Limits brief_pause = {};  ///< after failures that cost the caller nothing
  };
  /// What a failure cost the caller, which decides how soon a trial is admitted.
  enum class Cost { usual, nothing };

  explicit Breaker(Options options) noexcept
      : options_(options), backoff_(options.pause), brief_(options.brief_pause) {
    assert(options.in_a_row > 0 && options.window >= 0 && options.window <= kMaxWindow);
  }

  /// True if a request may be sent now.
  bool allows(Time now);
  void succeeded();
  /// `weight` is the number of failures that this one counts for: a timeout, which costs the caller
  /// the whole deadline, may open the breaker alone. True if this failure opened it, so that the
  /// caller logs it once.
  bool failed(Time now, int weight = 1, Cost cost = Cost::usual);

  State state(Time now) const;
  /// The current or last pause, before jitter.
  std::chrono::milliseconds pause() const;
  /// The number of transitions to each state.
  std::array<std::uint64_t, kStates> turns() const;

 private:
  void open(Time now, Cost cost) CUKILN_REQUIRES(mutex_);
  void turn(State to) CUKILN_REQUIRES(mutex_) { ++turns_[static_cast<std::size_t>(to)]; }
  bool tries(Time now) const CUKILN_REQUIRES(mutex_) {
    return trial_ != Time() && now < trial_ + kTrialLimit;
  }

  const Options options_;
  mutable Mutex mutex_;
  Backoff backoff_ CUKILN_GUARDED_BY(mutex_);
  Backoff brief_ CUKILN_GUARDED_BY(mutex_);
  std::chrono::milliseconds pause_ CUKILN_GUARDED_BY(mutex_){0};
  /// Open or trying: no request has succeeded since it opened.
  bool opened_ CUKILN_GUARDED_BY(mutex_) = false;
  Time open_until_ CUKILN_GUARDED_BY(mutex_){};
  /// When the trial began; Time() if there is none.
  Time trial_ CUKILN_GUARDED_BY(mutex_){};
  int in_a_row_ CUKILN_GUARDED_BY(mutex_) = 0;
  /// The window, one bit for each request, 1 if it failed.
  std::uint32_t recent_ CUKILN_GUARDED_BY(mutex_) = 0;
  /// Requests in the window.
  int known_ CUKILN_GUARDED_BY(mutex_) = 0;
  std::array<std::uint64_t, kStates> turns_ CUKILN_GUARDED_BY(mutex_){};
};

}  // namespace cukiln
