// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/file.hpp"

namespace cukiln::testing {

/// A connection to a server that breaks the protocol on purpose.
class ScriptedPeer {
 public:
  ScriptedPeer(int socket, const std::atomic<bool>& stop) : socket_(socket), stop_(stop) {}

  /// Reads until `end` has arrived or the client has closed the connection.
  std::string read_until(const std::string& end) const {
    std::string got;
    char buffer[4096];
    while (!stop_ && got.find(end) == std::string::npos) {
      pollfd one{socket_, POLLIN, 0};
      if (::poll(&one, 1, 20) <= 0) {
        continue;
      }
      const ssize_t count = ::recv(socket_, buffer, sizeof buffer, 0);
      if (count <= 0) {
        break;
      }
      got.append(buffer, static_cast<std::size_t>(count));
    }
    return got;
  }
  bool send(const std::string& bytes) const {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  void send_endlessly(const std::string& bytes, std::chrono::milliseconds pause = {}) const {
    while (!stop_ && send(bytes)) {
      std::this_thread::sleep_for(pause);
    }
  }
  void hang() const {
    while (!stop_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  int socket_;
  const std::atomic<bool>& stop_;
};

/// A port of the loopback that drops packets: its queue is full, and no connection is accepted.
class BlackHole {
 public:
  BlackHole() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size);
    ::listen(listener_.get(), 0);
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = std::to_string(ntohs(address.sin_port));
    for (UniqueFd& filler : fillers_) {
      filler = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      ::connect(filler.get(), reinterpret_cast<sockaddr*>(&address), size);
    }
  }
  const std::string& port() const { return port_; }

 private:
  UniqueFd listener_;
  UniqueFd fillers_[4];
  std::string port_;
};

/// A server on a free port of the loopback. It runs `script` for each connection, in a thread of
/// its own, and then closes the connection.
class ScriptedServer {
 public:
  using Script = std::function<void(const ScriptedPeer&)>;

  explicit ScriptedServer(Script script)
      : script_(std::move(script)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size);
    ::listen(listener_.get(), 64);
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = std::to_string(ntohs(address.sin_port));
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~ScriptedServer() {
    stop_ = true;
    acceptor_.join();
    for (std::thread& thread : peers_) {
      thread.join();
    }
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  std::string http(const std::string& path = "/cache") const {
    return "http://127.0.0.1:" + port_ + path;
  }
  std::string redis() const { return "redis://127.0.0.1:" + port_; }
  int connections() const { return connections_; }

 private:
  void accept_all() {
    while (!stop_) {
      pollfd one{listener_.get(), POLLIN, 0};
      if (::poll(&one, 1, 20) <= 0) {
        continue;
      }
      const int socket = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) {
        continue;
      }
      ++connections_;
      peers_.emplace_back([this, socket] {
        const UniqueFd owner(socket);
        script_(ScriptedPeer(socket, stop_));
      });
    }
  }

  const Script script_;
  const UniqueFd listener_;
  std::string port_;
  std::atomic<bool> stop_{false};
  std::atomic<int> connections_{0};
  std::vector<std::thread> peers_;
  std::thread acceptor_;
};

}  // namespace cukiln::testing
