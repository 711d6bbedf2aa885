// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "addons/fleet/endpoint.hpp"
#include "core/base/mutex.hpp"

namespace cukiln {

/// Runs calls that may never return, as those into a file system whose server is away. No signal
/// and no other means ends such a call, so all calls of one root run in one thread, one at a time,
/// the earliest deadline first. While one is overdue no other is begun: at most one thread of a
/// process is left behind for each root. It is detached, so that it delays no exit. An idle thread
/// ends. Threads: safe.
class BoundedCalls : public std::enable_shared_from_this<BoundedCalls> {
 public:
  /// The calls of a root of this process. Endpoints that follow each other share them, because the
  /// thread that the first one left behind is still there.
  static std::shared_ptr<BoundedCalls> of(const std::string& root);

  enum class Ended {
    done,
    late,  ///< the calls before it took too long; it was not begun
    hung   ///< it, or one before it, has not returned by its deadline
  };
  /// Runs a call and waits for its end until the deadline. The call may end after that, so it owns
  /// all that it uses.
  Ended run(std::function<void()> call, SteadyTime deadline);

 private:
  struct Task {
    std::function<void()> call;
    SteadyTime deadline;
    bool is_done = false;
  };
  using TaskPtr = std::shared_ptr<Task>;

  bool is_hung(SteadyTime now) const CUKILN_REQUIRES(mutex_) {
    return running_ != nullptr && now >= running_->deadline;
  }
  bool start() CUKILN_REQUIRES(mutex_);
  void work();

  Mutex mutex_;
  ConditionVariable queued_, ended_;
  std::vector<TaskPtr> queue_ CUKILN_GUARDED_BY(mutex_);
  TaskPtr running_ CUKILN_GUARDED_BY(mutex_);
  bool has_thread_ CUKILN_GUARDED_BY(mutex_) = false;
};

}  // namespace cukiln
