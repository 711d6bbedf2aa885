// SPDX-License-Identifier: Apache-2.0
#include "daemon/blocking_pool.hpp"

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
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  has_jobs_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void BlockingPool::put(Job job) {
  std::list<Job> one;
  one.push_back(std::move(job));
  {
    const std::lock_guard lock(mutex_);
    jobs_.splice(jobs_.end(), one);
  }
  ++outstanding_;
  has_jobs_.notify_one();
}

void BlockingPool::run() {
  for (;;) {
    std::list<Job> job;
    {
      std::unique_lock lock(mutex_);
      has_jobs_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
      if (ending_) {
        return;
      }
      job.splice(job.end(), jobs_, jobs_.begin());
    }
    job.front().work();
    job.front().work = nullptr;  // what it held goes here, and not on the loop
    loop_.post(std::move(job.front().done));
  }
}

}  // namespace cukiln::daemon
