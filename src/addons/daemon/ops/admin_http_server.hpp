// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "addons/daemon/ops/http_listener.hpp"
#include "core/base/bytes.hpp"
#include "core/base/file.hpp"
#include "core/base/mutex.hpp"

#include <cukiln/result.hpp>

namespace cukiln::ops {

struct AdminHttpLimits {
  std::size_t connections = 64;   ///< open ones; above it the oldest that still sends is closed
  std::size_t head_bytes = 8192;  ///< request line and headers
  std::size_t threads = 3;        ///< that compute responses
  std::chrono::milliseconds head_timeout{2000};       ///< to receive the whole head
  std::chrono::milliseconds response_timeout{10000};  ///< to send the whole response
  std::chrono::milliseconds linger{500};  ///< to read what a client sends after its request
};

/// The transport of the admin HTTP server: reads one request from each connection, without its
/// body, sends the response and closes. One thread does all socket I/O and never blocks in it, so a
/// client that sends or reads nothing costs a descriptor and no thread. A few more threads compute
/// the responses. Without connections all threads sleep.
class AdminHttpServer {
 public:
  /// Maps a complete head, with its empty line, to the whole response. Called from several threads
  /// concurrently; may block.
  using Respond = std::function<std::string(ByteView head, bool tcp)>;

  /// Errors: io (no descriptors left).
  static Result<std::unique_ptr<AdminHttpServer>> open(std::vector<HttpListener> listeners,
                                                       Respond respond,
                                                       const AdminHttpLimits& limits = {});
  /// Waits for the calls of `respond` that run, and closes all connections.
  ~AdminHttpServer();
  AdminHttpServer(const AdminHttpServer&) = delete;
  AdminHttpServer& operator=(const AdminHttpServer&) = delete;

 private:
  using Time = std::chrono::steady_clock::time_point;
  enum class State { reading, responding, writing, lingering };
  struct Connection {
    UniqueFd socket;
    bool tcp = false;
    State state = State::reading;
    std::string bytes;  // of the request, then of the response
    std::size_t written = 0;
    Time deadline;
  };
  using Connections = std::map<std::uint64_t, Connection>;  // by id, so the oldest is first
  struct Job {
    std::uint64_t connection = 0;
    std::string head;
    bool tcp = false;
  };

  AdminHttpServer(std::vector<HttpListener> listeners, Respond respond,
                  const AdminHttpLimits& limits)
      : listeners_(std::move(listeners)), respond_(std::move(respond)), limits_(limits) {}

  void run_io();
  void run_responder();
  /// Waits until a socket is ready, a deadline passes or `wake_` is signalled. False: stop.
  bool poll_once();
  int poll_timeout() const;
  bool has_room() const;
  bool accept_from(const HttpListener& listener);
  bool drop_one();
  void reject_one(const HttpListener& listener);
  void advance_ready();
  void expire_overdue();
  void accept_new();
  /// These return false when the connection must be closed. Called when the socket is, or may be,
  /// ready.
  bool advance(std::uint64_t id, Connection& connection);
  bool read_head(std::uint64_t id, Connection& connection);
  bool write_response(Connection& connection) const;
  static bool discard_input(const Connection& connection);
  bool expire(Connection& connection) const;
  void start_response(Connection& connection, std::string response) const;
  void take_responses();

  const std::vector<HttpListener> listeners_;
  const Respond respond_;
  const AdminHttpLimits limits_;
  UniqueFd wake_;

  // Used by the I/O thread only.
  Connections connections_;
  std::uint64_t next_id_ = 0;
  UniqueFd spare_fd_;  // closed for a moment to accept and reject when no other is left
  Time accept_again_;
  std::vector<pollfd> polled_;             // wake_, the listeners, then connections
  std::vector<std::uint64_t> polled_ids_;  // of the connections in polled_

  Mutex mutex_;
  ConditionVariable has_jobs_;
  std::deque<Job> jobs_ CUKILN_GUARDED_BY(mutex_);
  std::vector<std::pair<std::uint64_t, std::string>> responses_ CUKILN_GUARDED_BY(mutex_);
  bool stopping_ CUKILN_GUARDED_BY(mutex_) = false;

  std::vector<std::thread> threads_;
};

}  // namespace cukiln::ops
