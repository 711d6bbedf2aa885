// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/closing_thread.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include "core/base/mutex.hpp"
#include "core/base/result.hpp"

namespace cukiln::daemon {

struct ClosingThread::State {
  void run() CUKILN_EXCLUDES(mutex);

  Mutex mutex;
  ConditionVariable changed;
  Descriptors queue CUKILN_GUARDED_BY(mutex);
  bool ending CUKILN_GUARDED_BY(mutex) = false;
  bool ended CUKILN_GUARDED_BY(mutex) = false;
};

void ClosingThread::State::run() {
  MutexLock lock(mutex);
  for (;;) {
    changed.wait(lock, [&]() CUKILN_REQUIRES(mutex) { return ending || !queue.empty(); });
    if (queue.empty()) {
      ended = true;
      changed.notify_all();
      return;
    }
    Descriptors one;
    one.splice(one.end(), queue, queue.begin());
    lock.unlock();
    one.clear();  // may block
    lock.lock();
  }
}

ClosingThread::ClosingThread(std::size_t max_pending)
    : max_pending_(max_pending), state_(std::make_shared<State>()) {}

Result<std::unique_ptr<ClosingThread>> ClosingThread::create(std::size_t max_pending) {
  return guarded([&]() -> Result<std::unique_ptr<ClosingThread>> {
    std::unique_ptr<ClosingThread> self(new ClosingThread(max_pending));
    std::thread([state = self->state_] { state->run(); }).detach();
    return self;
  });
}

ClosingThread::~ClosingThread() {
  MutexLock lock(state_->mutex);
  state_->ending = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, std::chrono::seconds(1),
                           [&]() CUKILN_REQUIRES(state_->mutex) { return state_->ended; });
}

void ClosingThread::close(Descriptors descriptors) noexcept {
  {
    const MutexLock lock(state_->mutex);
    state_->queue.splice(state_->queue.end(), descriptors);
  }
  state_->changed.notify_one();
}

void ClosingThread::close(UniqueFd descriptor) {
  Descriptors one;
  one.push_back(std::move(descriptor));
  close(std::move(one));
}

bool ClosingThread::is_full() const {
  const MutexLock lock(state_->mutex);
  return state_->queue.size() >= max_pending_;
}

}  // namespace cukiln::daemon
