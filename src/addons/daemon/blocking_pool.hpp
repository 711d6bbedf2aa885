// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "addons/daemon/task_queue.hpp"
#include "core/base/mutex.hpp"
#include "core/base/result.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// Threads for blocking work: access to stores and large messages. Each job's result is posted to
/// the loop as a task. Jobs start in the order of submission, and a session has one at a time. Jobs
/// that have not started when the pool is destroyed are dropped. Threads: `submit` and
/// `outstanding` are the loop's only.
class BlockingPool {
 public:
  /// `loop` outlives the pool. Errors: internal (a thread cannot be started).
  static Result<std::unique_ptr<BlockingPool>> create(unsigned threads, TaskQueue& loop);
  /// Waits for the running jobs.
  ~BlockingPool();
  BlockingPool(const BlockingPool&) = delete;
  BlockingPool& operator=(const BlockingPool&) = delete;

  /// Runs `work` in a thread of the pool, then calls `done` on the loop with its result.
  /// An exception of `work` becomes an Error.
  template <class T>
  void submit(std::function<Result<T>()> work, std::function<void(Result<T>)> done) {
    const auto result = std::make_shared<std::optional<Result<T>>>();
    enqueue(Job{[work = std::move(work), result] { result->emplace(guarded(work)); },
                TaskQueue::Prepared([this, done = std::move(done), result] {
                  --outstanding_;
                  done(*std::move(*result));
                })});
  }

  /// The number of jobs whose `done` has not been called yet.
  std::size_t outstanding() const noexcept { return outstanding_; }

 private:
  struct Job {
    std::function<void()> work;
    TaskQueue::Prepared done;
  };
  explicit BlockingPool(TaskQueue& loop) : loop_(loop) {}
  void enqueue(Job job) CUKILN_EXCLUDES(mutex_);
  void run() CUKILN_EXCLUDES(mutex_);

  TaskQueue& loop_;
  std::size_t outstanding_ = 0;  // used by the loop's thread only
  Mutex mutex_;
  ConditionVariable has_jobs_;
  std::list<Job> jobs_ CUKILN_GUARDED_BY(mutex_);       // that have not started
  std::size_t spinning_ CUKILN_GUARDED_BY(mutex_) = 0;  // threads that poll must_check_
  bool ending_ CUKILN_GUARDED_BY(mutex_) = false;
  std::atomic<bool> must_check_{false};  // there are jobs, or the pool ends
  std::vector<std::thread> threads_;
};

}  // namespace cukiln::daemon
