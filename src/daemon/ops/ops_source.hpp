// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/tiered_store.hpp"
#include "wire/daemon_messages.hpp"

#include <cukiln/result.hpp>

namespace cukiln::ops {

/// The fleet's stores, as this daemon sees them. Counters since it started; none of them holds a
/// password.
struct RemoteReport {
  struct Server {
    std::string where;  ///< `redis://cache:6379`
    bool left_alone = false;
  };
  /// Requests of one kind to servers of one kind.
  struct Traffic {
    std::string backend, op;
    std::vector<std::pair<std::string, std::uint64_t>> ended;  ///< by how
    std::vector<std::pair<double, std::uint64_t>> within;      ///< seconds, cumulative
    double seconds = 0;
  };
  std::vector<Server> servers;  ///< none: there is no fleet
  std::vector<Traffic> traffic;
  std::uint64_t hits = 0, misses = 0, waits = 0, skipped = 0;
  std::uint64_t stored = 0, dropped = 0, queued = 0;  ///< uploads
  std::uint64_t received_bytes = 0, sent_bytes = 0;
  std::vector<std::pair<std::string, std::uint64_t>> requests;       ///< by how they ended
  std::vector<std::pair<std::string, std::uint64_t>> rejected;       ///< objects, by reason
  std::vector<std::pair<std::string, std::uint64_t>> breaker_turns;  ///< by the state they led to
};
/// `http` or `redis`: the label of metrics, for an address is none.
std::string backend_of(std::string_view where);

/// What the operations door looks at. Threads: everything is safe from any thread; nothing changes
/// what the daemon does.
class OpsSource {
 public:
  virtual ~OpsSource() = default;

  /// Of the daemon's loop, by its own word. Errors: timeout, when it says nothing for `wait`.
  virtual Result<wire::DaemonSnapshot> state(std::chrono::milliseconds wait) = 0;
  /// The daemon's store.
  virtual TieredStore& store() = 0;
  virtual RemoteReport remotes() = 0;
  /// Who compiles: `nvrtc 13.0.88`. Errors: why nothing can be compiled.
  virtual Result<std::string> compiler() = 0;
};

}  // namespace cukiln::ops
