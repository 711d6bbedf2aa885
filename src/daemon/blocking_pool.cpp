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
  std::unique_ptr<BlockingPool> self(new BlockingPool(max_of_user, loop));
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

void BlockingPool::enqueue(uid_t user, Job job) {
  std::list<Job> one;
  one.push_back(std::move(job));
  bool must_wake = false;
  {
    const MutexLock lock(mutex_);
    User& of = users_[user];
    of.jobs.splice(of.jobs.end(), one);
    must_wake = spinning_ < ++queued_;
    must_check_.store(true, std::memory_order_relaxed);
  }
  ++outstanding_;
  if (must_wake) {
    has_jobs_.notify_one();
  }
}

BlockingPool::Users::iterator BlockingPool::next_user() {
  Users::iterator next = users_.end();
  for (auto at = users_.begin(); at != users_.end(); ++at) {
    const User& user = at->second;
    if (!user.jobs.empty() && user.running < max_of_user_ &&
        (next == users_.end() || std::pair(user.running, user.served) <
                                     std::pair(next->second.running, next->second.served))) {
      next = at;
    }
  }
  return next;
}

void BlockingPool::run() {
  MutexLock lock(mutex_);
  for (;;) {
    has_jobs_.wait(
        lock, [&]() CUKILN_REQUIRES(mutex_) { return ending_ || next_user() != users_.end(); });
    if (ending_) {
      return;
    }
    const Users::iterator user = next_user();
    std::list<Job> job;
    job.splice(job.end(), user->second.jobs, user->second.jobs.begin());
    ++user->second.running;
    user->second.served = ++started_;
    must_check_.store(--queued_ != 0, std::memory_order_relaxed);
    lock.unlock();
    job.front().work();
    job.front().work = nullptr;  // destroys what it captured here and not on the loop
    lock.lock();
    if (--user->second.running == 0 && user->second.jobs.empty()) {
      users_.erase(user);
    }
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
