// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <utility>

#include "core/base/file.hpp"
#include "core/base/logger.hpp"
#include "core/base/mutex.hpp"
#include "core/base/result.hpp"

namespace cukiln::daemon {

/// Functions that other threads post to one thread, which runs them in order. Threads: `post` is
/// safe; the rest is for the thread that runs the tasks.
class TaskQueue {
 public:
  using Task = std::function<void()>;

  /// A task whose memory is allocated, so that posting it cannot fail.
  class Prepared {
   public:
    explicit Prepared(Task task) { task_.push_back(std::move(task)); }

   private:
    friend class TaskQueue;
    std::list<Task> task_;
  };

  TaskQueue() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  void post(Task task) { post(Prepared(std::move(task))); }
  void post(Prepared task) noexcept {
    {
      const MutexLock lock(mutex_);
      tasks_.splice(tasks_.end(), task.task_);
    }
    wake();
  }

  /// Runs the tasks that were posted before this call, at least one, until `end`: the others remain
  /// pending. An exception of a task is logged.
  void run_pending(const Logger& log, std::chrono::steady_clock::time_point end =
                                          std::chrono::steady_clock::time_point::max()) {
    std::uint64_t count = 0;
    static_cast<void>(!::read(wake_.get(), &count, sizeof count));
    std::list<Task> tasks;
    {
      const MutexLock lock(mutex_);
      tasks.swap(tasks_);
    }
    while (!tasks.empty()) {
      const auto done = guarded([&]() -> Result<void> {
        tasks.front()();
        return {};
      });
      if (!done) {
        log.error("a posted task failed: {}", done.error().message());
      }
      tasks.pop_front();
      if (!tasks.empty() && std::chrono::steady_clock::now() >= end) {
        break;
      }
    }
    if (!tasks.empty()) {
      {
        const MutexLock lock(mutex_);
        tasks_.splice(tasks_.begin(), tasks);
      }
      wake();
    }
  }

  /// Readable while tasks are pending.
  int fd() const noexcept { return wake_.get(); }

 private:
  void wake() noexcept {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(wake_.get(), &one, sizeof one));
  }

  const UniqueFd wake_;
  Mutex mutex_;
  std::list<Task> tasks_ CUKILN_GUARDED_BY(mutex_);
};

}  // namespace cukiln::daemon
