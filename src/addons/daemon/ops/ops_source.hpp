// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/store/tiered_store.hpp"
#include "core/wire/daemon_messages.hpp"

#include <cukiln/result.hpp>

namespace cukiln::ops {

/// The remote stores of a daemon, with counters since its start. Addresses have no passwords.
struct RemoteReport {
  struct Server {
    std::string where;          ///< `redis://cache:6379`
    bool circuit_open = false;  ///< no requests are sent for now, because of failures
  };
  /// Requests of one kind to servers of one kind.
  struct Traffic {
    std::string backend, op;
    std::vector<std::pair<std::string, std::uint64_t>> results;  ///< by result
    std::vector<std::pair<double, std::uint64_t>> buckets;  ///< upper bound in seconds, cumulative
    double seconds = 0;                                     ///< in sum
  };
  std::vector<Server> servers;  ///< empty: no remote store is configured
  std::vector<Traffic> traffic;
  std::uint64_t hits = 0, misses = 0, waits = 0, skipped = 0;
  std::uint64_t stored = 0, dropped = 0, queued = 0;  ///< uploads
  std::uint64_t received_bytes = 0, sent_bytes = 0;
  std::vector<std::pair<std::string, std::uint64_t>> requests;  ///< by result
  std::vector<std::pair<std::string, std::uint64_t>> rejected;  ///< objects, by reason
  /// Transitions of circuit breakers, by the new state.
  std::vector<std::pair<std::string, std::uint64_t>> breaker_transitions;
};
/// `http` or `redis`: the label of a server in metrics, which must not be an address.
std::string backend_of(std::string_view where);

/// The daemon as the admin HTTP server sees it: read-only. Threads: safe.
class OpsSource {
 public:
  virtual ~OpsSource() = default;

  /// The state of the event loop, as the loop reports it. Errors: timeout (no report for `wait`).
  virtual Result<wire::DaemonSnapshot> state(std::chrono::milliseconds wait) = 0;
  /// The daemon's store.
  virtual TieredStore& store() = 0;
  virtual RemoteReport remotes() = 0;
  /// The compiler: `nvrtc 13.0.88`. Errors: why nothing can be compiled.
  virtual Result<std::string> compiler() = 0;
};

}  // namespace cukiln::ops
