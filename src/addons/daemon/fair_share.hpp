// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cukiln::daemon {

/// A limit of something that connections share, such as places in a queue. A connection may take
/// more while it has less than is free, so that n connections that take all they can leave the
/// (n + 1)th part to the next one.
struct FairShare {
  std::uint64_t total = 0;

  /// Whether a connection that has `has` of the `all` taken may take `more`.
  constexpr bool allows(std::uint64_t has, std::uint64_t all,
                        std::uint64_t more = 1) const noexcept {
    const std::uint64_t left = all <= total ? total - all : 0;
    return has <= left && more <= left - has;
  }
};

}  // namespace cukiln::daemon
