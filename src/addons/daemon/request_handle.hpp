// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "addons/daemon/protocol/daemon_frame.hpp"
#include "core/base/file.hpp"

namespace cukiln::daemon {

/// Identifies one request of one session, to which a reply is sent.
struct RequestHandle {
  std::uint64_t session = 0;
  std::uint64_t id = 0;  ///< the client's number for it
  std::uint32_t process = 0;
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
};

/// Sends replies to requests. Replies to disconnected clients are dropped. Threads: the loop's
/// only.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void reply(const RequestHandle& to, wire::DaemonOp op, std::string body,
                     std::shared_ptr<UniqueFd> attachment) = 0;
  /// Closes the session of a request.
  virtual void hang_up(const RequestHandle& request) noexcept = 0;
};

}  // namespace cukiln::daemon
