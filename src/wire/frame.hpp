// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

#include "base/bytes.hpp"

namespace cukiln::wire {

/// One message on a stream socket: `u32` length of the body, `u16` op, `u16` zero, body. All
/// integers little-endian.
struct Frame {
  std::uint16_t op = 0;
  std::string body;
};

inline constexpr std::size_t kHeaderBytes = 8;
/// Larger than any source (64 MiB) or cubin that can be expected; a length above it is garbage.
inline constexpr std::uint32_t kMaxBodyBytes = 512u << 20;

enum class IoStatus {
  ok,
  closed,     ///< the peer is gone; between two frames or within one
  timeout,    ///< the deadline passed
  cancelled,  ///< the flag was set
  malformed,  ///< what arrived is no frame: the connection cannot be used any more
};
const char* name_of(IoStatus status) noexcept;

/// A cancel flag has no descriptor to poll: it is looked at this often.
inline constexpr std::chrono::milliseconds kCancelPoll{20};

/// When to give up waiting. The default waits for ever.
struct WaitOptions {
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  const std::atomic<bool>* cancelled = nullptr;
  int peer_process =
      -1;  ///< a pidfd: its end is `closed`, even while a forked copy of its socket lives
};

/// Frames over a connected stream socket that somebody else owns. Survives EINTR, short reads and
/// short writes; never raises SIGPIPE; does not touch the descriptor's flags. Threads: one at a
/// time.
class FrameSocket {
 public:
  explicit FrameSocket(int fd) noexcept : fd_(fd) {}

  /// The body is the concatenation of `parts`, which are not copied. At most 6 of them.
  IoStatus send(std::uint16_t op, std::initializer_list<ByteView> parts,
                const WaitOptions& patience = {});
  /// After anything but ok the connection is of no more use: a part of a frame may have been read.
  IoStatus receive(Frame& frame, const WaitOptions& patience = {});

  /// Calls `then` whenever the peer, in one wait, has said or taken nothing for `silence`; the wait
  /// goes on.
  void when_silent(std::chrono::milliseconds silence, std::function<void()> then) {
    silence_ = silence;
    when_silent_ = std::move(then);
  }

  int fd() const noexcept { return fd_; }

 private:
  IoStatus wait_for(short events, const WaitOptions& patience) const;
  IoStatus read_some(char* to, std::size_t size, std::size_t& got, const WaitOptions& patience) const;

  int fd_;
  std::chrono::milliseconds silence_{0};
  std::function<void()> when_silent_;
  std::string buffer_;  // allocated once; what arrived beyond the last frame is in [begin_, end_)
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace cukiln::wire
