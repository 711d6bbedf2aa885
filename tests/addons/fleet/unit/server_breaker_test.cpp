// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/server_breaker.hpp"

#include <doctest/doctest.h>

#include "addons/fleet/negative_cache.hpp"

using namespace cukiln;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Status = RemoteStatus;

namespace {
const SteadyTime kStart = SteadyTime() + std::chrono::hours(1);
}

// fault 70
TEST_CASE("three failures in a row open the breaker, a success between them does not") {
  ServerBreaker breaker;
  CHECK_FALSE(breaker.failed(Status::busy, kStart));
  CHECK_FALSE(breaker.failed(Status::bad_answer, kStart));
  breaker.succeeded();
  CHECK_FALSE(breaker.failed(Status::busy, kStart));
  CHECK_FALSE(breaker.failed(Status::busy, kStart));
  CHECK(breaker.allows(kStart));
  CHECK(breaker.failed(Status::busy, kStart));
  CHECK_FALSE(breaker.allows(kStart));
  CHECK_FALSE(breaker.failed(Status::busy, kStart));  // one that was on its way
  CHECK(breaker.state(kStart) == ServerBreaker::State::open);
  CHECK_FALSE(breaker.allows(kStart + seconds(23)));
  CHECK(breaker.allows(kStart + seconds(37)));
}

TEST_CASE("transitions to each state are counted") {
  using Turns =
      std::array<std::uint64_t, ServerBreaker::kStates>;  // closed, open, trying, forbidden
  ServerBreaker breaker;
  breaker.succeeded();
  CHECK(breaker.turns() == Turns{0, 0, 0, 0});
  breaker.failed(Status::timeout, kStart);
  breaker.failed(Status::timeout, kStart);  // one that was on its way
  CHECK(breaker.turns() == Turns{0, 1, 0, 0});
  CHECK(breaker.allows(kStart + seconds(37)));
  CHECK_FALSE(breaker.allows(kStart + seconds(37)));  // one at a time
  CHECK(breaker.turns() == Turns{0, 1, 1, 0});
  breaker.failed(Status::busy, kStart + seconds(37));
  CHECK(breaker.allows(kStart + seconds(600)));
  breaker.succeeded();
  CHECK(breaker.turns() == Turns{1, 2, 2, 0});
  breaker.failed(Status::denied, kStart);
  breaker.failed(Status::denied, kStart);
  CHECK(breaker.turns() == Turns{1, 2, 2, 1});
}

// fault 68
TEST_CASE("one timeout opens the breaker") {
  ServerBreaker breaker;
  CHECK(breaker.failed(Status::timeout, kStart));
  CHECK_FALSE(breaker.allows(kStart));
}

TEST_CASE("more than ten failures of twenty open the breaker") {
  ServerBreaker half;
  ServerBreaker worse;
  int asked = 0;
  for (; asked < 100; ++asked) {
    if (asked % 2 == 0) {
      half.succeeded();
    } else {
      CHECK_FALSE(half.failed(Status::busy, kStart));
    }
  }
  bool opened = false;
  for (asked = 0; asked < 100 && !opened; ++asked) {
    if (asked % 3 == 0) {
      worse.succeeded();
    } else {
      opened = worse.failed(Status::busy, kStart);
    }
  }
  CHECK(opened);
  CHECK(asked == 20);
}

// fault 68
TEST_CASE("after the pause one trial is admitted, and each failed trial doubles the pause") {
  ServerBreaker breaker;
  SteadyTime now = kStart;
  breaker.failed(Status::timeout, now);
  std::chrono::seconds pause = breaker.pause();
  CHECK(pause == seconds(30));
  for (const seconds next : {seconds(60), seconds(120), seconds(240), seconds(300), seconds(300)}) {
    now += pause * 12 / 10 + seconds(1);
    CHECK(breaker.allows(now));
    CHECK_FALSE(breaker.allows(now));  // one at a time
    CHECK(breaker.failed(Status::unreachable, now));
    CHECK(breaker.pause() == next);
    pause = next;
  }
  now += pause * 12 / 10 + seconds(1);
  CHECK(breaker.allows(now));
  breaker.succeeded();
  CHECK(breaker.state(now) == ServerBreaker::State::closed);
  CHECK(breaker.allows(now));
  CHECK(breaker.allows(now));
  CHECK_FALSE(breaker.failed(Status::busy, now));  // it has forgotten
}

TEST_CASE("fault 348: a server that restarts is tried again after 1 s, then after up to 30 s") {
  ServerBreaker breaker;
  SteadyTime now = kStart;
  const auto refused = [&] { return breaker.failed(Status::unreachable, now, true); };
  CHECK_FALSE(refused());
  CHECK_FALSE(refused());
  CHECK(refused());
  CHECK(breaker.pause() == seconds(1));
  CHECK_FALSE(breaker.allows(now + milliseconds(799)));
  for (const int next : {2, 4, 8, 16, 30, 30}) {
    now += milliseconds(breaker.pause()) * 12 / 10 + milliseconds(1);
    CHECK(breaker.allows(now));
    CHECK_FALSE(breaker.allows(now));
    CHECK(refused());
    CHECK(breaker.pause() == seconds(next));
  }
  now += seconds(37);
  CHECK(breaker.allows(now));
  CHECK(breaker.failed(Status::timeout, now));  // it costs its deadline: a long pause
  CHECK(breaker.pause() == seconds(30));
  now += seconds(37);
  CHECK(breaker.allows(now));
  breaker.succeeded();
  CHECK_FALSE(refused());
  CHECK_FALSE(refused());
  CHECK(refused());
  CHECK(breaker.pause() == seconds(1));  // it has forgotten
}

// fault 70
TEST_CASE("a denied request closes the server for good") {
  ServerBreaker breaker;
  CHECK(breaker.failed(Status::denied, kStart));
  CHECK_FALSE(breaker.failed(Status::denied, kStart));
  CHECK_FALSE(breaker.allows(kStart + std::chrono::hours(24)));
  CHECK(breaker.state(kStart) == ServerBreaker::State::forbidden);
}

// fault 70
TEST_CASE("absent names are cached for a time, and their number is bounded") {
  NegativeCache cache;
  const ObjectName name = ObjectName::of_sets("a");
  CHECK_FALSE(cache.has(name, kStart));
  cache.add(name, kStart + seconds(60), kStart);
  cache.add(name, kStart + seconds(10), kStart);  // the longer one counts
  CHECK(cache.has(name, kStart + seconds(59)));
  CHECK_FALSE(cache.has(name, kStart + seconds(60)));
  CHECK(cache.size() == 0);
  cache.add(name, kStart + seconds(60), kStart);
  cache.remove(name);
  CHECK_FALSE(cache.has(name, kStart));
  for (std::size_t i = 0; i < NegativeCache::kMaxNames + 10; ++i) {
    cache.add(ObjectName::of_sets(std::to_string(i)), kStart + seconds(60), kStart);
  }
  CHECK(cache.size() <= NegativeCache::kMaxNames);
}
