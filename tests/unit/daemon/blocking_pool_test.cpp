// SPDX-License-Identifier: Apache-2.0
#include "daemon/blocking_pool.hpp"

#include <doctest/doctest.h>
#include <poll.h>

#include <future>
#include <new>
#include <thread>

using cukiln::Error;
using cukiln::Logger;
using cukiln::Result;
using cukiln::daemon::BlockingPool;
using cukiln::daemon::TaskQueue;

namespace {

constexpr uid_t kAlice = 1001, kBob = 1002;

struct Pool {
  TaskQueue loop;
  std::unique_ptr<BlockingPool> pool;

  explicit Pool(unsigned threads = 2, unsigned max_of_user = 2) {
    auto created = BlockingPool::create(threads, max_of_user, loop);
    REQUIRE(created);
    pool = *std::move(created);
  }
  void run_until_done() {
    while (pool->outstanding() != 0) {
      pollfd wait{loop.fd(), POLLIN, 0};
      ::poll(&wait, 1, 1000);
      loop.run_pending(Logger());
    }
  }
};

}  // namespace

TEST_CASE_FIXTURE(Pool, "work runs in another thread, and its result arrives in the loop's") {
  const auto self = std::this_thread::get_id();
  std::thread::id done_in;
  pool->submit<std::thread::id>(
      kAlice, [] { return Result<std::thread::id>(std::this_thread::get_id()); },
      [&](Result<std::thread::id> ran_in) {
        REQUIRE(ran_in);
        CHECK(*ran_in != self);
        done_in = std::this_thread::get_id();
      });
  CHECK(pool->outstanding() == 1);
  run_until_done();
  CHECK(done_in == self);
}

TEST_CASE_FIXTURE(Pool, "a job that blocks delays no other") {
  std::promise<void> go;
  std::string order;
  pool->submit<int>(
      kAlice,
      [future = go.get_future().share()] {
        future.wait();
        return Result<int>(1);
      },
      [&](Result<int>) { order += 's'; });
  pool->submit<int>(
      kAlice, [] { return Result<int>(2); },
      [&](Result<int>) {
        order += 'q';
        go.set_value();
      });
  run_until_done();
  CHECK(order == "qs");
}

TEST_CASE_FIXTURE(Pool, "an exception of a job becomes an error") {
  bool failed = false;
  pool->submit<int>(
      kAlice, []() -> Result<int> { throw std::bad_alloc(); },
      [&](Result<int> result) { failed = !result; });
  run_until_done();
  CHECK(failed);
}

TEST_CASE("the destructor waits for a running job") {
  Pool one(1);
  std::promise<void> began;
  std::promise<void> go;
  bool ended = false;
  one.pool->submit<int>(
      kAlice,
      [&, future = go.get_future().share()] {
        began.set_value();
        future.wait();
        ended = true;
        return Result<int>(1);
      },
      [](Result<int>) {});
  began.get_future().wait();
  std::thread ending([&] { one.pool.reset(); });
  go.set_value();
  ending.join();
  CHECK(ended);
}

TEST_CASE("one user's blocked jobs leave a thread to other users, and keep their order") {
  Pool two(2, 1);
  std::promise<void> go;
  std::string order;
  const auto wait = go.get_future().share();
  for (const char name : {'a', 'b'}) {
    two.pool->submit<char>(
        kAlice,
        [wait, name] {
          wait.wait();
          return Result<char>(name);
        },
        [&](Result<char> done) { order += *done; });
  }
  two.pool->submit<char>(
      kBob, [] { return Result<char>('x'); },
      [&](Result<char> done) {
        order += *done;
        go.set_value();
      });
  two.run_until_done();
  CHECK(order == "xab");
}

TEST_CASE("users with jobs take turns, however many each has submitted") {
  TaskQueue loop;
  auto pool = BlockingPool::create(1, 1, loop);
  REQUIRE(pool);
  std::promise<void> go;
  std::string order;
  const auto add = [&](uid_t user, char name) {
    (*pool)->submit<int>(
        user, [] { return Result<int>(0); }, [&order, name](const Result<int>&) { order += name; });
  };
  (*pool)->submit<int>(
      1003, [future = go.get_future().share()] { return future.wait(), Result<int>(0); },
      [](const Result<int>&) {});
  for (int i = 0; i < 4; ++i) {
    add(kAlice, 'a');
  }
  add(kBob, 'b');
  add(kBob, 'b');
  go.set_value();
  while ((*pool)->outstanding() != 0) {
    pollfd wait{loop.fd(), POLLIN, 0};
    ::poll(&wait, 1, 1000);
    loop.run_pending(Logger());
  }
  CHECK(order == "ababaa");
}
