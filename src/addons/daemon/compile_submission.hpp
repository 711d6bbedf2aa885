// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "addons/daemon/protocol/daemon_messages.hpp"
#include "core/key/nvcc_flags.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// A requested compile, with what takes time to compute.
struct CompileSubmission {
  std::shared_ptr<const wire::CompileOrder> order;
  std::shared_ptr<const std::string> canonical;  ///< of the request
  RequestDigest digest;
  std::uint64_t bytes = 0;  ///< what it holds: the order as it was sent, and `canonical`
  std::chrono::milliseconds timeout{0};  ///< the client's
  Result<void> allowed;  ///< the error says which argument is not passed to NVRTC for a client

  /// `order_bytes` is the order's size on the wire. Hashes all of it: not for the loop's thread.
  static CompileSubmission of(wire::CompileOrder order, std::uint64_t order_bytes,
                              std::chrono::milliseconds timeout) {
    CompileSubmission submission;
    submission.allowed =
        check_arguments(order.request.options.arguments, order.request.program.has_value());
    if (!submission.allowed) {
      return submission;
    }
    submission.canonical = std::make_shared<const std::string>(order.request.canonical());
    submission.bytes = order_bytes + submission.canonical->size();
    submission.digest = CompileRequest::digest_of(*submission.canonical);
    submission.order = std::make_shared<const wire::CompileOrder>(std::move(order));
    submission.timeout = timeout;
    return submission;
  }
};

}  // namespace cukiln::daemon
