// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/file.hpp"
#include "wire/daemon_frame.hpp"

namespace cukiln::daemon {

/// One request of one session: where its answer goes.
struct RequestHandle {
  std::uint64_t session = 0;
  std::uint64_t id = 0;  ///< the client's number for it
  std::uint32_t process = 0;
  std::uint32_t user = 0;
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
};

/// Takes answers to requests. Answers to clients that have left are dropped. The loop's thread
/// only.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void reply(const RequestHandle& to, wire::DaemonOp op, std::string body,
                     std::shared_ptr<UniqueFd> attachment) = 0;
  /// Ends the session. The scheduler hears of it as of every session that ends.
  virtual void hang_up(const RequestHandle& request) noexcept = 0;
};

}  // namespace cukiln::daemon
