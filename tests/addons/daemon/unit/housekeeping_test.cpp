// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/housekeeping.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <semaphore>

using cukiln::Logger;
using cukiln::daemon::EventLoop;
using cukiln::daemon::Housekeeping;
using cukiln::daemon::ServiceManager;

TEST_CASE("reloads that are ordered during a reload become one, which reads the last settings") {
  auto loop = EventLoop::create(Logger());
  REQUIRE(loop);
  const ServiceManager manager;
  Housekeeping housekeeping(**loop, manager);
  std::counting_semaphore<> started(0);
  std::counting_semaphore<> may_end(0);
  std::atomic<int> settings = 1;
  std::atomic<int> applied = 0;
  std::atomic<int> reloads = 0;
  housekeeping.set_reload([&] {
    const int read = settings;
    started.release();
    may_end.acquire();
    applied = read;
    ++reloads;
  });

  housekeeping.reload();
  started.acquire();
  settings = 2;
  for (int order = 0; order < 100; ++order) {
    housekeeping.reload();
  }
  may_end.release(200);
  housekeeping.finish();
  CHECK_EQ(reloads, 2);
  CHECK_EQ(applied, 2);

  housekeeping.reload();  // after that, one for each order again
  housekeeping.finish();
  CHECK_EQ(reloads, 3);
}
