// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "addons/daemon/protocol/daemon_messages.hpp"
#include "core/store/remote_report.hpp"
#include "core/store/tiered_store.hpp"

#include <cukiln/result.hpp>

namespace cukiln::ops {

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
