// SPDX-License-Identifier: Apache-2.0
#include "base/cores.hpp"

#include <doctest/doctest.h>
#include <sched.h>

#include <thread>

TEST_CASE("only cores in the affinity mask are counted") {
  cpu_set_t before;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  CHECK(cukiln::usable_cores() == static_cast<unsigned>(CPU_COUNT(&before)));
  int any = 0;
  while (CPU_ISSET(any, &before) == 0) {
    ++any;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(any, &one);
  std::thread([&] {  // in a thread, whose affinity is its own
    REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(cukiln::usable_cores() == 1);
  })
      .join();
}
