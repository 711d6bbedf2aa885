// SPDX-License-Identifier: Apache-2.0
#include "daemon/fair_share.hpp"

#include <doctest/doctest.h>

#include <vector>

using cukiln::daemon::FairShare;

// fault 163, fault 164
TEST_CASE("users that take all they can leave a part for the next one") {
  const FairShare share{.total = 1000, .fair = true};
  std::uint64_t all = 0;
  for (std::uint64_t user = 1; user <= 5; ++user) {
    std::uint64_t has = 0;
    while (share.allows(has, all)) {
      ++has;
      ++all;
    }
    CAPTURE(user);
    CHECK(has >= 1000 >> (user + 1));
    CHECK(all < 1000);
  }
}

TEST_CASE("without fairness one user may take all, up to its own limit and the total") {
  CHECK(FairShare{.total = 10}.allows(9, 9));
  CHECK_FALSE(FairShare{.total = 10}.allows(10, 10));
  CHECK_FALSE(FairShare{.total = 10, .of_user = 3}.allows(3, 3));
  CHECK(FairShare{.total = 10}.allows(0, 2, 8));
  CHECK_FALSE(FairShare{.total = 10}.allows(0, 2, 9));
  CHECK_FALSE(FairShare{.total = 10}.allows(0, 0, ~std::uint64_t{0}));
}
