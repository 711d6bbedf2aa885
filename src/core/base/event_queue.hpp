// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>
#include <utility>
#include <vector>

#include "core/base/call_host.hpp"
#include "core/base/mutex.hpp"

#include <cukiln/event.hpp>

namespace cukiln {

/// Events that wait until their thread holds no lock. If the sink is empty, no event is made.
/// Threads: safe.
class EventQueue {
 public:
  explicit EventQueue(EventSink sink) : sink_(std::move(sink)) {}

  explicit operator bool() const noexcept { return static_cast<bool>(sink_); }

  /// Adds the Event that `make()` returns.
  template <class Make>
  void add(Make&& make) noexcept {
    if (sink_) {
      call_host([&] { push(make()); });
    }
  }

  /// Passes the events that this thread has added to the sink. The caller holds no lock.
  void deliver() noexcept {
    if (sink_) {
      call_host([this] { deliver_own(); });
    }
  }

 private:
  struct Waiting {
    std::thread::id thread;
    Event event;
  };

  void push(Event event);
  void deliver_own();

  const EventSink sink_;
  Mutex mutex_;
  std::vector<Waiting> waiting_ CUKILN_GUARDED_BY(mutex_);
};

/// Delivers the events of its thread when it is destroyed: declare it before any lock. Those of the
/// first queue come first.
class EventDelivery {
 public:
  EventDelivery(EventQueue& first, EventQueue& second) : first_(first), second_(second) {}
  ~EventDelivery() {
    first_.deliver();
    second_.deliver();
  }
  EventDelivery(const EventDelivery&) = delete;
  EventDelivery& operator=(const EventDelivery&) = delete;

 private:
  EventQueue& first_;
  EventQueue& second_;
};

}  // namespace cukiln
