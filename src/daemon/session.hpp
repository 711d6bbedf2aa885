// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.hpp"
#include "base/logger.hpp"
#include "daemon/counters.hpp"
#include "daemon/event_loop.hpp"
#include "daemon/request_handle.hpp"
#include "wire/daemon_frame.hpp"
#include "wire/unix_socket.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// One client: its socket, its credentials, its frames in and out, and its limits. What breaks the
/// protocol, is too slow or has no memory ends this session and no other. A closed session stays
/// until it is removed at the end of a round, so that who closes it may still look at it.
/// Threads: the loop's only.
class Session {
 public:
  struct Limits {
    std::size_t max_unsent_bytes = 16 << 20;       ///< for a client that does not read
    std::chrono::milliseconds frame_within{2000};  ///< a frame that began, or the first one
  };
  class Handler {
   public:
    virtual ~Handler() = default;
    /// A frame of a client that has said hello.
    virtual void on_frame(Session& session, wire::DaemonFrame& frame) = 0;
    virtual void on_closed(Session& session) noexcept = 0;
  };
  /// What all sessions share. Outlives them.
  struct Shared {
    EventLoop& loop;
    DaemonCounters& counters;
    Logger log;
    Limits limits;
    Handler* handler = nullptr;
    std::string read_buffer{};
  };

  Session(std::uint64_t number, UniqueFd socket, const wire::Peer& peer, Shared& shared);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Watches the socket and greets the client. Errors: io.
  Result<void> begin(const std::string& greeting);

  std::uint64_t number() const noexcept { return number_; }
  const wire::Peer& peer() const noexcept { return peer_; }
  bool closed() const noexcept { return closed_; }
  /// The request of this client with this number.
  RequestHandle request(std::uint64_t id) const noexcept;

  void send(wire::DaemonOp op, std::uint64_t id, std::string body,
            std::shared_ptr<UniqueFd> attachment = nullptr);
  /// Sends what waits, as far as the client takes it.
  void flush();
  /// Closes for what the client did. `what`: one of kMisuses.
  void misuse(std::string_view what);
  void close() noexcept;

  /// Takes no further frame until `resume`: one request of a client at a time is away from the
  /// loop. So answers come in the order of the questions, and what a client may have queued is
  /// bounded.
  void pause() noexcept { paused_ = true; }
  void resume();

  /// Runs `body`, and closes the session if it fails.
  void guard(const std::function<Result<void>()>& body) noexcept;

 private:
  struct Unsent {
    std::string bytes;
    std::size_t done = 0;
    std::shared_ptr<UniqueFd> attachment;
  };
  void on_events(std::uint32_t events);
  void read();
  void take_frames();
  void take(wire::DaemonFrame& frame);
  void hello(const wire::DaemonFrame& frame);
  void set_deadline();
  void watch_for();

  const std::uint64_t number_;
  UniqueFd socket_;
  const wire::Peer peer_;
  Shared& shared_;
  EventLoop::Watch watch_;  // goes before the socket
  EventLoop::Timer deadline_;
  bool greeted_ = false;
  bool closed_ = false;
  bool paused_ = false;
  bool muted_ = false;  // paused, and something has come since: it waits in the socket
  std::uint32_t watched_ = 0;
  wire::DaemonFrameParser parser_;
  std::deque<Unsent> unsent_;
  std::size_t unsent_bytes_ = 0;
};

}  // namespace cukiln::daemon
