// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "addons/daemon/event_loop.hpp"
#include "addons/daemon/ipc_listener.hpp"
#include "core/base/file.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// Accepts connections on a listening socket. When no descriptor is left, it closes pending
/// connections, so that their clients compile locally and the loop does not spin. Threads: the
/// loop's only.
class Acceptor {
 public:
  Acceptor(EventLoop& loop, IpcListener listener);

  /// Calls `accepted` for each connection, and `rejected`, which closes it, for each that finds no
  /// free descriptor. Errors: io.
  Result<void> begin(std::function<void(UniqueFd)> accepted,
                     std::function<void(UniqueFd)> rejected);
  /// Leaves connections in the listen queue from now on, for the next process that serves an
  /// inherited socket.
  void stop() noexcept;

  const std::string& path() const noexcept { return listener_.path; }
  bool is_inherited() const noexcept { return listener_.inherited; }

 private:
  Result<void> watch();
  void accept();
  void reject_pending();

  EventLoop& loop_;
  IpcListener listener_;
  UniqueFd spare_fd_;  // closed for a moment to accept and reject when no other is left
  EventLoop::Watch watch_;
  EventLoop::Timer retry_;
  std::function<void(UniqueFd)> accepted_;
  std::function<void(UniqueFd)> rejected_;
};

}  // namespace cukiln::daemon
