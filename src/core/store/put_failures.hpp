// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/base/fork_gate.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// The failures of a store to keep entries: limits the warnings about them to one in kInterval,
/// since on a full disk every entry fails for the same reason. Threads: safe.
class PutFailures {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::minutes kInterval{10};

  /// Adds a failure. If a warning is due, returns how many failures had none before this one.
  std::optional<std::uint64_t> add(const Error& error, Time now) {
    const ForkSafeLock lock(mutex_);
    last_ = error;
    if (warned_at_ && now - *warned_at_ < kInterval) {
      ++unreported_;
      return std::nullopt;
    }
    warned_at_ = now;
    return std::exchange(unreported_, 0);
  }

  /// The last failure; nothing if there was none.
  std::optional<Error> last() const {
    const ForkSafeLock lock(mutex_);
    return last_;
  }

 private:
  mutable Mutex mutex_;
  std::optional<Error> last_ CUKILN_GUARDED_BY(mutex_);
  std::optional<Time> warned_at_ CUKILN_GUARDED_BY(mutex_);
  std::uint64_t unreported_ CUKILN_GUARDED_BY(mutex_) = 0;
};

}  // namespace cukiln
