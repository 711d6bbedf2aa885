// SPDX-License-Identifier: Apache-2.0
#include "daemon/ops/http_door.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "base/result.hpp"

namespace cukiln::ops {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kEndOfHead = "\r\n\r\n";
constexpr milliseconds kPauseWithoutMemory{100};
constexpr int kAcceptedAtOnce = 16;

/// What is said to somebody who did not send a request.
std::string refusal(std::string_view status) {
  return fmt::format("HTTP/1.1 {}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", status);
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

UniqueFd open_spare() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

void notify(const UniqueFd& event) {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(event.get(), &one, sizeof one));
}

}  // namespace

Result<std::unique_ptr<HttpDoor>> HttpDoor::open(std::vector<Listener> listeners, Answer answer,
                                                 const HttpDoorLimits& limits) {
  std::unique_ptr<HttpDoor> door(new HttpDoor(std::move(listeners), std::move(answer), limits));
  door->wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  door->spare_ = open_spare();
  if (!door->wake_ || !door->spare_) {
    return make_error(ErrorCode::io, "the operations door cannot be opened: {}", errno_text(errno));
  }
  // Signals are the daemon's: its own thread waits for them.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  door->threads_.emplace_back([raw = door.get()] { raw->run(); });
  for (std::size_t i = 0; i < limits.threads; ++i) {
    door->threads_.emplace_back([raw = door.get()] { raw->make_answers(); });
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return door;
}

HttpDoor::~HttpDoor() {
  {
    const MutexLock hold(mutex_);
    stopping_ = true;
  }
  notify(wake_);
  has_jobs_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void HttpDoor::make_answers() {
  MutexLock hold(mutex_);
  for (;;) {
    has_jobs_.wait(hold, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) {
      return;
    }
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    hold.unlock();
    std::string answer = answer_(job.head, job.tcp);
    hold.lock();
    answers_.emplace_back(job.connection, std::move(answer));
    notify(wake_);
  }
}

void HttpDoor::run() {
  std::vector<pollfd> polled;
  std::vector<std::uint64_t> ids;
  for (;;) {
    polled.assign(1, {wake_.get(), POLLIN, 0});
    const bool accepts = has_room() && steady_clock::now() >= accept_again_;
    for (const Listener& listener : listeners_) {
      polled.push_back({accepts ? listener.socket.get() : -1, POLLIN, 0});
    }
    ids.clear();
    for (const auto& [id, connection] : connections_) {
      if (connection.state != State::answering) {
        const short events = connection.state == State::writing ? POLLOUT : POLLIN;
        polled.push_back({connection.socket.get(), events, 0});
        ids.push_back(id);
      }
    }
    if (::poll(polled.data(), polled.size(), poll_timeout()) < 0) {
      if (errno != EINTR) {  // ENOMEM
        std::this_thread::sleep_for(kPauseWithoutMemory);
      }
      continue;
    }
    if (polled[0].revents != 0) {
      std::uint64_t count = 0;
      static_cast<void>(!::read(wake_.get(), &count, sizeof count));
      const MutexLock hold(mutex_);
      if (stopping_) {
        return;
      }
    }
    take_answers();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto at = connections_.find(ids[i]);
      if (polled[1 + listeners_.size() + i].revents != 0 && !advance(at->first, at->second)) {
        connections_.erase(at);
      }
    }
    const auto now = steady_clock::now();
    for (auto at = connections_.begin(); at != connections_.end();) {
      Connection& connection = at->second;
      const bool is_over =
          connection.state != State::answering && connection.deadline <= now && !expire(connection);
      at = is_over ? connections_.erase(at) : std::next(at);
    }
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
      for (int n = 0; polled[1 + i].revents != 0 && n < kAcceptedAtOnce; ++n) {
        if (!accept_from(listeners_[i])) {
          break;
        }
      }
    }
  }
}

/// Until the next deadline; for ever where there is none.
int HttpDoor::poll_timeout() const {
  const auto now = steady_clock::now();
  auto next = Time::max();
  if (accept_again_ > now) {
    next = accept_again_;
  }
  for (const auto& [id, connection] : connections_) {
    if (connection.state != State::answering) {
      next = std::min(next, connection.deadline);
    }
  }
  if (next == Time::max()) {
    return -1;
  }
  return static_cast<int>(
      std::max<std::int64_t>(std::chrono::ceil<milliseconds>(next - now).count(), 0));
}

/// A full door still has room while somebody can be put out.
bool HttpDoor::has_room() const {
  return connections_.size() < limits_.connections ||
         std::any_of(connections_.begin(), connections_.end(),
                     [](const auto& item) { return item.second.state != State::answering; });
}

