// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/blocking_pool.hpp"

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

struct Pool {
  TaskQueue loop;
  std::unique_ptr<BlockingPool> pool;

  explicit Pool(unsigned threads = 2) {
    auto created = BlockingPool::create(threads, loop);
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
  pool->submit<std::thread::id>([] { return Result<std::thread::id>(std::this_thread::get_id()); },
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
      [future = go.get_future().share()] {
        future.wait();
        return Result<int>(1);
      },
      [&](Result<int>) { order += 's'; });
  pool->submit<int>([] { return Result<int>(2); },
                    [&](Result<int>) {
                      order += 'q';
                      go.set_value();
                    });
  run_until_done();
  CHECK(order == "qs");
}

TEST_CASE_FIXTURE(Pool, "an exception of a job becomes an error") {
  bool failed = false;
  pool->submit<int>([]() -> Result<int> { throw std::bad_alloc(); },
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

TEST_CASE("jobs start in the order of submission") {
  Pool one(1);
  std::promise<void> go;
  std::string order;
  one.pool->submit<int>(
      [future = go.get_future().share()] { return future.wait(), Result<int>(0); },
      [](const Result<int>&) {});
  for (const char name : {'a', 'b', 'c'}) {
    one.pool->submit<int>([] { return Result<int>(0); },
                          [&order, name](const Result<int>&) { order += name; });
  }
  go.set_value();
  one.run_until_done();
  CHECK(order == "abc");
}
