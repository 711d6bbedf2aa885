// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <string>

#include "core/base/file.hpp"

namespace cukiln::testing {

/// A connected TCP socket with unsent bytes, whose last close blocks for `limit`.
struct LingeringSocket {
  UniqueFd socket, other, listener;

  explicit LingeringSocket(std::chrono::seconds limit) {
    listener = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    socket = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    other = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const linger lingers{1, static_cast<int>(limit.count())};
    REQUIRE(::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &lingers, sizeof lingers) == 0);
    const std::string bytes(1 << 16, 'x');
    while (::send(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
  }
};

}  // namespace cukiln::testing