bool HttpDoor::accept_from(const Listener& listener) {
  UniqueFd socket(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    const bool no_descriptor = errno == EMFILE || errno == ENFILE;
    if (no_descriptor && !drop_one()) {
      shed(listener);
    } else if (errno == ENOBUFS || errno == ENOMEM) {
      accept_again_ = steady_clock::now() + kPauseWithoutMemory;
    }
    return false;  // whoever was to come in is met again at the next poll
  }
  if (connections_.size() >= limits_.connections && !drop_one()) {
    return false;
  }
  Connection connection;
  connection.socket = std::move(socket);
  connection.tcp = listener.tcp;
  connection.deadline = steady_clock::now() + limits_.head_wait;
  const auto [at, inserted] = connections_.emplace(next_id_++, std::move(connection));
  // Most requests are there already: in a flood of idle connections, theirs are served.
  if (!advance(at->first, at->second)) {
    connections_.erase(at);
  }
  return true;
}

/// Whoever sends slowest goes first, then whoever takes slowest.
bool HttpDoor::drop_one() {
  for (const State state : {State::lingering, State::reading, State::writing}) {
    const auto at = std::find_if(connections_.begin(), connections_.end(),
                                 [&](const auto& item) { return item.second.state == state; });
    if (at != connections_.end()) {
      connections_.erase(at);
      return true;
    }
  }
  return false;
}

/// No descriptor is left to accept with: the client is told by a closed connection, for otherwise
/// it would stay in the queue, and the listener ready, for ever.
void HttpDoor::shed(const Listener& listener) {
  spare_.reset();
  UniqueFd refused(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  refused.reset();
  spare_ = open_spare();
  if (!spare_) {
    accept_again_ = steady_clock::now() + kPauseWithoutMemory;
  }
}

bool HttpDoor::advance(std::uint64_t id, Connection& connection) {
  switch (connection.state) {
    case State::reading: return read_head(id, connection);
    case State::answering: return true;
    case State::writing: return write_answer(connection);
    case State::lingering: return discard_input(connection);
  }
  return false;
}

bool HttpDoor::read_head(std::uint64_t id, Connection& connection) {
  std::array<char, 4096> buffer;
  std::string& bytes = connection.bytes;
  while (bytes.size() <= limits_.head_bytes) {
    const ssize_t n = ::recv(connection.socket.get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0 && would_block()) {
      return true;
    }
    if (n <= 0) {
      return false;
    }
    const std::size_t from = bytes.size() - std::min(bytes.size(), kEndOfHead.size() - 1);
    bytes.append(buffer.data(), static_cast<std::size_t>(n));
    const std::size_t end = bytes.find(kEndOfHead, from);
    if (end != std::string::npos && end + kEndOfHead.size() <= limits_.head_bytes) {
      connection.state = State::answering;
      Job job{id, bytes.substr(0, end + kEndOfHead.size()), connection.tcp};
      const MutexLock hold(mutex_);
      jobs_.push_back(std::move(job));
      has_jobs_.notify_one();
      return true;
    }
  }
  send(connection, refusal("431 Request Header Fields Too Large"));
  return write_answer(connection);
}

void HttpDoor::send(Connection& connection, std::string answer) const {
  connection.bytes = std::move(answer);
  connection.written = 0;
  connection.state = State::writing;
  connection.deadline = steady_clock::now() + limits_.write_wait;
}

bool HttpDoor::write_answer(Connection& connection) const {
  const int socket = connection.socket.get();
  while (connection.written < connection.bytes.size()) {
    const ssize_t n = ::send(socket, connection.bytes.data() + connection.written,
                             connection.bytes.size() - connection.written, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return would_block();
    }
    connection.written += static_cast<std::size_t>(n);
  }
  // A socket that is closed with input unread is reset, and the answer may be lost with it.
  ::shutdown(socket, SHUT_WR);
  connection.state = State::lingering;
  connection.deadline = steady_clock::now() + limits_.linger;
  return discard_input(connection);
}

bool HttpDoor::discard_input(const Connection& connection) {
  std::array<char, 4096> buffer;
  // A client that keeps sending is met again at the next poll, and goes at its deadline.
  const ssize_t n = ::recv(connection.socket.get(), buffer.data(), buffer.size(), 0);
  return n > 0 || (n < 0 && (would_block() || errno == EINTR));
}

/// True: there is something to say first.
bool HttpDoor::expire(Connection& connection) const {
  if (connection.state != State::reading || connection.bytes.empty()) {
    return false;
  }
  send(connection, refusal("408 Request Timeout"));
  return write_answer(connection);
}

void HttpDoor::take_answers() {
  std::vector<std::pair<std::uint64_t, std::string>> answers;
  {
    const MutexLock hold(mutex_);
    answers.swap(answers_);
  }
  for (auto& [id, answer] : answers) {
    const auto at = connections_.find(id);
    if (at != connections_.end()) {  // always so: who waits for an answer is not put out
      send(at->second, std::move(answer));
      if (!write_answer(at->second)) {
        connections_.erase(at);
      }
    }
  }
}

}  // namespace cukiln::ops
