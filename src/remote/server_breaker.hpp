// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/breaker.hpp"
#include "remote/endpoint.hpp"

namespace cukiln {

/// The circuit breaker of a remote server: open after three failures in a row, or more than half of
/// twenty, for 30 s and up to 5 minutes. A timeout counts for three, for it has cost its whole
/// deadline, and so does a certificate, which stays what it is. A server that refuses this client
/// is not asked again by this object. Threads: safe.
class ServerBreaker {
 public:
  enum class State { closed, open, trying, forbidden };
  static constexpr int kStates = static_cast<int>(State::forbidden) + 1;

  /// True if a request may be sent now. Every admitted request must be followed by `succeeded()` or
  /// `failed()`.
  bool allows(SteadyTime now);
  void succeeded() { breaker_.succeeded(); }
  /// True when this opened it: the moment to say so.
  bool failed(RemoteStatus why, SteadyTime now);
  State state(SteadyTime now) const;
  /// The next pause, for messages.
  std::chrono::seconds pause() const;
  /// How often it came to each state.
  std::array<std::uint64_t, kStates> turns() const;

 private:
  static constexpr int kInARow = 3;
  Breaker breaker_{Breaker::Options{
      kInARow, 20, {std::chrono::milliseconds(30'000), std::chrono::milliseconds(300'000), 0.2}}};
  std::atomic<bool> forbidden_{
      false};  ///< until the configuration is another: see remote_store.hpp
};
/// The names are the label of a metric.
const char* name_of(ServerBreaker::State state) noexcept;

}  // namespace cukiln
