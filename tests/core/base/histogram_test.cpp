// SPDX-License-Identifier: Apache-2.0
#include "core/base/histogram.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <thread>

using namespace cukiln;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

namespace {

template <class Times>
std::map<std::string, std::uint64_t> numbers(Times& times) {
  std::map<std::string, std::uint64_t> all;
  times.each("t", [&](const std::string& name, const std::atomic<std::uint64_t>& number) {
    all[name] = number.load();
  });
  return all;
}

}  // namespace

TEST_CASE("a duration is counted in the bucket of the smallest bound that it does not exceed") {
  ShortTimes times;
  CHECK(numbers(times).empty());
  for (const auto us : {0, 10, 11, 25, 2'500'000, 2'500'001}) {
    times.add(microseconds(us));
  }
  times.add(nanoseconds(-5));  // a clock that was set back
  CHECK(numbers(times) == std::map<std::string, std::uint64_t>{{"t_us_to_10", 3},
                                                               {"t_us_to_25", 2},
                                                               {"t_us_to_2500000", 1},
                                                               {"t_us_beyond", 1},
                                                               {"t_us_sum", 5'000'047}});
}

TEST_CASE("half of all durations do not exceed the median") {
  ShortTimes times;
  const auto now = [&] {
    const auto all = numbers(times);
    return ShortTimes::summary("t", [&](const std::string& name) -> std::uint64_t {
      const auto at = all.find(name);
      return at == all.end() ? 0 : at->second;
    });
  };
  CHECK(now().count == 0);
  CHECK(now().median_us == 0);
  times.add(microseconds(20));
  times.add(microseconds(700));
  CHECK(now().median_us == 25);
  times.add(microseconds(700));
  CHECK(now().median_us == 1000);
  CHECK(now().count == 3);
  for (int i = 0; i < 4; ++i) {
    times.add(std::chrono::seconds(9));
  }
  CHECK(now().median_us == 2'500'000);
}

TEST_CASE("the counters' names are fixed: ascending bounds, then beyond, then the sum") {
  const auto names = LongTimes::names("t");
  CHECK(names.size() == LongTimes::kBounds.size() + 2);
  CHECK(names.front() == "t_us_to_5000");
  CHECK(names[names.size() - 2] == "t_us_beyond");
  CHECK(names.back() == "t_us_sum");
  CHECK(std::is_sorted(kShortTimesUs.begin(), kShortTimesUs.end()));
  CHECK(std::is_sorted(kLongTimesUs.begin(), kLongTimesUs.end()));
}

TEST_CASE("concurrent additions are all counted") {
  LongTimes times;
  const auto work = [&] {
    for (int i = 0; i < 10'000; ++i) {
      times.add(microseconds(7));
    }
  };
  std::thread other(work);
  work();
  other.join();
  CHECK(numbers(times) ==
        std::map<std::string, std::uint64_t>{{"t_us_to_5000", 20'000}, {"t_us_sum", 140'000}});
}
