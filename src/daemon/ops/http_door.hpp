// SPDX-License-Identifier: Apache-2.0
#pragma once

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

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/mutex.hpp"
#include "daemon/ops/listener.hpp"

#include <cukiln/result.hpp>

namespace cukiln::ops {

struct HttpDoorLimits {
  std::size_t connections = 64;   ///< at once; then the oldest that still sends is closed
  std::size_t head_bytes = 8192;  ///< of a request: its line and its headers
  std::size_t threads = 3;        ///< that make answers
  std::chrono::milliseconds head_wait{2000};    ///< for the whole head, however it trickles in
  std::chrono::milliseconds write_wait{10000};  ///< for the whole answer to be taken
  std::chrono::milliseconds linger{500};        ///< for a client that is still sending
};

/// The transport of the operations door: takes one request from each connection, without its body,
/// has it answered, and closes. One thread does all input and output and never blocks in it, so
/// clients that send nothing, or take nothing, cost a descriptor and no thread; it sleeps where
/// there is nobody. A few others make the answers.
class HttpDoor {
 public:
  /// From a complete head (its empty line included) to the whole answer. Called from several
  /// threads at once; may take its time.
  using Answer = std::function<std::string(ByteView head, bool tcp)>;

  /// Errors: io (no descriptors left).
  static Result<std::unique_ptr<HttpDoor>> open(std::vector<Listener> listeners, Answer answer,
                                                const HttpDoorLimits& limits = {});
  ~HttpDoor();  ///< waits for the answers that are being made; connections are closed
  HttpDoor(const HttpDoor&) = delete;
  HttpDoor& operator=(const HttpDoor&) = delete;

 private:
  using Time = std::chrono::steady_clock::time_point;
  enum class State { reading, answering, writing, lingering };
  struct Connection {
    UniqueFd socket;
    bool tcp = false;
    State state = State::reading;
    std::string bytes;  // of the request, then of the answer
    std::size_t written = 0;
    Time deadline;
  };
  using Connections = std::map<std::uint64_t, Connection>;  // the oldest first
  struct Job {
    std::uint64_t connection = 0;
    std::string head;
    bool tcp = false;
  };

  HttpDoor(std::vector<Listener> listeners, Answer answer, const HttpDoorLimits& limits)
      : listeners_(std::move(listeners)), answer_(std::move(answer)), limits_(limits) {}

  void run();
  void make_answers();
  int poll_timeout() const;
  bool has_room() const;
  bool accept_from(const Listener& listener);
  bool drop_one();
  void shed(const Listener& listener);
  /// False: the connection is over. These are called when its socket is ready, or may be.
  bool advance(std::uint64_t id, Connection& connection);
  bool read_head(std::uint64_t id, Connection& connection);
  bool write_answer(Connection& connection) const;
  static bool discard_input(const Connection& connection);
  bool expire(Connection& connection) const;
  void send(Connection& connection, std::string answer) const;
  void take_answers();

  const std::vector<Listener> listeners_;
  const Answer answer_;
  const HttpDoorLimits limits_;
  UniqueFd wake_;

  Connections connections_;  // of the loop's thread, as are these
  std::uint64_t next_id_ = 0;
  UniqueFd spare_;  // given up for a moment to refuse a connection when there are no others
  Time accept_again_;

  Mutex mutex_;  // of all below
  ConditionVariable has_jobs_;
  std::deque<Job> jobs_;
  std::vector<std::pair<std::uint64_t, std::string>> answers_;
  bool stopping_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace cukiln::ops
