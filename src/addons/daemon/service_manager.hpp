// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file.hpp"

namespace cukiln::daemon {

/// systemd's protocols, without its library: socket activation (sd_listen_fds(3)) and notifications
/// of the service's state (sd_notify(3)). All members are empty without a service manager.
struct ServiceManager {
  UniqueFd ipc_socket;                    ///< LISTEN_FDNAMES `data`, or another name, or none
  UniqueFd admin_socket;                  ///< `ops`
  std::string notify_socket;              ///< NOTIFY_SOCKET
  std::vector<std::string> warnings;      ///< about passed descriptors that are not used
  std::chrono::microseconds watchdog{0};  ///< 0 if there is none

  /// Reads its environment variables and removes them, so that workers do not inherit them.
  static ServiceManager of_this_process();

  /// Sends `READY=1`, `STOPPING=1`, `WATCHDOG=1` or `STATUS=…`, one a line. If the manager does not
  /// read, waits for up to a second, or not at all without `waits`, and then drops the message.
  void notify(std::string_view state, bool waits = true) const;
};

}  // namespace cukiln::daemon
