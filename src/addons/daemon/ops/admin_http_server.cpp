// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/ops/admin_http_server.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <csignal>

#include "core/base/result.hpp"

namespace cukiln::ops {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kEndOfHead = "\r\n\r\n";
constexpr milliseconds kPauseWithoutMemory{100};
constexpr int kMaxAcceptsPerPoll = 16;

/// The response to a client that sent no valid head.
std::string error_response(std::string_view status) {
  return fmt::format("HTTP/1.1 {}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", status);
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

UniqueFd open_spare() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

void notify(const UniqueFd& event) {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(event.get(), &one, sizeof one));
}

}  // namespace

Result<std::unique_ptr<AdminHttpServer>> AdminHttpServer::open(std::vector<HttpListener> listeners,
                                                               Respond respond,
                                                               const AdminHttpLimits& limits) {
  std::unique_ptr<AdminHttpServer> server(
      new AdminHttpServer(std::move(listeners), std::move(respond), limits));
  server->wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  server->spare_fd_ = open_spare();
  if (!server->wake_ || !server->spare_fd_) {
    return make_error(ErrorCode::io, "the admin HTTP server cannot start: {}", errno_text(errno));
  }
  // These threads block all signals: the daemon's event loop takes them by a signalfd.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  server->threads_.emplace_back([raw = server.get()] { raw->run_io(); });
  for (std::size_t i = 0; i < limits.threads; ++i) {
    server->threads_.emplace_back([raw = server.get()] { raw->run_responder(); });
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return server;
}

AdminHttpServer::~AdminHttpServer() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  notify(wake_);
  has_jobs_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void AdminHttpServer::run_responder() {
  MutexLock lock(mutex_);
  for (;;) {
    has_jobs_.wait(lock, [this]() CUKILN_REQUIRES(mutex_) { return stopping_ || !jobs_.empty(); });
    if (stopping_) {
      return;
    }
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    std::string response = respond_(job.head, job.tcp);
    lock.lock();
    responses_.emplace_back(job.connection, std::move(response));
    notify(wake_);
  }
}

void AdminHttpServer::run_io() {
  while (poll_once()) {
    take_responses();
    advance_ready();
    expire_overdue();
    accept_new();
  }
}

bool AdminHttpServer::poll_once() {
  for (;;) {
    polled_.assign(1, {wake_.get(), POLLIN, 0});
    const bool accepts = has_room() && steady_clock::now() >= accept_again_;
    for (const HttpListener& listener : listeners_) {
      polled_.push_back({accepts ? listener.socket.get() : -1, POLLIN, 0});
    }
    polled_ids_.clear();
    for (const auto& [id, connection] : connections_) {
      if (connection.state != State::responding) {
        const short events = connection.state == State::writing ? POLLOUT : POLLIN;
        polled_.push_back({connection.socket.get(), events, 0});
        polled_ids_.push_back(id);
      }
    }
    if (::poll(polled_.data(), polled_.size(), poll_timeout()) >= 0) {
      break;
    }
    if (errno != EINTR) {  // ENOMEM
      std::this_thread::sleep_for(kPauseWithoutMemory);
    }
  }
  if (polled_[0].revents != 0) {
    std::uint64_t count = 0;
    static_cast<void>(!::read(wake_.get(), &count, sizeof count));
    const MutexLock lock(mutex_);
    return !stopping_;
  }
  return true;
}

void AdminHttpServer::advance_ready() {
  for (std::size_t i = 0; i < polled_ids_.size(); ++i) {
    const auto at = connections_.find(polled_ids_[i]);
    if (at != connections_.end() && polled_[1 + listeners_.size() + i].revents != 0 &&
        !advance(at->first, at->second)) {
      connections_.erase(at);
    }
  }
}

void AdminHttpServer::expire_overdue() {
  const auto now = steady_clock::now();
  for (auto at = connections_.begin(); at != connections_.end();) {
    Connection& connection = at->second;
    const bool must_close =
        connection.state != State::responding && connection.deadline <= now && !expire(connection);
    at = must_close ? connections_.erase(at) : std::next(at);
  }
}

void AdminHttpServer::accept_new() {
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    for (int n = 0; polled_[1 + i].revents != 0 && n < kMaxAcceptsPerPoll; ++n) {
      if (!accept_from(listeners_[i])) {
        break;
      }
    }
  }
}

/// Milliseconds until the next deadline; -1 if there is none.
int AdminHttpServer::poll_timeout() const {
  const auto now = steady_clock::now();
  auto next = Time::max();
  if (accept_again_ > now) {
    next = accept_again_;
  }
  for (const auto& [id, connection] : connections_) {
    if (connection.state != State::responding) {
      next = std::min(next, connection.deadline);
    }
  }
  if (next == Time::max()) {
    return -1;
  }
  return static_cast<int>(
      std::max<std::int64_t>(std::chrono::ceil<milliseconds>(next - now).count(), 0));
}

