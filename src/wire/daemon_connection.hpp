// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

#include "base/cancel_flags.hpp"
#include "base/kept_fd.hpp"
#include "wire/daemon_link.hpp"

namespace cukiln::wire {

/// A connection whose greeting was received and accepted.
struct DaemonLink::Conversation::Connection {
  KeptFd socket;
  Greeting greeting;
  DaemonFrameParser parser;
  std::uint64_t last_id = 0;  ///< of a conversation
};

enum class WaitResult { ready, deadline, cancelled };

/// Waits until `fd` has one of poll's `events`, until `deadline`, or until `cancelled` is set.
WaitResult wait_for(int fd, short events, std::chrono::steady_clock::time_point deadline,
                    CancelFlags cancelled);

}  // namespace cukiln::wire
