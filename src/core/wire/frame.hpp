// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

#include "core/base/bytes.hpp"
#include "core/base/cancel_flags.hpp"
#include "core/wire/frame_codec.hpp"

namespace cukiln::wire {

/// The protocol between the library and its compile worker: frames without ids and flags.
struct WorkerProtocol {
  /// Larger than any source (64 MiB) or cubin; a frame with a greater length is malformed.
  static constexpr std::uint32_t kMaxBodyBytes = 512u << 20;
  static constexpr std::uint16_t kFlags = 0;
  static constexpr bool kHasId = false;
};

/// One message between the library and its compile worker.
struct Frame {
  std::uint16_t op = 0;
  std::string body;
};

inline constexpr std::size_t kHeaderBytes = kFrameHeaderBytes<WorkerProtocol>;
inline constexpr std::uint32_t kMaxBodyBytes = WorkerProtocol::kMaxBodyBytes;

enum class IoStatus {
  ok,
  closed,     ///< the peer closed the connection or ended, between two frames or within one
  timeout,    ///< the deadline passed
  cancelled,  ///< the cancel flag was set
  malformed,  ///< the bytes received are not a frame: the connection must be closed
};
const char* name_of(IoStatus status) noexcept;

/// How often a cancel flag is checked during a wait: it has no descriptor that poll could watch.
inline constexpr std::chrono::milliseconds kCancelPoll{20};

/// When to stop waiting. By default, never.
struct WaitOptions {
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  CancelFlags cancelled;
  /// The peer's pidfd: its end is reported as `closed` even while a forked child of it still has a
  /// copy of the socket. -1 for none.
  int peer_process = -1;
};

/// Sends and receives frames over a connected stream socket, which it does not own. Handles EINTR,
/// short reads and short writes; never raises SIGPIPE; leaves the descriptor's flags unchanged.
/// Threads: one at a time.
class FrameSocket {
 public:
  explicit FrameSocket(int fd) noexcept : fd_(fd) {}
  ~FrameSocket();
  FrameSocket(const FrameSocket&) = delete;
  FrameSocket& operator=(const FrameSocket&) = delete;

  /// Sends a frame whose body is the concatenation of `parts` (at most 6), which are not copied.
  /// A copy of `descriptor` (or -1) goes with it.
  IoStatus send(std::uint16_t op, std::initializer_list<ByteView> parts,
                const WaitOptions& wait = {}, int descriptor = -1);
  /// Receives a frame. After any other result than ok the connection must be closed, because part
  /// of a frame may have been read.
  IoStatus receive(Frame& frame, const WaitOptions& wait = {});

  /// Receives descriptors from now on. Without it the kernel discards those that the peer sends. A
  /// descriptor may come with an earlier frame if the peer sends several without awaiting a reply.
  void accept_descriptors() noexcept { accepts_descriptors_ = true; }
  /// Returns the descriptor that came last, which the caller owns; -1 if none came since the last
  /// call.
  int take_descriptor() noexcept { return std::exchange(descriptor_, -1); }

  /// Calls `callback` once in each wait in which the peer sends or reads nothing for `silence`; the
  /// wait continues.
  void when_silent(std::chrono::milliseconds silence, std::function<void()> callback) {
    silence_ = silence;
    when_silent_ = std::move(callback);
  }

  int fd() const noexcept { return fd_; }

 private:
  IoStatus wait_for(short events, const WaitOptions& wait) const;
  /// Receives some bytes into the buffer.
  IoStatus read_some(const WaitOptions& wait);

  /// Calls recv, or recvmsg if descriptors are accepted.
  ssize_t receive_bytes(char* to, std::size_t size);

  int fd_;
  bool accepts_descriptors_ = false;
  int descriptor_ = -1;
  std::chrono::milliseconds silence_{0};
  std::function<void()> when_silent_;
  FrameBuffer<WorkerProtocol> received_;
};

}  // namespace cukiln::wire
