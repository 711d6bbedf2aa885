// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/torch/registry.hpp"

#include <atomic>
#include <thread>

#include <doctest/doctest.h>

namespace cukiln::torch {
namespace {

struct Counted final : Runner {
  explicit Counted(std::atomic<int>& count) : alive(count) { ++alive; }
  ~Counted() override { --alive; }
  Result<void> reserve(std::int64_t /*tokens*/) override { return {}; }
  std::atomic<int>& alive;
};

struct Fixture {
  std::atomic<int> alive{0};
  Registry registry;

  std::int64_t add() {
    auto id = registry.add(std::make_unique<Counted>(alive));
    REQUIRE(id);
    return *id;
  }
};

constexpr std::int64_t kGeneration = std::int64_t{1} << Registry::kSlotBits;

}  // namespace

TEST_CASE("numbers follow from the order of add and remove") {
  for (int run = 0; run < 2; ++run) {
    Fixture here;
    CHECK(here.add() == 0);
    CHECK(here.add() == 1);
    CHECK(here.add() == 2);
    REQUIRE(here.registry.remove(1));
    CHECK(here.add() == kGeneration + 1);
    CHECK(here.add() == 3);
    REQUIRE(here.registry.remove(kGeneration + 1));
    REQUIRE(here.registry.remove(0));
    CHECK(here.add() == kGeneration);
    CHECK(here.add() == 2 * kGeneration + 1);
  }
}

TEST_CASE("a number that is not, or no longer, a runner's finds nothing") {
  Fixture here;
  CHECK(here.registry.find(0) == nullptr);
  const std::int64_t id = here.add();
  CHECK(here.registry.find(id) != nullptr);
  for (const std::int64_t other :
       {id + 1, id - 1, id + kGeneration, id + 1024, INT64_MAX, INT64_MIN}) {
    CAPTURE(other);
    CHECK(here.registry.find(other) == nullptr);
    const auto removed = here.registry.remove(other);
    REQUIRE_FALSE(removed);
    CHECK(removed.error().code() == ErrorCode::not_found);
  }
  REQUIRE(here.registry.remove(id));
  CHECK(here.registry.find(id) == nullptr);
  CHECK(here.alive == 0);
}

TEST_CASE("the registry destroys what was not removed") {
  std::atomic<int> alive{0};
  {
    Registry registry;
    for (int i = 0; i < 1500; ++i) {  // more than a chunk
      REQUIRE(registry.add(std::make_unique<Counted>(alive)));
    }
    CHECK(registry.find(1499) != nullptr);
    CHECK(alive == 1500);
  }
  CHECK(alive == 0);
}

TEST_CASE("a lookup finds its runner while others come and go") {
  Fixture here;
  const std::int64_t id = here.add();
  Runner* const expected = here.registry.find(id);
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done) {
      CHECK(here.registry.find(id) == expected);
      CHECK(here.registry.find(id + kGeneration) == nullptr);
    }
  });
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t other = here.add();
    CHECK(here.registry.find(other) != nullptr);
    REQUIRE(here.registry.remove(other));
  }
  done = true;
  reader.join();
}

}  // namespace cukiln::torch
