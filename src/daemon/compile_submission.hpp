// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "store/tiered_store.hpp"
#include "wire/daemon_messages.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// A requested compile, with what takes time to compute: the digest and a lookup.
struct CompileSubmission {
  std::shared_ptr<const wire::CompileOrder> order;
  std::shared_ptr<const std::string> canonical;  ///< of the request
  RequestDigest digest;
  std::uint64_t bytes = 0;  ///< what it holds: the order as it was sent, and `canonical`
  std::chrono::milliseconds timeout{0};  ///< the client's
  bool again = false;      ///< no dependency set in the store holds for the client's files
  bool is_stored = false;  ///< the store has dependency sets for the request
  Result<void> allowed;    ///< the error says which argument is not passed to NVRTC for a client

  /// Looks up in the store. `order_bytes` is the order's size on the wire. Blocks: not for the
  /// loop's thread.
  static CompileSubmission of(wire::CompileOrder order, std::uint64_t order_bytes,
                              const wire::CompileTerms& terms, TieredStore& store);
};

}  // namespace cukiln::daemon
