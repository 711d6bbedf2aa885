#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>

#include "remote/endpoint.hpp"

namespace cukiln {

/// A server that fails is left alone for a while, so that nobody waits for it at every kernel:
/// after three failures in a row, or more than half of the last twenty. A timeout counts for three,
/// for it has cost its whole deadline, and so does a certificate, which stays what it is. Then one
/// request tries; each failure of that doubles the pause. Time is given, so that tests have their
/// own. Threads: safe.
class Breaker {
 public:
  enum class State { closed, open, trying, forbidden };
  static constexpr int kStates = static_cast<int>(State::forbidden) + 1;

  /// Whether to ask now. Who is let through says how it went.
  bool allows(SteadyTime now);
  void succeeded();
  /// True when this opened it: the moment to say so.
  bool failed(RemoteStatus why, SteadyTime now);
  State state(SteadyTime now) const;
  /// The next pause, for messages.
  std::chrono::seconds pause() const;
  /// How often it came to each state.
  std::array<std::uint64_t, kStates> turns() const;

 private:
  void open(SteadyTime now);
  void turn(State to) { ++turns_[static_cast<std::size_t>(to)]; }

  mutable std::mutex mutex_;
  bool forbidden_ = false;  ///< until the configuration is another: this object is made anew then
  bool trying_ = false;
  int in_a_row_ = 0;
  std::uint32_t recent_ = 0;  ///< the last twenty, a bit each: 1 failed
  int known_ = 0;
  SteadyTime open_until_{};
  std::chrono::milliseconds pause_{0};
  std::array<std::uint64_t, kStates> turns_{};
};
/// The names are the label of a metric.
const char* name_of(Breaker::State state) noexcept;

}  // namespace cukiln
