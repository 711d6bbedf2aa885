// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace cukiln {

enum class Polled {
  ready,    ///< `revents` of at least one descriptor is set
  waiting,  ///< the deadline or the slice has passed, or a signal came
  failed    ///< with errno set
};

/// Calls poll() once, for at most `slice` and not beyond `deadline`. The caller then checks
/// whatever else may end its wait, and calls again. time_point::max() and milliseconds::max() mean
/// no limit. Header-only, because the compile worker uses it and links no layer. Threads: safe.
inline Polled poll_until(pollfd* polled, std::size_t count,
                         std::chrono::steady_clock::time_point deadline,
                         std::chrono::milliseconds slice = std::chrono::milliseconds::max()) {
  using std::chrono::milliseconds;
  assert(slice.count() >= 0);
  constexpr std::int64_t kMaxWaitMs = 1 << 30;  // poll takes an int
  std::int64_t wait_ms = slice == milliseconds::max() ? -1 : slice.count();
  if (deadline != std::chrono::steady_clock::time_point::max()) {
    const std::int64_t left = std::max<std::int64_t>(
        std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()).count(), 0);
    wait_ms = wait_ms < 0 ? left : std::min(wait_ms, left);
  }
  const int ready = ::poll(polled, count, static_cast<int>(std::min(wait_ms, kMaxWaitMs)));
  if (ready > 0) {
    return Polled::ready;
  }
  return ready == 0 || errno == EINTR || errno == EAGAIN ? Polled::waiting : Polled::failed;
}

}  // namespace cukiln
