// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "addons/daemon/client/daemon_client.hpp"
#include "addons/daemon/protocol/daemon_frame.hpp"
#include "core/base/cancel_flags.hpp"
#include "core/base/kept_fd.hpp"

namespace cukiln {

/// A connection whose greeting was received and accepted.
struct DaemonConnection {
  KeptFd socket;
  wire::Greeting greeting;
  wire::DaemonFrameParser parser;
  std::uint64_t last_id = 0;  ///< of a conversation

  /// Errors: not_found (no daemon listens at `path`), incompatible, io, timeout.
  static Result<std::unique_ptr<DaemonConnection>> open(const std::string& path,
                                                        const DaemonClient::Options& options);
};

enum class WaitResult { ready, deadline, cancelled };

/// Waits until `fd` has one of poll's `events`, until `deadline`, or until `cancelled` is set.
WaitResult wait_for(int fd, short events, std::chrono::steady_clock::time_point deadline,
                    CancelFlags cancelled);

}  // namespace cukiln
