// SPDX-License-Identifier: Apache-2.0
#include "daemon/descriptor_closer.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "base/result.hpp"

namespace cukiln::daemon {

struct DescriptorCloser::State {
  using Items = std::list<Slot::Item>;

  explicit State(unsigned max_threads) : users(max_threads) {}

  /// The first descriptor of a user whose closes occupy no thread.
  Items::iterator next() CUKILN_REQUIRES(mutex) {
    return std::find_if(queue.begin(), queue.end(),
                        [&](const Slot::Item& item)
                            CUKILN_REQUIRES(mutex) { return !is_served(item.user); });
  }
  bool is_served(uid_t user) const CUKILN_REQUIRES(mutex) {
    return std::find(users.begin(), users.end(), std::optional(user)) != users.end();
  }
  /// Whether a user has to wait for the closes of another one.
  bool lacks_thread() const CUKILN_REQUIRES(mutex) {
    std::set<uid_t> waiting;
    for (const Slot::Item& item : queue) {
      if (!is_served(item.user)) {
        waiting.insert(item.user);
      }
    }
    return waiting.size() > threads - busy;
  }
  bool is_idle() const CUKILN_REQUIRES(mutex) { return queue.empty() && busy == 0; }
  void run(std::size_t thread) CUKILN_EXCLUDES(mutex);
  /// `self`: this, which the thread keeps alive. Errors: internal.
  Result<void> start_thread(const std::shared_ptr<State>& self) CUKILN_REQUIRES(mutex);

  Mutex mutex;
  ConditionVariable changed;
  Items queue CUKILN_GUARDED_BY(mutex);
  /// The user of each thread's descriptor.
  std::vector<std::optional<uid_t>> users CUKILN_GUARDED_BY(mutex);
  std::size_t threads CUKILN_GUARDED_BY(mutex) = 0;
  std::size_t busy CUKILN_GUARDED_BY(mutex) = 0;
  bool ending CUKILN_GUARDED_BY(mutex) = false;
};

void DescriptorCloser::State::run(std::size_t thread) {
  MutexLock lock(mutex);
  for (;;) {
    changed.wait(lock, [&]() CUKILN_REQUIRES(mutex) { return ending || next() != queue.end(); });
    if (next() == queue.end()) {
      return;
    }
    Items item;
    item.splice(item.end(), queue, next());
    users[thread] = item.front().user;
    ++busy;
    lock.unlock();
    item.clear();  // may block
    lock.lock();
    users[thread].reset();
    --busy;
    changed.notify_all();
  }
}

Result<void> DescriptorCloser::State::start_thread(const std::shared_ptr<State>& self) {
  CUKILN_CHECK(guarded([&self, thread = threads]() -> Result<void> {
    std::thread([self, thread] { self->run(thread); }).detach();
    return {};
  }));
  ++threads;
  return {};
}

DescriptorCloser::DescriptorCloser(const Limits& limits)
    : limits_(limits), state_(std::make_shared<State>(limits.threads)) {}

Result<std::unique_ptr<DescriptorCloser>> DescriptorCloser::create(const Limits& limits) {
  std::unique_ptr<DescriptorCloser> self(new DescriptorCloser(limits));
  const MutexLock lock(self->state_->mutex);
  CUKILN_CHECK(self->state_->start_thread(self->state_));
  return self;
}

DescriptorCloser::~DescriptorCloser() {
  MutexLock lock(state_->mutex);
  state_->ending = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, std::chrono::seconds(1),
                           [&]() CUKILN_REQUIRES(state_->mutex) { return state_->is_idle(); });
}

void DescriptorCloser::close(UniqueFd descriptor, Slot slot) noexcept {
  if (!descriptor) {
    return;
  }
  {
    const MutexLock lock(state_->mutex);
    slot.one_.front().descriptor = std::move(descriptor);
    state_->queue.splice(state_->queue.end(), slot.one_);
  }
  state_->changed.notify_one();
  // Without a further thread the descriptor is closed later.
  static_cast<void>(guarded([&]() -> Result<void> {
    const MutexLock lock(state_->mutex);
    return state_->threads < limits_.threads && state_->lacks_thread()
               ? state_->start_thread(state_)
               : Result<void>();
  }));
}

bool DescriptorCloser::is_full(uid_t user) const {
  const MutexLock lock(state_->mutex);
  const auto queued = std::count_if(state_->queue.begin(), state_->queue.end(),
                                    [&](const Slot::Item& item) { return item.user == user; });
  return static_cast<std::size_t>(queued) >= limits_.pending_of_user;
}

}  // namespace cukiln::daemon
