// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <chrono>

namespace cukiln {

/// How long a thread that has just sent a message polls for the reply before it sleeps. A reply
/// usually comes sooner than a virtual machine wakes an idle processor.
inline constexpr std::chrono::microseconds kSpinTime{60};

/// Calls `is_ready` until it returns true or `deadline` has passed, and yields the processor
/// between the calls. Returns whether it was true. Threads: safe.
template <class IsReady>
bool spin_until(std::chrono::steady_clock::time_point deadline, IsReady&& is_ready) {
  while (std::chrono::steady_clock::now() < deadline) {
    if (is_ready()) {
      return true;
    }
    ::sched_yield();
  }
  return false;
}

}  // namespace cukiln
