// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace cukiln::testing {

/// How long a test waits for what must happen. It is far longer than a loaded machine or a
/// sanitiser needs, because only a test that fails waits as long.
inline constexpr std::chrono::seconds kTestTimeout{120};

/// True as soon as the condition is; false when it has not been for `limit`. Give a shorter limit
/// only where the test expects that nothing happens.
inline bool becomes_true(const std::function<bool()>& condition,
                         std::chrono::milliseconds limit = kTestTimeout) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

/// The value of a line of /proc/PID/status, such as `State`; empty without the process.
inline std::string status_of(pid_t pid, const std::string& key) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":\t")) {
      return line.substr(key.size() + 2);
    }
  }
  return {};
}

/// Whether the process has ended, reaped or not.
inline bool has_ended(pid_t pid) {
  const std::string state = status_of(pid, "State");
  return state.empty() || state.front() == 'Z';
}

}  // namespace cukiln::testing
