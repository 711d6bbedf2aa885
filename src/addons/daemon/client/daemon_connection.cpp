// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/client/daemon_connection.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <thread>
#include <utility>

#include "addons/daemon/client/spin_wait.hpp"
#include "addons/daemon/protocol/unix_socket.hpp"
#include "core/base/poll_until.hpp"
#include "core/base/result.hpp"
#include "core/wire/frame.hpp"

namespace cukiln {

namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFullQueuePause{1};

std::string program_name() {
  std::array<char, 4096> path{};
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  const std::string_view whole(path.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  return std::string(whole.substr(whole.find_last_of('/') + 1));
}

}  // namespace

WaitResult wait_for(int fd, short events, SteadyClock::time_point deadline, CancelFlags cancelled) {
  // An error of poll counts as ready: the read or write that follows reports it.
  const auto is_ready = [&](milliseconds slice) {
    pollfd polled{fd, events, 0};
    return poll_until(&polled, 1, deadline, slice) != Polled::waiting;
  };
  bool ready = spin_until(std::min(deadline, SteadyClock::now() + kSpinTime),
                          [&] { return cancelled.is_set() || is_ready(milliseconds(0)); });
  const auto slice = cancelled.can_be_set() ? wire::kCancelPoll : milliseconds::max();
  for (;;) {
    if (cancelled.is_set()) {
      return WaitResult::cancelled;
    }
    if (ready) {
      return WaitResult::ready;
    }
    if (SteadyClock::now() >= deadline) {
      return WaitResult::deadline;
    }
    ready = is_ready(slice);
  }
}

namespace {

/// Connects to the socket at `path`. Errors: not_found (no daemon listens there), timeout, io.
Result<UniqueFd> connect_to(const std::string& path, SteadyClock::time_point deadline) {
  CUKILN_TRY(const wire::UnixAddress to, wire::unix_address(path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) {
    return make_error(ErrorCode::io, "cannot create a socket: {}", errno_text(errno));
  }
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.address), to.size) != 0) {
    // EAGAIN: the daemon's listen queue is full. It is running, and may soon accept.
    if (errno == EINTR || (errno == EAGAIN && SteadyClock::now() < deadline)) {
      std::this_thread::sleep_for(kFullQueuePause);
      continue;
    }
    const bool not_running = errno == ENOENT || errno == ECONNREFUSED || errno == ENOTDIR;
    return make_error(not_running       ? ErrorCode::not_found
                      : errno == EAGAIN ? ErrorCode::timeout
                                        : ErrorCode::io,
                      "cukilnd cannot be reached at {}: {}", path, errno_text(errno));
  }
  return fd;
}

/// Checks the user of the process that listens at `path`: this one, or root, as which a service
/// manager may listen for this user's daemon. Errors: io.
Result<void> check_peer(int socket, const std::string& path, uid_t self) {
  CUKILN_TRY(const wire::Peer listener, wire::peer_of(socket));
  if (listener.user != self && listener.user != 0) {
    return make_error(ErrorCode::io,
                      "the process that listens at {} is user {}'s, expected user {}: remove that "
                      "socket, or set daemon=off",
                      path, listener.user, self);
  }
  return {};
}

/// Receives the greeting and checks its version. Errors: timeout, io, incompatible.
Result<wire::Greeting> receive_greeting(int socket, const std::string& path,
                                        SteadyClock::time_point deadline, milliseconds timeout) {
  std::string bytes;
  std::array<char, wire::kGreetingBytes> buffer{};
  while (bytes.size() < wire::kGreetingBytes) {
    if (wait_for(socket, POLLIN, deadline, {}) != WaitResult::ready) {
      return make_error(ErrorCode::timeout, "cukilnd at {} sent no greeting for {} ms", path,
                        timeout.count());
    }
    std::vector<UniqueFd> none;
    const ssize_t got =
        wire::receive_some(socket, buffer.data(), wire::kGreetingBytes - bytes.size(), none);
    if (got == 0 || (got < 0 && errno != EAGAIN)) {
      return make_error(ErrorCode::io, "cukilnd at {} closed the connection", path);
    }
    bytes.append(buffer.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  }
  wire::Greeting greeting;
  if (!wire::Greeting::decode(bytes, greeting)) {
    return make_error(ErrorCode::incompatible,
                      "the process that listens at {} is not cukilnd: its greeting is malformed",
                      path);
  }
  if (wire::kDaemonProtocol < greeting.oldest_version ||
      wire::kDaemonProtocol > greeting.newest_version) {
    return make_error(
        ErrorCode::incompatible,
        "cukilnd at {} has protocol versions {} to {}, expected {}: restart it from the same "
        "version as this program",
        path, greeting.oldest_version, greeting.newest_version, wire::kDaemonProtocol);
  }
  return greeting;
}

}  // namespace

Result<std::unique_ptr<DaemonConnection>> DaemonConnection::open(
    const std::string& path, const DaemonClient::Options& options) {
  // A client that cannot fall back waits for a daemon that the service manager is starting.
  const milliseconds timeout = options.required
                                   ? std::max(options.connect_timeout, options.heartbeat)
                                   : options.connect_timeout;
  const auto deadline = SteadyClock::now() + timeout;
  auto connection = std::make_unique<DaemonConnection>();
  CUKILN_TRY(UniqueFd socket, connect_to(path, deadline));
  connection->socket = KeptFd(std::move(socket));
  const int fd = connection->socket.get();
  CUKILN_CHECK(
      check_peer(fd, path, options.own_user != nullptr ? options.own_user() : ::geteuid()));
  CUKILN_TRY(connection->greeting, receive_greeting(fd, path, deadline, timeout));
  wire::DaemonHello hello;
  hello.process = static_cast<std::uint32_t>(::getpid());
  hello.program = program_name();
  const std::string body = hello.encode();
  const std::string header = wire::encode_header(wire::DaemonOp::hello, 0, body.size(), false);
  if (wire::send_some(fd, {header, body}, -1) !=
      static_cast<ssize_t>(header.size() + body.size())) {
    return make_error(ErrorCode::io, "cukilnd at {} closed the connection", path);
  }
  return connection;
}

}  // namespace cukiln
