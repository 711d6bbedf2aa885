// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace cukiln::daemon {

/// A limit of something that users share, such as places in a queue. A user may take more while it
/// has less than is free, so that n users that take all they can leave the (n + 1)th part to the
/// next one. With `fair` false all of it may go to one user.
struct FairShare {
  std::uint64_t total = 0;  ///< of all users
  std::uint64_t of_user = ~std::uint64_t{0};
  bool fair = false;

  /// Whether a user that has `user_has` of the `all_have` taken may take `more`.
  constexpr bool allows(std::uint64_t user_has, std::uint64_t all_have,
                        std::uint64_t more = 1) const noexcept {
    if (all_have > total || more > total - all_have || user_has > of_user ||
        more > of_user - user_has) {
      return false;
    }
    return !fair || user_has + more <= total - all_have;
  }
};

}  // namespace cukiln::daemon
