// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>

#include "addons/daemon/protocol/daemon_messages.hpp"
#include "addons/daemon/protocol/sealed_file.hpp"
#include "addons/daemon/protocol/unix_socket.hpp"
#include "core/base/serial.hpp"

namespace cukiln::testing {

/// A client of cukilnd that sends arbitrary bytes.
class RawClient {
 public:
  using DaemonOp = wire::DaemonOp;

  explicit RawClient(const std::string& path, bool greeted = true)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto to = wire::unix_address(path);
    REQUIRE(to);
    connected_ =
        ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&to->address), to->size) == 0;
    if (connected_ && greeted) {
      CHECK(greeting());
      frame(DaemonOp::hello, 0, wire::DaemonHello{wire::kDaemonProtocol, 1, "test"}.encode());
    }
  }
  bool connected() const noexcept { return connected_; }
  int descriptor() const noexcept { return socket_.get(); }
  /// Sends all bytes, unless the daemon closes the connection.
  void send(ByteView bytes, int descriptor = -1) const {
    while (!bytes.empty()) {
      const ssize_t sent = wire::send_some(socket_.get(), {bytes}, descriptor);
      pollfd polled{socket_.get(), POLLOUT, 0};
      const bool later = errno == EAGAIN || errno == ETOOMANYREFS;
      if (sent < 0 && (!later || ::poll(&polled, 1, 10'000) <= 0)) {
        return;
      }
      if (sent > 0) {
        bytes.remove_prefix(static_cast<std::size_t>(sent));
        descriptor = -1;
      }
    }
  }
  void frame(DaemonOp op, std::uint64_t id, const std::string& body, int descriptor = -1) const {
    send(wire::encode_header(op, id, body.size(), descriptor >= 0) + body, descriptor);
  }
  /// Receives that many bytes, or those before the end.
  std::string text(std::size_t size) const {
    std::string bytes(size, '\0');
    const ssize_t got = ::recv(socket_.get(), bytes.data(), size, MSG_WAITALL);
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return bytes;
  }
  /// True if it arrived.
  bool greeting() const { return text(wire::kGreetingBytes).size() == wire::kGreetingBytes; }
  /// True if the daemon closes the connection within `limit`.
  bool hung_up(std::chrono::milliseconds limit) const {
    const auto until = std::chrono::steady_clock::now() + limit;
    for (;;) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now())
              .count();
      pollfd polled{socket_.get(), POLLIN, 0};
      if (left <= 0 || ::poll(&polled, 1, static_cast<int>(left)) <= 0) {
        return false;
      }
      char buffer[4096];
      if (::recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT) <= 0) {
        return true;
      }
    }
  }
  /// True if bytes have arrived or the daemon has closed the connection.
  bool readable() const {
    pollfd polled{socket_.get(), POLLIN, 0};
    return ::poll(&polled, 1, 0) > 0;
  }
  /// The operation of the next frame.
  std::optional<DaemonOp> answer() const {
    const std::string header = text(wire::kDaemonHeaderBytes);
    if (header.size() != wire::kDaemonHeaderBytes) {
      return std::nullopt;
    }
    SerialReader in(header);
    const std::uint32_t size = in.u32();
    const auto op = static_cast<DaemonOp>(in.u32() & 0xffff);
    if (size != 0) {  // recv would wait for a byte
      static_cast<void>(text(size));
    }
    return op;
  }
  /// As `answer`, of the next frame that is no progress: a busy daemon sends some before others.
  std::optional<DaemonOp> outcome() const {
    std::optional<DaemonOp> op = answer();
    while (op == DaemonOp::progress) {
      op = answer();
    }
    return op;
  }

 private:
  UniqueFd socket_;
  bool connected_ = false;
};

}  // namespace cukiln::testing
