// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/event_loop.hpp"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <utility>

#include "addons/daemon/client/spin_wait.hpp"
#include "core/base/result.hpp"

namespace cukiln::daemon {

namespace {

constexpr std::uint64_t kTasksId = 0;
constexpr std::chrono::microseconds kThreadTimeInterval{250};

/// The processor time of this thread.
std::chrono::nanoseconds thread_time() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::create(Logger log) {
  std::unique_ptr<EventLoop> self(new EventLoop(std::move(log)));
  self->epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kTasksId;
  if (::epoll_ctl(self->epoll_.get(), EPOLL_CTL_ADD, self->tasks_.fd(), &event) != 0) {
    return make_error(ErrorCode::io, "cannot set up the event loop: {}", errno_text(errno));
  }
  return self;
}

EventLoop::Watch::Watch(Watch&& other) noexcept { *this = std::move(other); }

EventLoop::Watch& EventLoop::Watch::operator=(Watch&& other) noexcept {
  if (this != &other) {
    reset();
    loop_ = std::exchange(other.loop_, nullptr);
    fd_ = other.fd_;
    id_ = other.id_;
  }
  return *this;
}

void EventLoop::Watch::set(std::uint32_t events) noexcept {
  if (loop_ != nullptr) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id_;
    ::epoll_ctl(loop_->epoll_.get(), EPOLL_CTL_MOD, fd_, &event);
  }
}

void EventLoop::Watch::reset() noexcept {
  if (loop_ != nullptr) {
    ::epoll_ctl(loop_->epoll_.get(), EPOLL_CTL_DEL, fd_, nullptr);
    loop_->handlers_.erase(id_);
    loop_ = nullptr;
  }
}

Result<EventLoop::Watch> EventLoop::watch(int fd, std::uint32_t events, Handler handler) {
  Watch watch;
  epoll_event event{};
  event.events = events;
  event.data.u64 = ++last_id_;
  handlers_.emplace(last_id_, std::make_shared<const Handler>(std::move(handler)));
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    const int why = errno;
    handlers_.erase(last_id_);
    return make_error(ErrorCode::io, "epoll_ctl failed: {}", errno_text(why));
  }
  watch.loop_ = this;
  watch.fd_ = fd;
  watch.id_ = last_id_;
  return watch;
}

EventLoop::Timer::Timer(EventLoop& loop, std::function<void()> fire)
    : loop_(loop), fire_(std::move(fire)) {
  TimerSet one;
  one.emplace(at_, this);
  node_ = one.extract(one.begin());
}

void EventLoop::Timer::set(Clock::time_point at) noexcept {
  cancel();
  at_ = at;
  node_.value() = {at, this};
  loop_.timers_.insert(std::move(node_));
}

void EventLoop::Timer::cancel() noexcept {
  if (is_set()) {
    node_ = loop_.timers_.extract({at_, this});
  }
}

void EventLoop::stay_awake() noexcept { spin_until_ = Clock::now() + kSpinTime; }

template <class Body>
void EventLoop::call(const Body& body) {
  const auto done = guarded([&]() -> Result<void> {
    body();
    return {};
  });
  if (!done) {
    log_.error("a handler of the event loop failed: {}", done.error().message());
  }
}

void EventLoop::fire_timers() {
  const auto now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first <= now && !is_part_over()) {
    Timer& timer = *timers_.begin()->second;
    timer.cancel();
    call(timer.fire_);
  }
}

void EventLoop::end_round() {
  if (end_of_round_) {
    call(end_of_round_);
  }
}

int EventLoop::wait(epoll_event* events, int max_events) {
  int count = 0;
  const auto has_events = [&] {
    count = ::epoll_wait(epoll_.get(), events, max_events, 0);
    return count != 0;
  };
  if (spin_until(spin_until_, has_events)) {
    return count;
  }
  int timeout_ms = -1;
  if (!timers_.empty()) {
    const auto left = timers_.begin()->first - Clock::now();
    const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left_ms, 0, 1 << 30));
  }
  return ::epoll_wait(epoll_.get(), events, max_events, timeout_ms);
}

/// Waits for events, unless some of the last wait are left.
Result<void> EventLoop::take_events() {
  if (next_event_ < events_.size()) {
    look_first();
    return {};
  }
  events_.resize(kMaxEvents);
  next_event_ = 0;
  const int count = wait(events_.data(), kMaxEvents);
  const int why = errno;
  events_.resize(static_cast<std::size_t>(std::max(count, 0)));
  if (count < 0 && why != EINTR) {
    return make_error(ErrorCode::io, "epoll_wait failed: {}", errno_text(why));
  }
  std::erase_if(events_, [&](const epoll_event& event) {
    const bool is_task = event.data.u64 == kTasksId;
    has_tasks_ |= is_task;
    return is_task;
  });
  return {};
}

/// Looks for what must not wait until all events of the last wait are handled.
void EventLoop::look_first() {
  std::array<pollfd, 2> polled{{{tasks_.fd(), POLLIN, 0}, {first_.fd, POLLIN, 0}}};
  if (::poll(polled.data(), polled.size(), 0) <= 0) {
    return;
  }
  has_tasks_ |= polled[0].revents != 0;
  if ((polled[1].revents & POLLIN) != 0) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = first_.id;
    handle(event);
  }
}

void EventLoop::handle(const epoll_event& event) {
  // A handler may remove other handlers, and itself: the copy keeps it alive during its call.
  if (const auto at = handlers_.find(event.data.u64); at != handlers_.end()) {
    const std::shared_ptr<const Handler> handler = at->second;
    call([&] { (*handler)(event.events); });
  }
}

void EventLoop::begin_part(Clock::time_point now, std::chrono::milliseconds part) noexcept {
  part_end_ = now + part;
}

/// Reads the thread's time once in a while only, because that is a system call and most rounds of a
/// hit are shorter than 20 us.
void EventLoop::begin_round(Clock::time_point now) noexcept {
  ++rounds_;
  round_began_ = now;
  if (now - thread_time_read_at_ >= kThreadTimeInterval) {
    thread_time_read_at_ = now;
    thread_time_ = thread_time();
  }
}

void EventLoop::measure_round() noexcept {
  const std::chrono::nanoseconds took = Clock::now() - round_began_;  // a thread's time is no more
  if (took > longest_round_) {
    longest_round_ = std::max(longest_round_, std::min(took, thread_time() - thread_time_));
  }
}

Result<void> EventLoop::run() {
  end_round();
  while (!stopped_) {
    CUKILN_CHECK(take_events());
    const auto now = Clock::now();
    begin_round(now);
    begin_part(now, kEventsTime);
    while (next_event_ < events_.size()) {
      handle(events_[next_event_++]);
      if (is_part_over()) {
        break;
      }
    }
    if (std::exchange(has_tasks_, false)) {
      end_round();
      tasks_.run_pending(log_, Clock::now() + kTasksTime);
    }
    begin_part(Clock::now(), kTimersTime);
    fire_timers();
    end_round();
    measure_round();
  }
  return {};
}

}  // namespace cukiln::daemon
