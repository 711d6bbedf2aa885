// SPDX-License-Identifier: Apache-2.0
#include "daemon/blocking_pool.hpp"

#include <sched.h>

#include <chrono>

#include "wire/daemon_link.hpp"

namespace cukiln::daemon {

Result<std::unique_ptr<BlockingPool>> BlockingPool::create(unsigned threads, TaskQueue& loop) {
  std::unique_ptr<BlockingPool> self(new BlockingPool(loop));
  CUKILN_CHECK(guarded([&]() -> Result<void> {
    for (unsigned i = 0; i < threads; ++i) {
      self->threads_.emplace_back([raw = self.get()] { raw->run(); });
    }
    return {};
  }));
  return self;
}

BlockingPool::~BlockingPool() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    has_news_.store(true, std::memory_order_relaxed);
  }
  has_jobs_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void BlockingPool::put(Job job) {
  std::list<Job> one;
  one.push_back(std::move(job));
  bool must_wake = false;
  {
    const MutexLock lock(mutex_);
    jobs_.splice(jobs_.end(), one);
    must_wake = awake_ < jobs_.size();
    has_news_.store(true, std::memory_order_relaxed);
  }
  ++outstanding_;
  if (must_wake) {
    has_jobs_.notify_one();
  }
}

/// A client that has its answer asks again: the next job comes sooner than a thread is woken.
void BlockingPool::stay_awake() {
  const auto until = std::chrono::steady_clock::now() + wire::kSpinTime;
  while (!has_news_.load(std::memory_order_relaxed) && std::chrono::steady_clock::now() < until) {
    ::sched_yield();
  }
}

void BlockingPool::run() {
  for (;;) {
    std::list<Job> job;
    {
      MutexLock lock(mutex_);
      has_jobs_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
      if (ending_) {
        return;
      }
      job.splice(job.end(), jobs_, jobs_.begin());
      has_news_.store(!jobs_.empty(), std::memory_order_relaxed);
    }
    job.front().work();
    job.front().work = nullptr;  // what it held goes here, and not on the loop
    {
      const MutexLock lock(mutex_);
      ++awake_;
    }
    loop_.post(std::move(job.front().done));
    stay_awake();
    const MutexLock lock(mutex_);
    --awake_;
  }
}

}  // namespace cukiln::daemon
