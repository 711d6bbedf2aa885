// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/bounded_calls.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "core/base/result.hpp"

namespace cukiln {

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::seconds kIdle{1};

}  // namespace

std::shared_ptr<BoundedCalls> BoundedCalls::of(const std::string& root) {
  struct Roots {
    Mutex mutex;
    std::map<std::string, std::weak_ptr<BoundedCalls>> all CUKILN_GUARDED_BY(mutex);
  };
  static Roots roots;
  const MutexLock lock(roots.mutex);
  std::weak_ptr<BoundedCalls>& kept = roots.all[root];  // alive while its thread is left behind
  auto calls = kept.lock();
  if (calls == nullptr) {
    calls = std::make_shared<BoundedCalls>();
    kept = calls;
  }
  return calls;
}

bool BoundedCalls::start() {
  if (!has_thread_) {
    try {
      std::thread([self = shared_from_this()] { self->work(); }).detach();
      has_thread_ = true;
    } catch (const std::system_error&) {  // too many threads
      return false;
    }
  }
  queued_.notify_one();
  return true;
}

void BoundedCalls::work() {
  ::pthread_setname_np(::pthread_self(), "cukiln-folder");
  MutexLock lock(mutex_);
  const auto has_task = [&]() CUKILN_REQUIRES(mutex_) { return !queue_.empty(); };
  while (queued_.wait_for(lock, kIdle, has_task)) {
    const auto next = std::min_element(
        queue_.begin(), queue_.end(),
        [](const TaskPtr& a, const TaskPtr& b) { return a->deadline < b->deadline; });
    running_ = *next;
    queue_.erase(next);
    const TaskPtr task = running_;
    lock.unlock();
    // A call that throws, which is for lack of memory, leaves its answer as it was.
    static_cast<void>(guarded([&] {
      task->call();
      return Result<void>();
    }));
    task->call = nullptr;
    lock.lock();
    running_.reset();
    task->is_done = true;
    ended_.notify_all();
  }
  has_thread_ = false;
}

BoundedCalls::Ended BoundedCalls::run(std::function<void()> call, SteadyTime deadline) {
  const auto task = std::make_shared<Task>(Task{std::move(call), deadline});
  MutexLock lock(mutex_);
  if (is_hung(SteadyClock::now())) {
    return Ended::hung;
  }
  queue_.push_back(task);
  if (start() &&
      ended_.wait_until(lock, deadline, [&]() CUKILN_REQUIRES(mutex_) { return task->is_done; })) {
    return Ended::done;
  }
  std::erase(queue_, task);
  return is_hung(SteadyClock::now()) ? Ended::hung : Ended::late;
}

}  // namespace cukiln
