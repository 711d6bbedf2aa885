// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/event_loop.hpp"

#include <doctest/doctest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "support/wait.hpp"

using cukiln::Logger;
using cukiln::UniqueFd;
using cukiln::daemon::EventLoop;
using cukiln::daemon::TaskQueue;
using cukiln::testing::kTestTimeout;
using std::chrono::milliseconds;

namespace {

struct Loop {
  std::vector<std::string> errors;
  std::unique_ptr<EventLoop> loop;

  Loop() {
    auto created = EventLoop::create(
        Logger([this](cukiln::LogLevel, std::string_view text) { errors.emplace_back(text); }));
    REQUIRE(created);
    loop = *std::move(created);
  }
};

UniqueFd ready() { return UniqueFd(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)); }

}  // namespace

TEST_CASE_FIXTURE(Loop, "timers fire in the order of their times, once, and not when cancelled") {
  std::string order;
  EventLoop::Timer last(*loop, [&] {
    order += 'c';
    loop->stop();
  });
  EventLoop::Timer first(*loop, [&] { order += 'a'; });
  EventLoop::Timer second(*loop, [&] { order += 'b'; });
  EventLoop::Timer none(*loop, [&] { order += 'x'; });
  last.set_after(milliseconds(30));
  first.set_after(milliseconds(1));
  second.set_after(milliseconds(50));
  second.set_after(milliseconds(10));  // replaces the first time
  none.set_after(milliseconds(5));
  none.cancel();
  CHECK(second.is_set());
  REQUIRE(loop->run());
  CHECK(order == "abc");
  CHECK_FALSE(second.is_set());
}

TEST_CASE_FIXTURE(Loop, "a watch may remove itself, or another that is ready too, in its handler") {
  const UniqueFd one = ready();
  const UniqueFd two = ready();
  int calls = 0;
  EventLoop::Watch of_one;
  EventLoop::Watch of_two;
  const auto remove_both = [&](std::uint32_t) {
    ++calls;
    of_one.reset();
    of_two.reset();
    loop->stop();
  };
  of_one = *loop->watch(one.get(), EPOLLIN, remove_both);
  of_two = *loop->watch(two.get(), EPOLLIN, remove_both);
  REQUIRE(loop->run());
  CHECK(calls == 1);
}

TEST_CASE_FIXTURE(Loop, "tasks of other threads run in the loop, after the round has ended") {
  const UniqueFd event = ready();
  std::string order;
  std::thread::id ran_in;
  EventLoop::Watch watch;
  watch = *loop->watch(event.get(), EPOLLIN, [&](std::uint32_t) {
    order += 'e';
    watch.reset();
    std::thread([&] {
      loop->post([&] {
        order += 't';
        ran_in = std::this_thread::get_id();
        loop->stop();
      });
    }).join();
  });
  loop->at_end_of_round([&] { order += order.ends_with('.') ? "" : "."; });
  REQUIRE(loop->run());
  CHECK(order == ".e.t.");
  CHECK(ran_in == std::this_thread::get_id());
}

TEST_CASE_FIXTURE(Loop,
                  "exceptions of handlers, timers and tasks are logged, and the loop continues") {
  const UniqueFd event = ready();
  EventLoop::Watch watch;
  watch = *loop->watch(event.get(), EPOLLIN, [&](std::uint32_t) {
    watch.reset();
    throw std::bad_alloc();
  });
  EventLoop::Timer timer(*loop, [] { throw std::bad_alloc(); });
  timer.set_after(milliseconds(0));
  loop->post([] { throw std::bad_alloc(); });
  loop->post([&] { loop->stop(); });
  REQUIRE(loop->run());
  CHECK(errors.size() == 3);
}

TEST_CASE_FIXTURE(Loop, "a loop without events sleeps") {
  EventLoop::Timer timer(*loop, [&] { loop->stop(); });
  timer.set_after(milliseconds(50));
  REQUIRE(loop->run());
  CHECK(loop->rounds() <= 2);
}

TEST_CASE_FIXTURE(Loop,
                  "a round is short although many handlers are ready, and all have their turn") {
  constexpr int kMany = 40;
  std::vector<UniqueFd> ready_ones;
  std::vector<EventLoop::Watch> watches;
  int calls[kMany] = {};
  for (int i = 0; i < kMany; ++i) {
    ready_ones.push_back(ready());
    auto watch = loop->watch(ready_ones.back().get(), EPOLLIN, [&, i](std::uint32_t) {
      ++calls[i];
      const auto end = std::chrono::steady_clock::now() + milliseconds(1);
      while (std::chrono::steady_clock::now() < end) {
      }
    });
    REQUIRE(watch);
    watches.push_back(*std::move(watch));
  }
  std::size_t firsts = 0;
  int tasks = 0;
  const UniqueFd first_fd = ready();
  auto first = loop->watch(first_fd.get(), EPOLLIN, [&](std::uint32_t) {
    ++firsts;
    if (tasks == 10 && std::count(calls, calls + kMany, 0) == 0) {
      loop->stop();
    }
  });
  REQUIRE(first);
  loop->put_first(*first);
  for (int i = 0; i < 10; ++i) {
    loop->post([&] { ++tasks; });
  }
  EventLoop::Timer end(*loop, [&] {
    loop->stop();
    FAIL_CHECK("not all had their turn");
  });
  end.set_after(kTestTimeout);
  REQUIRE(loop->run());
  CHECK(loop->rounds() >= kMany / 2);   // of two milliseconds each
  CHECK(firsts + 2 >= loop->rounds());  // in each round
}

TEST_CASE_FIXTURE(Loop, "the longest round is measured in processor time") {
  const auto thread_time = [] { return std::clock() * (1'000'000 / CLOCKS_PER_SEC); };
  EventLoop::Timer sleeps(*loop, [&] { std::this_thread::sleep_for(milliseconds(50)); });
  EventLoop::Timer works(*loop, [&] {
    CHECK(loop->longest_round() < milliseconds(20));
    const auto began = thread_time();
    while (thread_time() < began + 30'000) {
    }
  });
  EventLoop::Timer end(*loop, [&] { loop->stop(); });
  sleeps.set_after(milliseconds(1));
  works.set_after(milliseconds(10));
  end.set_after(milliseconds(20));
  REQUIRE(loop->run());
  CHECK(loop->longest_round() >= milliseconds(29));
}

TEST_CASE("tasks beyond the end remain pending, in their order") {
  TaskQueue tasks;
  std::string order;
  for (const char c : std::string("abc")) {
    tasks.post([&order, c] { order += c; });
  }
  tasks.run_pending(Logger(), std::chrono::steady_clock::now());
  CHECK(order == "a");
  tasks.post([&] { order += 'd'; });
  tasks.run_pending(Logger());
  CHECK(order == "abcd");
}
