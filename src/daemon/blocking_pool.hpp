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

#include "base/mutex.hpp"
#include "base/result.hpp"
#include "daemon/task_queue.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// Threads for blocking work: access to stores and large messages. Each job's result is posted to
/// the loop as a task. The next job is one of the user with the fewest running, among these of the
/// one that was served least recently, and at most `max_of_user` of a user run: one user's many
/// jobs or slow disk leave threads to the others. A user's jobs start in the order of submission.
/// Jobs that have not started when the pool is destroyed are dropped. Threads: `submit` and
/// `outstanding` are the loop's only.
class BlockingPool {
 public:
  /// `loop` outlives the pool. Errors: internal (a thread cannot be started).
  static Result<std::unique_ptr<BlockingPool>> create(unsigned threads, unsigned max_of_user,
                                                      TaskQueue& loop);
  /// Waits for the running jobs.
  ~BlockingPool();
  BlockingPool(const BlockingPool&) = delete;
  BlockingPool& operator=(const BlockingPool&) = delete;

  /// Runs `work` for `user` in a thread of the pool, then calls `done` on the loop with its result.
  /// An exception of `work` becomes an Error.
  template <class T>
  void submit(uid_t user, std::function<Result<T>()> work, std::function<void(Result<T>)> done) {
    const auto result = std::make_shared<std::optional<Result<T>>>();
    enqueue(user, Job{[work = std::move(work), result] { result->emplace(guarded(work)); },
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
  struct User {
    std::list<Job> jobs;  ///< that have not started
    std::size_t running = 0;
    std::uint64_t served = 0;  ///< the number of the last job that started, of all users'
  };
  using Users = std::map<uid_t, User>;
  BlockingPool(unsigned max_of_user, TaskQueue& loop) : loop_(loop), max_of_user_(max_of_user) {}
  void enqueue(uid_t user, Job job) CUKILN_EXCLUDES(mutex_);
  void run() CUKILN_EXCLUDES(mutex_);
  /// The user whose job starts next; `end()` if no job may start.
  Users::iterator next_user() CUKILN_REQUIRES(mutex_);

  TaskQueue& loop_;
  const std::size_t max_of_user_;
  std::size_t outstanding_ = 0;  // used by the loop's thread only
  Mutex mutex_;
  ConditionVariable has_jobs_;
  Users users_ CUKILN_GUARDED_BY(mutex_);  ///< with jobs, queued or running
  std::size_t queued_ CUKILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t started_ CUKILN_GUARDED_BY(mutex_) = 0;
  std::size_t spinning_ CUKILN_GUARDED_BY(mutex_) = 0;  // threads that poll must_check_
  bool ending_ CUKILN_GUARDED_BY(mutex_) = false;
  std::atomic<bool> must_check_{false};  // there are jobs, or the pool ends
  std::vector<std::thread> threads_;
};

}  // namespace cukiln::daemon
