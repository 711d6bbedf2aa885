// SPDX-License-Identifier: Apache-2.0
#include "core/base/telemetry.hpp"

#include <doctest/doctest.h>

#include <map>
#include <thread>

using namespace cukiln;

namespace {

enum class Fruit { apple, pear, plum };
constexpr const char* kFruits[] = {"apple", "pear", "plum"};
using Fruits = Counters<Fruit, 3>;
using Taken = std::map<std::string, std::uint64_t>;

Taken flush(Fruits& fruits) {
  Taken taken;
  const auto take = [&](const std::string& name, std::uint64_t value) { taken[name] = value; };
  fruits.each("fruit_", kFruits, flush_into(take));
  return taken;
}

}  // namespace

TEST_CASE("each enumerator has a counter") {
  Fruits fruits;
  fruits.add(Fruit::pear);
  fruits.add(Fruit::plum, 3);
  CHECK(fruits[Fruit::apple] == 0);
  CHECK(fruits[Fruit::plum] == 3);
  CHECK(fruits.values() == Fruits::Values{0, 1, 3});
}

TEST_CASE("a flush takes every count once, by name, and no zero") {
  Fruits fruits;
  fruits.add(Fruit::pear, 2);
  CHECK(flush(fruits) == Taken{{"fruit_pear", 2}});
  CHECK(flush(fruits).empty());
  fruits.add(Fruit::pear);
  CHECK(flush(fruits) == Taken{{"fruit_pear", 1}});
}

TEST_CASE("histograms are flushed like counters") {
  ShortTimes times;
  times.add(std::chrono::microseconds(20));
  Taken taken;
  const auto take = [&](const std::string& name, std::uint64_t value) { taken[name] = value; };
  times.each("t", flush_into(take));
  CHECK(taken == Taken{{"t_us_to_25", 1}, {"t_us_sum", 20}});
  CHECK(times.snapshot().sum_us == 0);
}

TEST_CASE("concurrent counts and flushes lose none") {
  Fruits fruits;
  std::thread other([&] {
    for (int i = 0; i < 10'000; ++i) {
      fruits.add(Fruit::apple);
    }
  });
  std::uint64_t taken = 0;
  for (int i = 0; i < 100; ++i) {
    taken += flush(fruits)["fruit_apple"];
  }
  other.join();
  CHECK(taken + fruits[Fruit::apple] == 10'000);
}
