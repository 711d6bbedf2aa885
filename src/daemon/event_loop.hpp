// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/file.hpp"
#include "base/logger.hpp"
#include "daemon/task_queue.hpp"

#include <cukiln/result.hpp>

struct epoll_event;

namespace cukiln::daemon {

/// One thread's events: descriptors that are ready (epoll), timers, and tasks that other threads
/// post. A handler must not block: what may wait for a disk goes to a BlockingPool. A handler that
/// throws costs itself and a line in the log. Threads: only `post` is safe.
class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Handler = std::function<void(std::uint32_t events)>;

  /// Errors: io.
  static Result<std::unique_ptr<EventLoop>> create(Logger log);
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// A descriptor that is watched, until this goes. It must go before the descriptor is closed.
  class Watch {
   public:
    Watch() = default;
    Watch(Watch&& other) noexcept;
    Watch& operator=(Watch&& other) noexcept;
    ~Watch() { reset(); }
    /// Waits for other events from now on.
    void set(std::uint32_t events) noexcept;
    void reset() noexcept;
    explicit operator bool() const noexcept { return loop_ != nullptr; }

   private:
    friend class EventLoop;
    EventLoop* loop_ = nullptr;
    int fd_ = -1;
    std::uint64_t id_ = 0;
  };
  /// Calls `handler` when one of the epoll `events` is there, EPOLLHUP and EPOLLERR included.
  /// Errors: io.
  Result<Watch> watch(int fd, std::uint32_t events, Handler handler);

  /// Calls its function once when its time has come. To set it allocates nothing.
  class Timer {
   public:
    Timer(EventLoop& loop, std::function<void()> fire);
    ~Timer() { cancel(); }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;
    /// Replaces the time that was set before.
    void set(Clock::time_point at) noexcept;
    void set_after(Clock::duration delay) noexcept { set(Clock::now() + delay); }
    void cancel() noexcept;
    bool is_set() const noexcept { return node_.empty(); }

   private:
    friend class EventLoop;
    using Due = std::set<std::pair<Clock::time_point, Timer*>>;
    EventLoop& loop_;
    const std::function<void()> fire_;
    Clock::time_point at_{};
    Due::node_type node_;  // empty while it is in the loop's set
  };

  TaskQueue& tasks() noexcept { return tasks_; }
  void post(TaskQueue::Task task) { tasks_.post(std::move(task)); }

  /// Called at the end of each round of events and timers, and before tasks run.
  void at_end_of_round(std::function<void()> body) { end_of_round_ = std::move(body); }

  /// Waits for the next events without sleeping for a moment: a client that has its answer asks
  /// again sooner than a virtual machine wakes a processor that sleeps.
  void stay_awake() noexcept;

  /// Until `stop`. Errors: io.
  Result<void> run();
  void stop() noexcept { stopped_ = true; }

  /// Rounds since it began.
  std::uint64_t rounds() const noexcept { return rounds_; }

 private:
  explicit EventLoop(Logger log) : log_(std::move(log)) {}
  int wait(epoll_event* events, int most);
  void fire_timers();
  void end_round();
  template <class Body>
  void call(const Body& body);

  const Logger log_;
  UniqueFd epoll_;
  TaskQueue tasks_;
  std::unordered_map<std::uint64_t, std::shared_ptr<const Handler>> handlers_;
  std::uint64_t last_id_ = 0;
  Timer::Due timers_;
  std::function<void()> end_of_round_;
  Clock::time_point awake_until_{};
  std::uint64_t rounds_ = 0;
  bool stopped_ = false;
};

}  // namespace cukiln::daemon
