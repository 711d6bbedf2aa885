// SPDX-License-Identifier: Apache-2.0
#include "core/base/backoff.hpp"

#include <doctest/doctest.h>

#include <set>

#include "core/base/breaker.hpp"

using namespace cukiln;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {
const Breaker::Time kStart = Breaker::Time() + std::chrono::hours(1);
}

TEST_CASE("pauses double up to the limit, and start again after a reset") {
  Backoff backoff({milliseconds(1), milliseconds(20)});
  for (const int expected : {1, 2, 4, 8, 16, 20, 20}) {
    CHECK(backoff.next() == milliseconds(expected));
  }
  backoff.reset();
  CHECK(backoff.next() == milliseconds(1));
}

TEST_CASE("jitter varies a pause within its share and leaves the next one alone") {
  Backoff backoff({milliseconds(1000), milliseconds(1000), 0.2});
  std::set<milliseconds> seen;
  for (int i = 0; i < 200; ++i) {
    const milliseconds pause = backoff.next();
    CHECK(pause >= milliseconds(800));
    CHECK(pause <= milliseconds(1200));
    seen.insert(pause);
    CHECK(backoff.pause() == milliseconds(1000));
  }
  CHECK(seen.size() > 20);
}

TEST_CASE("a breaker without a window opens after failures in a row, for its pause") {
  Breaker breaker({3, 0, {seconds(30), seconds(30)}});
  for (int i = 0; i < 100; ++i) {  // without a window, alternating failures do not open it
    CHECK_FALSE(breaker.failed(kStart));
    breaker.succeeded();
  }
  CHECK_FALSE(breaker.failed(kStart));
  CHECK_FALSE(breaker.failed(kStart));
  CHECK(breaker.failed(kStart));
  CHECK_FALSE(breaker.allows(kStart + seconds(29)));
  CHECK(breaker.allows(kStart + seconds(30)));
}

TEST_CASE("a weight counts for several failures") {
  Breaker breaker({3, 0, {seconds(30), seconds(30)}});
  CHECK(breaker.failed(kStart, 3));
  CHECK(breaker.state(kStart) == Breaker::State::open);
}

TEST_CASE("a trial whose end is never reported blocks others for a limited time") {
  Breaker breaker({1, 0, {seconds(30), seconds(30)}});
  CHECK(breaker.failed(kStart));
  const auto later = kStart + seconds(31);
  CHECK(breaker.allows(later));
  CHECK_FALSE(breaker.allows(later));
  CHECK_FALSE(breaker.allows(later + Breaker::kTrialLimit - seconds(1)));
  CHECK(breaker.allows(later + Breaker::kTrialLimit));
  breaker.succeeded();
  CHECK(breaker.state(later) == Breaker::State::closed);
}
