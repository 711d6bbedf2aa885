// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "daemon/user_stores.hpp"
#include "wire/daemon_messages.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// A requested compile, with what takes time to compute: the digest, a lookup and the user's store.
struct CompileSubmission {
  std::shared_ptr<const wire::CompileOrder> order;
  std::string canonical;
  RequestDigest digest;
  std::uint64_t bytes = 0;               ///< of the source texts
  std::chrono::milliseconds timeout{0};  ///< the client's
  bool again = false;      ///< no dependency set in the store holds for the client's files
  bool is_stored = false;  ///< the user's store has dependency sets for the request
  Result<void> allowed;    ///< the error says which argument is not passed to NVRTC for a client
  Result<UserStores::Handle> store = UserStores::Handle();  ///< of the user; null if is_stored

  /// Looks up in the user's store, and opens it if it is closed. Blocks: not for the loop's thread.
  static CompileSubmission of(wire::CompileOrder order, const wire::CompileTerms& terms,
                              std::uint32_t user, UserStores& stores);
};

}  // namespace cukiln::daemon
