// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "addons/fleet/endpoint.hpp"
#include "core/base/breaker.hpp"

namespace cukiln {

/// The circuit breaker of a remote server. It opens after three failures in a row, or when more
/// than ten of twenty requests failed, for 30 s up to 5 minutes. A timeout counts for three
/// failures, because it costs the whole deadline; so does a certificate error, because it is
/// permanent. If the server was only restarting, the pause is 1 s, then up to 30 s. After `denied`
/// this object admits no further request. Threads: safe.
class ServerBreaker {
 public:
  enum class State { closed, open, trying, forbidden };
  static constexpr int kStates = static_cast<int>(State::forbidden) + 1;

  /// True if a request may be sent now. Every admitted request must be followed by `succeeded()` or
  /// `failed()`.
  bool allows(SteadyTime now);
  void succeeded() { breaker_.succeeded(); }
  /// Reports a failure. True if it opened the circuit, so that the caller logs it once.
  bool failed(RemoteStatus why, SteadyTime now, bool is_restarting = false);
  State state(SteadyTime now) const;
  /// Returns the current pause, for messages.
  std::chrono::seconds pause() const;
  /// Returns the number of transitions to each state.
  std::array<std::uint64_t, kStates> turns() const;

 private:
  static constexpr int kInARow = 3;
  Breaker breaker_{
      Breaker::Options{kInARow,
                       20,
                       {std::chrono::milliseconds(30'000), std::chrono::milliseconds(300'000), 0.2},
                       {std::chrono::milliseconds(1'000), std::chrono::milliseconds(30'000), 0.2}}};
  std::atomic<bool> forbidden_{false};  ///< permanent: a new configuration makes a new object
};
/// The names are the label of a metric.
const char* name_of(ServerBreaker::State state) noexcept;

}  // namespace cukiln