/// True also at the limit, if a connection can be dropped for a new one.
bool AdminHttpServer::has_room() const {
  return connections_.size() < limits_.connections ||
         std::any_of(connections_.begin(), connections_.end(),
                     [](const auto& item) { return item.second.state != State::responding; });
}

bool AdminHttpServer::accept_from(const HttpListener& listener) {
  UniqueFd socket(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    const bool no_descriptor = errno == EMFILE || errno == ENFILE;
    if (no_descriptor && !drop_one()) {
      reject_one(listener);
    } else if (errno == ENOBUFS || errno == ENOMEM) {
      accept_again_ = steady_clock::now() + kPauseWithoutMemory;
    }
    return false;  // pending connections are accepted after the next poll
  }
  if (connections_.size() >= limits_.connections && !drop_one()) {
    return false;
  }
  Connection connection;
  connection.socket = std::move(socket);
  connection.tcp = listener.tcp;
  connection.deadline = steady_clock::now() + limits_.head_timeout;
  const auto [at, inserted] = connections_.emplace(next_id_++, std::move(connection));
  // Most requests have arrived by now. Read them before a flood of idle connections drops theirs.
  if (!advance(at->first, at->second)) {
    connections_.erase(at);
  }
  return true;
}

/// Drops the oldest connection of those that linger, else of those that send, else of those that
/// receive.
bool AdminHttpServer::drop_one() {
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

/// Accepts and closes one connection when no descriptor is left. It would otherwise stay in the
/// listen queue, keep the listener readable and make this thread spin.
void AdminHttpServer::reject_one(const HttpListener& listener) {
  spare_fd_.reset();
  UniqueFd rejected(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  rejected.reset();
  spare_fd_ = open_spare();
  if (!spare_fd_) {
    accept_again_ = steady_clock::now() + kPauseWithoutMemory;
  }
}

bool AdminHttpServer::advance(std::uint64_t id, Connection& connection) {
  switch (connection.state) {
    case State::reading: return read_head(id, connection);
    case State::responding: return true;
    case State::writing: return write_response(connection);
    case State::lingering: return discard_input(connection);
  }
  return false;
}

bool AdminHttpServer::read_head(std::uint64_t id, Connection& connection) {
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
      connection.state = State::responding;
      Job job{id, bytes.substr(0, end + kEndOfHead.size()), connection.tcp};
      const MutexLock lock(mutex_);
      jobs_.push_back(std::move(job));
      has_jobs_.notify_one();
      return true;
    }
  }
  start_response(connection, error_response("431 Request Header Fields Too Large"));
  return write_response(connection);
}

void AdminHttpServer::start_response(Connection& connection, std::string response) const {
  connection.bytes = std::move(response);
  connection.written = 0;
  connection.state = State::writing;
  connection.deadline = steady_clock::now() + limits_.response_timeout;
}

bool AdminHttpServer::write_response(Connection& connection) const {
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
  // Closing a socket with unread input resets it, and the client may lose the response.
  ::shutdown(socket, SHUT_WR);
  connection.state = State::lingering;
  connection.deadline = steady_clock::now() + limits_.linger;
  return discard_input(connection);
}

bool AdminHttpServer::discard_input(const Connection& connection) {
  std::array<char, 4096> buffer;
  // One read per poll: a client that keeps sending is closed at its deadline.
  const ssize_t n = ::recv(connection.socket.get(), buffer.data(), buffer.size(), 0);
  return n > 0 || (n < 0 && (would_block() || errno == EINTR));
}

/// Starts an error response to a client that sent part of a head. False: close without one.
bool AdminHttpServer::expire(Connection& connection) const {
  if (connection.state != State::reading || connection.bytes.empty()) {
    return false;
  }
  start_response(connection, error_response("408 Request Timeout"));
  return write_response(connection);
}

void AdminHttpServer::take_responses() {
  std::vector<std::pair<std::uint64_t, std::string>> responses;
  {
    const MutexLock lock(mutex_);
    responses.swap(responses_);
  }
  for (auto& [id, response] : responses) {
    const auto at = connections_.find(id);
    assert(at != connections_.end());  // a connection in State::responding is never dropped
    if (at != connections_.end()) {
      start_response(at->second, std::move(response));
      if (!write_response(at->second)) {
        connections_.erase(at);
      }
    }
  }
}

}  // namespace cukiln::ops
