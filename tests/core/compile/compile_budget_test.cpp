// SPDX-License-Identifier: Apache-2.0
#include "core/compile/compile_budget.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "support/forked.hpp"
#include "support/wait.hpp"

using namespace cukiln;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

CompileBudget::Limits limits(unsigned jobs, std::uint64_t mib) { return {jobs, mib * kMiB}; }

Result<CompileBudget::Share> ask(CompileBudget& budget, std::uint64_t mib,
                                 std::chrono::milliseconds timeout = 10s,
                                 CancelFlags cancelled = {}) {
  return budget.admit(mib * kMiB, "k", timeout, cancelled);
}

void until_waiting(CompileBudget& budget, std::size_t count) {
  REQUIRE(testing::becomes_true([&] { return budget.waiting() == count; }));
}

}  // namespace

TEST_CASE("the number of compiles follows the cores, and the memory if that is less") {
  CHECK(CompileBudget(limits(3, 64)).jobs() == 3);  // as set
  CHECK(CompileBudget(limits(0, 1)).jobs() == 1);   // never none
  CompileBudget measured({});
  CHECK(measured.jobs() >= 1);
  CHECK(measured.memory_bytes() > 0);
  CHECK_FALSE(measured.memory_from().empty());
  CHECK(CompileBudget(limits(8, 2048)).workers_to_keep() ==
        2048 * kMiB / CompileBudget::kTypicalBytes);
  CHECK(CompileBudget(limits(2, 1 << 20)).workers_to_keep() == 2);
}

TEST_CASE("a compile that would not fit waits until another one has ended") {
  CompileBudget budget(limits(8, 1000));
  auto first = ask(budget, 600);
  auto second = ask(budget, 400);
  REQUIRE(first);
  REQUIRE(second);
  std::atomic<bool> admitted{false};
  std::thread third([&] {
    const auto share = ask(budget, 300);
    CHECK(share);
    admitted = true;
  });
  until_waiting(budget, 1);
  CHECK_FALSE(admitted);
  *second = CompileBudget::Share();
  third.join();
  CHECK(admitted);
  CHECK(budget.waiting() == 0);
}

TEST_CASE("fault 176: a compile that needs more than all memory runs alone") {
  CompileBudget budget(limits(8, 100));
  auto small = ask(budget, 10);
  REQUIRE(small);
  std::atomic<bool> admitted{false};
  std::thread large([&] {
    const auto share = ask(budget, 5000);
    CHECK(share);
    admitted = true;
    CHECK(ask(budget, 1, 20ms).error().code() == ErrorCode::timeout);
  });
  until_waiting(budget, 1);
  CHECK_FALSE(admitted);
  *small = CompileBudget::Share();
  large.join();
  CHECK(ask(budget, 5000));
}

TEST_CASE("a large compile is not overtaken for ever by small ones") {
  CompileBudget budget(limits(8, 100));
  auto running = ask(budget, 60);
  REQUIRE(running);
  std::atomic<int> order{0};
  int large_at = 0;
  int small_at = 0;
  std::thread large([&] {
    const auto share = ask(budget, 90);
    CHECK(share);
    large_at = ++order;
  });
  until_waiting(budget, 1);
  std::thread small([&] {  // would fit beside the one that runs
    const auto share = ask(budget, 30);
    CHECK(share);
    small_at = ++order;
  });
  until_waiting(budget, 2);
  CHECK(order == 0);
  *running = CompileBudget::Share();
  large.join();
  small.join();
  CHECK(large_at == 1);
  CHECK(small_at == 2);
}

TEST_CASE("a waiting compile is cancelled, or gives up when nothing ends for its timeout") {
  CompileBudget budget(limits(8, 100));
  auto running = ask(budget, 100);
  REQUIRE(running);
  std::atomic<bool> cancelled{false};
  std::thread waiting([&] {
    const auto refused = ask(budget, 10, 60s, cancelled);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == ErrorCode::timeout);
    CHECK(refused.error().message() == "compiling k was cancelled");
  });
  until_waiting(budget, 1);
  cancelled = true;
  waiting.join();
  const auto late = ask(budget, 10, 30ms);
  REQUIRE_FALSE(late);
  CHECK(late.error().message() ==
        "compiling k waited 30 ms for 10 MiB of memory: 1 compiles use 100 of 100 MiB (the setting "
        "memory); raise CUKILN_MEMORY, or compile_timeout");
  CHECK(budget.waiting() == 0);
}

TEST_CASE("the timeout of a waiting compile begins anew when another one ends") {
  CompileBudget budget(limits(8, 100));
  auto one = ask(budget, 50);
  auto two = ask(budget, 50);
  REQUIRE(one);
  REQUIRE(two);
  std::thread waiting([&] { CHECK(ask(budget, 100, 4s)); });
  until_waiting(budget, 1);
  std::this_thread::sleep_for(2s + 100ms);
  *one = CompileBudget::Share();
  std::this_thread::sleep_for(2s);  // more than 4 s after it began to wait
  *two = CompileBudget::Share();
  waiting.join();
}

TEST_CASE("a forked child has a budget of its own") {
  CompileBudget budget(limits(8, 100));
  auto held = ask(budget, 100);
  REQUIRE(held);
  CHECK(testing::status_of_child([&] {
          const bool is_free = ask(budget, 100, 50ms).has_value();
          *held = CompileBudget::Share();  // the parent's: nothing happens
          return is_free ? 0 : 1;
        }) == 0);
  CHECK_FALSE(ask(budget, 1, 10ms));
}
