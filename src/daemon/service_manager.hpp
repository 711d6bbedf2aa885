// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"

namespace cukiln::daemon {

/// systemd's protocols, without its library: sockets that it opened before this process
/// (sd_listen_fds(3)), and a word about how it goes (sd_notify(3)). Each is nothing where no
/// service manager is.
struct ServiceManager {
  UniqueFd data_socket;               ///< LISTEN_FDNAMES `data`, or the only one
  UniqueFd operations_socket;         ///< `ops`
  std::string notify_socket;          ///< NOTIFY_SOCKET
  std::vector<std::string> warnings;  ///< what was passed and is not used
  std::chrono::microseconds watchdog{0};

  /// Reads the environment, and removes what it read from it: workers are not to inherit it.
  static ServiceManager of_this_process();

  /// `READY=1`, `STOPPING=1`, `WATCHDOG=1`, `STATUS=…`, one a line. Waits for a second where the
  /// manager does not read; without `waits` the message is dropped then.
  void notify(std::string_view state, bool waits = true) const;
};

}  // namespace cukiln::daemon
