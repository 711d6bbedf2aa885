// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/blocking_pool.hpp"

#include <chrono>

#include "addons/daemon/client/spin_wait.hpp"

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
    must_check_.store(true, std::memory_order_relaxed);
  }
  has_jobs_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void BlockingPool::enqueue(Job job) {
  std::list<Job> one;
  one.push_back(std::move(job));
  bool must_wake = false;
  {
    const MutexLock lock(mutex_);
    jobs_.splice(jobs_.end(), one);
    must_wake = spinning_ < jobs_.size();
    must_check_.store(true, std::memory_order_relaxed);
  }
  ++outstanding_;
  if (must_wake) {
    has_jobs_.notify_one();
  }
}

void BlockingPool::run() {
  MutexLock lock(mutex_);
  for (;;) {
    has_jobs_.wait(lock, [&]() CUKILN_REQUIRES(mutex_) { return ending_ || !jobs_.empty(); });
    if (ending_) {
      return;
    }
    std::list<Job> job;
    job.splice(job.end(), jobs_, jobs_.begin());
    must_check_.store(!jobs_.empty(), std::memory_order_relaxed);
    lock.unlock();
    job.front().work();
    job.front().work = nullptr;  // destroys what it captured here and not on the loop
    lock.lock();
    ++spinning_;
    lock.unlock();
    loop_.post(std::move(job.front().done));
    // A client that has its reply usually sends the next request immediately.
    spin_until(std::chrono::steady_clock::now() + kSpinTime,
               [&] { return must_check_.load(std::memory_order_relaxed); });
    lock.lock();
    --spinning_;
  }
}

}  // namespace cukiln::daemon
