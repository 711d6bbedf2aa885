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
#include <unordered_map>
#include <vector>

#include "addons/daemon/closing_thread.hpp"
#include "addons/daemon/counters.hpp"
#include "addons/daemon/event_loop.hpp"
#include "addons/daemon/fair_share.hpp"
#include "addons/daemon/protocol/daemon_frame.hpp"
#include "addons/daemon/protocol/unix_socket.hpp"
#include "addons/daemon/request_handle.hpp"
#include "addons/daemon/unread_files.hpp"
#include "core/base/file.hpp"
#include "core/base/logger.hpp"

#include <cukiln/result.hpp>

namespace cukiln::daemon {

/// The connection of one client: socket, credentials, frames in both directions, and limits. A
/// protocol error, a timeout or a lack of memory closes this session and no other. A closed session
/// is destroyed at the end of the loop's round, so that callers of `close` may still access it.
/// A client may send memory files only, which are closed in the handler's threads; anything else
/// ends its session and is closed by the ClosingThread. After `Limits::turn` its further frames
/// wait for the next round. So no client delays the others. Threads: the loop's only.
class Session final : public UnreadFiles::Reader {
 public:
  struct Limits {
    FairShare unsent_bytes{.total = 32 << 20};        ///< replies that no socket has taken
    std::size_t max_unsent_files = 64;                ///< attachments of a session's such replies
    FairShare unread_file_bytes{.total = 512 << 20};  ///< attachments that clients have not read
    std::chrono::microseconds turn{300};              ///< of the loop's time, until other sessions'
    std::chrono::milliseconds frame_timeout{2000};    ///< to receive `hello`, or a frame that began
  };
  class Handler {
   public:
    virtual ~Handler() = default;
    /// Handles a frame that arrived after `hello`.
    virtual void on_frame(Session& session, wire::DaemonFrame& frame) = 0;
    virtual void on_closed(Session& session) noexcept = 0;
    /// Closes a memory file that is not needed, in another thread: to free a large one takes long.
    virtual void discard(UniqueFd file) noexcept = 0;
  };
  /// What all sessions of a daemon share. Outlives them.
  struct Shared {
    EventLoop& loop;
    DaemonCounters& counters;
    ClosingThread& closing;
    Logger log;
    Limits limits;
    Handler* handler = nullptr;
    std::string read_buffer{};
    std::uint64_t unsent_bytes = 0;
    UnreadFiles unread_files{limits.unread_file_bytes};
  };

  Session(std::uint64_t number, UniqueFd socket, const wire::Peer& peer, Shared& shared);
  ~Session() override = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Registers the socket with the loop and sends the greeting. Errors: io.
  Result<void> begin(const std::string& greeting);

  std::uint64_t number() const noexcept { return number_; }
  bool closed() const noexcept { return closed_; }
  /// A handle for the client's request `id`.
  RequestHandle request(std::uint64_t id) const noexcept;

  /// Sends a reply, or an `error` if clients have so much unread that there is no room for its
  /// file. Returns the operation of what was sent.
  wire::DaemonOp send(wire::DaemonOp op, std::uint64_t id, std::string body,
                      std::shared_ptr<UniqueFd> attachment = nullptr);
  bool has_unread() const noexcept override;
  /// Sends pending bytes, as many as the socket accepts.
  void flush();
  /// Counts a violation of the protocol and closes the session. `reason`: one of kProtocolErrors.
  void protocol_error(std::string_view reason);
  void close() noexcept;

  /// Stops taking frames until as many calls of `resume`. A client has one request in the
  /// BlockingPool at a time, so that replies keep the order of requests and a client's jobs are
  /// bounded.
  void pause() noexcept { ++pauses_; }
  void resume();

  /// Runs `body`, and closes the session if it fails or throws.
  void guard(const std::function<Result<void>()>& body) noexcept;

 private:
  struct Unsent {
    std::string bytes;
    std::size_t done = 0;
    std::shared_ptr<UniqueFd> attachment;
  };
  void on_events(std::uint32_t events);
  void read();
  bool feed(std::vector<UniqueFd> descriptors);
  void take_frames();
  void take(wire::DaemonFrame& frame);
  void hello(const wire::DaemonFrame& frame);
  void set_deadline();
  void watch_for();
  void count_unsent(std::size_t bytes) noexcept;
  void discount_unsent(std::size_t bytes) noexcept;

  const std::uint64_t number_;
  UniqueFd socket_;
  const wire::Peer peer_;
  Shared& shared_;
  EventLoop::Watch watch_;  // destroyed before the socket
  ClosingThread::Descriptors socket_slot_{1};
  EventLoop::Timer deadline_;
  EventLoop::Timer next_turn_;  // continues with frames that have arrived
  bool has_hello_ = false;
  bool closed_ = false;
  int pauses_ = 0;
  bool reads_blocked_ = false;  // paused, and unread input has arrived: EPOLLIN is not watched
  std::uint32_t watched_ = 0;
  wire::DaemonFrameParser parser_;
  std::deque<Unsent> unsent_;
  std::size_t unsent_bytes_ = 0;
  std::size_t unsent_files_ = 0;
};

/// The sessions of a daemon. Threads: the loop's only.
class SessionTable {
 public:
  SessionTable(std::size_t limit, Session::Shared& shared) : limit_(limit), shared_(shared) {}

  bool has_room() const { return sessions_.size() < limit_ && !shared_.closing.is_full(); }
  /// Starts a session, whose number none has had before. Errors: io.
  Result<void> add(std::uint64_t number, UniqueFd socket, const wire::Peer& peer,
                   const std::string& greeting);
  /// Null if there is none, or if it is closed.
  Session* find(std::uint64_t number);
  std::size_t size() const noexcept { return sessions_.size(); }

  /// Marks a closed session for the next `remove_closed`. Allocates nothing.
  void note_closed(const Session& session) noexcept;
  /// Destroys closed sessions; calls `on_removed` for each before that.
  void remove_closed(const std::function<void(const Session&)>& on_removed);
  /// Sends pending replies to the clients that read.
  void flush();

 private:
  const std::size_t limit_;
  Session::Shared& shared_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Session>> sessions_;
  std::vector<std::uint64_t> closed_;  // with capacity for all sessions
};

}  // namespace cukiln::daemon
