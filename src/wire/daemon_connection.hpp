// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

#include "base/cancel_flags.hpp"
#include "base/file.hpp"
#include "wire/daemon_link.hpp"

namespace cukiln::wire {

/// A connection that has been greeted.
struct DaemonLink::Conversation::Connection {
  UniqueFd socket;
  Greeting greeting;
  DaemonFrameParser parser;
  std::uint64_t last_id = 0;
};

/// What a wait for a socket came to.
enum class Ready { yes, deadline, cancelled };
Ready wait_for(int fd, short events, std::chrono::steady_clock::time_point deadline,
               CancelFlags cancelled);

}  // namespace cukiln::wire
