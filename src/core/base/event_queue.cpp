// SPDX-License-Identifier: Apache-2.0
#include "core/base/event_queue.hpp"

#include <algorithm>
#include <iterator>

#include "core/base/fork_gate.hpp"

namespace cukiln {

void EventQueue::push(Event event) {
  const ForkSafeLock lock(mutex_);
  waiting_.push_back({std::this_thread::get_id(), std::move(event)});
}

void EventQueue::deliver_own() {
  std::vector<Waiting> own;
  {
    const ForkSafeLock lock(mutex_);
    const auto first = std::stable_partition(
        waiting_.begin(), waiting_.end(),
        [](const Waiting& one) { return one.thread != std::this_thread::get_id(); });
    own.assign(std::move_iterator(first), std::move_iterator(waiting_.end()));
    waiting_.erase(first, waiting_.end());
  }
  for (const Waiting& one : own) {
    call_host([&] { sink_(one.event); });
  }
}

}  // namespace cukiln
