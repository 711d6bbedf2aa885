// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "addons/daemon/protocol/unix_socket.hpp"
#include "core/base/file.hpp"

namespace cukiln::testing {

/// Listens at the daemon's socket, answers with fixed bytes and closes the connection.
class FakeDaemon {
 public:
  enum class HangsUp { at_once, last };
  FakeDaemon(const std::string& path, std::string bytes, HangsUp when = HangsUp::at_once,
             std::chrono::milliseconds greets_after = {})
      : bytes_(std::move(bytes)), when_(when) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    const auto address = wire::unix_address(path);
    REQUIRE(address);
    socket_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address->address),
                   address->size) == 0);
    REQUIRE(::listen(socket_.get(), 16) == 0);
    thread_ = std::thread([this, greets_after] {
      for (;;) {
        const UniqueFd client(::accept(socket_.get(), nullptr, nullptr));
        if (!client) {
          return;
        }
        ++accepted;
        std::this_thread::sleep_for(greets_after);
        static_cast<void>(::send(client.get(), bytes_.data(), bytes_.size(), MSG_NOSIGNAL));
        char buffer[4096];
        ssize_t got = 0;
        do {
          got = ::recv(client.get(), buffer, sizeof buffer, 0);
          heard += static_cast<int>(std::max<ssize_t>(got, 0));
        } while (got > 0 && when_ == HangsUp::last);
        ++ended;
      }
    });
  }
  ~FakeDaemon() {
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }
  std::atomic<int> accepted{0}, ended{0};
  std::atomic<int> heard{0};  ///< bytes received

 private:
  const std::string bytes_;
  const HangsUp when_;
  UniqueFd socket_;
  std::thread thread_;
};

}  // namespace cukiln::testing
