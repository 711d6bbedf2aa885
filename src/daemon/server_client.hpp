// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "base/file.hpp"
#include "daemon/server.hpp"
#include "wire/daemon_frame.hpp"
#include "wire/unix_socket.hpp"

namespace cukiln::daemon {

/// One connection.
struct Server::Client {
  struct Unsent {
    std::string bytes;
    std::size_t done = 0;
    std::shared_ptr<UniqueFd> attachment;
  };
  std::uint64_t number = 0;
  UniqueFd socket;
  wire::Peer peer;
  std::string program;
  bool greeted = false;
  bool closed = false;
  bool watched_for_room = false;
  wire::DaemonFrameParser parser;
  std::deque<Unsent> unsent;
  std::size_t unsent_bytes = 0;
  std::chrono::steady_clock::time_point deadline =
      std::chrono::steady_clock::time_point::max();  ///< for the rest of a frame
};

}  // namespace cukiln::daemon
