// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <list>
#include <utility>

#include "base/file.hpp"
#include "base/logger.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"

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
    const std::uint64_t one = 1;
    static_cast<void>(!::write(wake_.get(), &one, sizeof one));
  }

  /// Runs the tasks that were posted before this call. An exception of a task is logged.
  void run_pending(const Logger& log) {
    std::uint64_t count = 0;
    static_cast<void>(!::read(wake_.get(), &count, sizeof count));
    std::list<Task> tasks;
    {
      const MutexLock lock(mutex_);
      tasks.swap(tasks_);
    }
    for (const Task& task : tasks) {
      const auto done = guarded([&]() -> Result<void> {
        task();
        return {};
      });
      if (!done) {
        log.error("a posted task failed: {}", done.error().message());
      }
    }
  }

  /// Readable while tasks are pending.
  int fd() const noexcept { return wake_.get(); }

 private:
  const UniqueFd wake_;
  Mutex mutex_;
  std::list<Task> tasks_ CUKILN_GUARDED_BY(mutex_);
};

}  // namespace cukiln::daemon
