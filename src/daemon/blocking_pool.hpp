// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "base/result.hpp"
#include "daemon/task_queue.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// Threads for what may wait for a disk: a store, a large message. Each job's result goes back to
/// the loop as a task. Jobs begin in the order they were submitted; those that have not begun when
/// the pool ends are dropped. Threads: `submit` and `outstanding` are the loop's.
class BlockingPool {
 public:
  /// `loop` outlives the pool. Errors: internal (a thread cannot be started).
  static Result<std::unique_ptr<BlockingPool>> create(unsigned threads, TaskQueue& loop);
  /// Waits for the jobs that have begun.
  ~BlockingPool();
  BlockingPool(const BlockingPool&) = delete;
  BlockingPool& operator=(const BlockingPool&) = delete;

  /// Runs `work` in one of the threads, then `done` on the loop. What `work` throws arrives there
  /// as an Error: `done` is called in every case.
  template <class T>
  void submit(std::function<Result<T>()> work, std::function<void(Result<T>)> done) {
    const auto result = std::make_shared<std::optional<Result<T>>>();
    put(Job{[work = std::move(work), result] { result->emplace(guarded(work)); },
            TaskQueue::Prepared([this, done = std::move(done), result] {
              --outstanding_;
              done(*std::move(*result));
            })});
  }

  /// Jobs whose `done` was not called yet.
  std::size_t outstanding() const noexcept { return outstanding_; }

 private:
  struct Job {
    std::function<void()> work;
    TaskQueue::Prepared done;
  };
  explicit BlockingPool(TaskQueue& loop) : loop_(loop) {}
  void put(Job job);
  void run();
  void stay_awake();

  TaskQueue& loop_;
  std::size_t outstanding_ = 0;  // the loop's
  Mutex mutex_;                  // of the next four
  ConditionVariable has_jobs_;
  std::list<Job> jobs_;
  std::size_t awake_ = 0;  // threads that look for a job before they sleep
  bool ending_ = false;
  std::atomic<bool> has_news_{false};
  std::vector<std::thread> threads_;
};

}  // namespace cukiln::daemon
