// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/file.hpp"
#include "daemon/event_loop.hpp"
#include "daemon/listener.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// Takes connections off a listening socket. Out of descriptors it hangs up on those that wait, so
/// that their clients compile themselves and the loop does not spin. Threads: the loop's only.
class Acceptor {
 public:
  Acceptor(EventLoop& loop, Listener listener);

  /// Calls `accepted` for each connection; `refused` for each that there was no descriptor for.
  /// Errors: io.
  Result<void> begin(std::function<void(UniqueFd)> accepted, std::function<void()> refused);
  /// Connections wait from now on. For a socket that another process goes on listening at.
  void stop() noexcept;

  const std::string& path() const noexcept { return listener_.path; }
  bool is_inherited() const noexcept { return listener_.inherited; }

 private:
  Result<void> watch();
  void accept();
  void refuse_waiting();

  EventLoop& loop_;
  Listener listener_;
  UniqueFd spare_;  // given up for a moment to refuse a connection when there are no others
  EventLoop::Watch watch_;
  EventLoop::Timer again_;
  std::function<void(UniqueFd)> accepted_;
  std::function<void()> refused_;
};

}  // namespace cukiln::daemon
