// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "wire/unix_socket.hpp"

namespace cukiln::testing {

inline UniqueFd seqpacket_listener(const std::string& path) {
  const auto to = wire::unix_address(path);
  REQUIRE(to);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&to->address), to->size) == 0);
  REQUIRE(::listen(fd.get(), 8) == 0);
  return fd;
}

inline UniqueFd seqpacket_client(const std::string& path) {
  const auto to = wire::unix_address(path);
  REQUIRE(to);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to->address), to->size) == 0);
  return fd;
}

/// Waits up to ten seconds for a datagram; empty if the peer has closed.
inline std::string next_datagram(int socket, std::vector<UniqueFd>* descriptors = nullptr) {
  pollfd polled{socket, POLLIN, 0};
  REQUIRE(::poll(&polled, 1, 10'000) == 1);
  std::array<char, 4096> bytes{};
  std::vector<UniqueFd> received;
  const ssize_t got = wire::receive_some(socket, bytes.data(), bytes.size(), received);
  if (descriptors != nullptr) {
    *descriptors = std::move(received);
  }
  return {bytes.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

}  // namespace cukiln::testing
