// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/fair_share.hpp"

#include <doctest/doctest.h>

using cukiln::daemon::FairShare;

// fault 163
TEST_CASE("connections that take all they can leave a part for the next one") {
  const FairShare share{.total = 1000};
  std::uint64_t all = 0;
  for (std::uint64_t connection = 1; connection <= 5; ++connection) {
    std::uint64_t has = 0;
    while (share.allows(has, all)) {
      ++has;
      ++all;
    }
    CAPTURE(connection);
    CHECK(has >= 1000 >> (connection + 1));
    CHECK(all < 1000);
  }
}

TEST_CASE("a connection takes no more than is left, however much it asks for") {
  CHECK(FairShare{.total = 10}.allows(0, 2, 8));
  CHECK_FALSE(FairShare{.total = 10}.allows(0, 2, 9));
  CHECK_FALSE(FairShare{.total = 10}.allows(10, 10));
  CHECK_FALSE(FairShare{.total = 10}.allows(0, 11));
  CHECK_FALSE(FairShare{.total = 10}.allows(0, 0, ~std::uint64_t{0}));
}
