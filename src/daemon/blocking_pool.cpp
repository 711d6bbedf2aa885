// SPDX-License-Identifier: Apache-2.0
#include "daemon/blocking_pool.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>

#include "base/spin_wait.hpp"

namespace cukiln::daemon {

Result<std::unique_ptr<BlockingPool>> BlockingPool::create(unsigned threads, unsigned max_of_user,
                                                           TaskQueue& loop) {
  assert(max_of_user > 0);
  std::unique_ptr<BlockingPool> self(new BlockingPool(threads, max_of_user, loop));
  CUKILN_CHECK(guarded([&]() -> Result<void> {
    for (unsigned i = 0; i < threads; ++i) {
      self->threads_.emplace_back([raw = self.get(), i] { raw->run(i); });
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

std::list<BlockingPool::Job>::iterator BlockingPool::next_job() {
  return std::find_if(jobs_.begin(), jobs_.end(), [&](const Job& job) CUKILN_REQUIRES(mutex_) {
    return std::count(users_.begin(), users_.end(), std::optional(job.user)) < max_of_user_;
  });
}

void BlockingPool::run(unsigned thread) {
  for (;;) {
    std::list<Job> job;
    {
      MutexLock lock(mutex_);
      has_jobs_.wait(
          lock, [&]() CUKILN_REQUIRES(mutex_) { return ending_ || next_job() != jobs_.end(); });
      if (ending_) {
        return;
      }
      job.splice(job.end(), jobs_, next_job());
      users_[thread] = job.front().user;
      must_check_.store(!jobs_.empty(), std::memory_order_relaxed);
    }
    job.front().work();
    job.front().work = nullptr;  // destroys what it captured here and not on the loop
    {
      const MutexLock lock(mutex_);
      users_[thread].reset();
      ++spinning_;
    }
    loop_.post(std::move(job.front().done));
    // A client that has its reply usually sends the next request immediately.
    spin_until(std::chrono::steady_clock::now() + kSpinTime,
               [&] { return must_check_.load(std::memory_order_relaxed); });
    const MutexLock lock(mutex_);
    --spinning_;
  }
}

}  // namespace cukiln::daemon
