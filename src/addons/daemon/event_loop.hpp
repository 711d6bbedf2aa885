// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "addons/daemon/task_queue.hpp"
#include "core/base/file.hpp"
#include "core/base/logger.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// Dispatches the events of one thread: ready descriptors (epoll), timers, and tasks that other
/// threads post. Handlers must not block; blocking work goes to a BlockingPool. Each part of a
/// round has a limit in time; the next round continues with what is left. An exception of a handler
/// is logged. Threads: `post` is safe, the rest is for the loop's thread.
class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Handler = std::function<void(std::uint32_t events)>;

  /// Errors: io.
  static Result<std::unique_ptr<EventLoop>> create(Logger log);
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// The registration of a descriptor. Must be destroyed before the descriptor is closed.
  class Watch {
   public:
    Watch() = default;
    Watch(Watch&& other) noexcept;
    Watch& operator=(Watch&& other) noexcept;
    ~Watch() { reset(); }
    /// Replaces the events that are watched.
    void set(std::uint32_t events) noexcept;
    void reset() noexcept;
    explicit operator bool() const noexcept { return loop_ != nullptr; }

   private:
    friend class EventLoop;
    EventLoop* loop_ = nullptr;
    int fd_ = -1;
    std::uint64_t id_ = 0;
  };
  /// Calls `handler` whenever the descriptor has one of the epoll `events`, EPOLLHUP or EPOLLERR.
  /// Errors: io.
  Result<Watch> watch(int fd, std::uint32_t events, Handler handler);
  /// Has the descriptor of `watch` handled in each round, however many others are ready.
  void put_first(const Watch& watch) noexcept { first_ = {watch.fd_, watch.id_}; }

  /// Calls its function once at a given time. Setting it allocates nothing.
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
    using TimerSet = std::set<std::pair<Clock::time_point, Timer*>>;
    EventLoop& loop_;
    const std::function<void()> fire_;
    Clock::time_point at_{};
    TimerSet::node_type node_;  // empty while the timer is in the loop's set
  };

  TaskQueue& tasks() noexcept { return tasks_; }
  void post(TaskQueue::Task task) { tasks_.post(std::move(task)); }

  /// Called at the end of each round of events and timers, and before tasks run.
  void at_end_of_round(std::function<void()> body) { end_of_round_ = std::move(body); }

  /// Polls for events for kSpinTime from now on, before the loop sleeps again: a client that has
  /// its reply usually sends the next request immediately.
  void stay_awake() noexcept;

  /// Runs until `stop`. Errors: io.
  Result<void> run();
  void stop() noexcept { stopped_ = true; }

  /// The number of rounds since `run` was called.
  std::uint64_t rounds() const noexcept { return rounds_; }
  /// The processor time of the longest round, without its waiting for events. Up to a quarter of a
  /// millisecond of earlier rounds may be counted in.
  std::chrono::nanoseconds longest_round() const noexcept { return longest_round_; }

 private:
  explicit EventLoop(Logger log) : log_(std::move(log)) {}
  static constexpr int kMaxEvents = 64;
  // What the parts of a round may take before the next round, apart from the last call of each.
  static constexpr std::chrono::milliseconds kEventsTime{2};
  static constexpr std::chrono::milliseconds kTasksTime{1};
  static constexpr std::chrono::milliseconds kTimersTime{1};
  struct First {
    int fd = -1;
    std::uint64_t id = 0;
  };

  Result<void> take_events();
  int wait(epoll_event* events, int max_events);
  void look_first();
  void handle(const epoll_event& event);
  void fire_timers();
  void end_round();
  void begin_part(Clock::time_point now, std::chrono::milliseconds part) noexcept;
  void begin_round(Clock::time_point now) noexcept;
  void measure_round() noexcept;
  bool is_part_over() const noexcept { return Clock::now() >= part_end_; }
  template <class Body>
  void call(const Body& body);

  const Logger log_;
  UniqueFd epoll_;
  TaskQueue tasks_;
  std::unordered_map<std::uint64_t, std::shared_ptr<const Handler>> handlers_;
  std::uint64_t last_id_ = 0;
  Timer::TimerSet timers_;
  std::function<void()> end_of_round_;
  Clock::time_point spin_until_{};
  std::uint64_t rounds_ = 0;
  std::vector<epoll_event> events_;  // of the last wait; those from next_event_ on are not handled
  std::size_t next_event_ = 0;
  bool has_tasks_ = false;
  First first_;
  Clock::time_point part_end_{};
  Clock::time_point round_began_{};
  Clock::time_point thread_time_read_at_{};
  std::chrono::nanoseconds thread_time_{};
  std::chrono::nanoseconds longest_round_{};
  bool stopped_ = false;
};

}  // namespace cukiln::daemon
