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

/// A compile that a client asks for, with everything about it that takes time to find out.
struct CompileSubmission {
  std::shared_ptr<const wire::CompileOrder> order;
  std::string canonical;
  RequestDigest digest;
  std::uint64_t bytes = 0;               ///< of its texts
  std::chrono::milliseconds timeout{0};  ///< the client's
  bool again = false;                    ///< what the store has does not hold for its files
  bool is_stored = false;                ///< the user's store has dependency sets for the request
  Result<UserStores::Handle> store = UserStores::Handle();  ///< the user's; null where is_stored

  /// Looks into the user's store, and opens it where it is needed: not for the loop.
  static CompileSubmission of(wire::CompileOrder order, const wire::CompileTerms& terms,
                              std::uint32_t user, UserStores& stores);
};

}  // namespace cukiln::daemon
