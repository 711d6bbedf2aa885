// SPDX-License-Identifier: Apache-2.0
#include "daemon/descriptor_closer.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "base/result.hpp"

namespace cukiln::daemon {

struct DescriptorCloser::State {
  using Items = std::list<Slot::Item>;

  explicit State(unsigned max_threads) : connections(max_threads) {}

  /// The first descriptor of a connection whose closes occupy no thread.
  Items::iterator next() CUKILN_REQUIRES(mutex) {
    return std::find_if(queue.begin(), queue.end(),
                        [&](const Slot::Item& item)
                            CUKILN_REQUIRES(mutex) { return !is_served(item.connection); });
  }
  bool is_served(std::uint64_t connection) const CUKILN_REQUIRES(mutex) {
    return std::find(connections.begin(), connections.end(), std::optional(connection)) !=
           connections.end();
  }
  /// Whether a connection waits because all threads are occupied, and a further one may start.
  bool lacks_thread() CUKILN_REQUIRES(mutex) {
    return busy == threads && threads < connections.size() && next() != queue.end();
  }
  bool is_idle() const CUKILN_REQUIRES(mutex) { return queue.empty() && busy == 0; }
  /// `self`: this, which the thread keeps alive.
  void run(const std::shared_ptr<State>& self, std::size_t thread) CUKILN_EXCLUDES(mutex);
  /// Errors: internal.
  Result<void> start_thread(const std::shared_ptr<State>& self) CUKILN_REQUIRES(mutex);

  Mutex mutex;
  ConditionVariable changed;
  Items queue CUKILN_GUARDED_BY(mutex);
  /// The connection of each thread's descriptor.
  std::vector<std::optional<std::uint64_t>> connections CUKILN_GUARDED_BY(mutex);
  std::size_t threads CUKILN_GUARDED_BY(mutex) = 0;
  std::size_t busy CUKILN_GUARDED_BY(mutex) = 0;
  bool ending CUKILN_GUARDED_BY(mutex) = false;
};

void DescriptorCloser::State::run(const std::shared_ptr<State>& self, std::size_t thread) {
  MutexLock lock(mutex);
  for (;;) {
    changed.wait(lock, [&]() CUKILN_REQUIRES(mutex) { return ending || next() != queue.end(); });
    if (next() == queue.end()) {
      return;
    }
    Items item;
    item.splice(item.end(), queue, next());
    connections[thread] = item.front().connection;
    ++busy;
    if (lacks_thread()) {  // this one may be occupied for long
      static_cast<void>(start_thread(self));
    }
    lock.unlock();
    item.clear();  // may block
    lock.lock();
    connections[thread].reset();
    --busy;
    changed.notify_all();
  }
}

Result<void> DescriptorCloser::State::start_thread(const std::shared_ptr<State>& self) {
  CUKILN_CHECK(guarded([&self, thread = threads]() -> Result<void> {
    std::thread([self, thread] { self->run(self, thread); }).detach();
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
    return state_->lacks_thread() ? state_->start_thread(state_) : Result<void>();
  }));
}

bool DescriptorCloser::is_full() const {
  const MutexLock lock(state_->mutex);
  return state_->queue.size() >= limits_.max_pending;
}

}  // namespace cukiln::daemon
