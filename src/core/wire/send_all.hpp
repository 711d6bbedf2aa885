// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include "core/base/bytes.hpp"

namespace cukiln::wire {

inline constexpr std::size_t kMaxParts = 8;  // of one message

/// Calls sendmsg once, without blocking and without SIGPIPE. `descriptor` (or -1) is sent with the
/// first byte. Returns the number of bytes, or -1 with errno. Header-only, as is `send_all`,
/// because the compile worker uses it and links no layer.
inline ssize_t send_once(int socket, std::span<const iovec> parts, int descriptor) noexcept {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

enum class SendStatus {
  ok,
  stopped,  ///< `wait` returned false; part of the message may have been sent
  failed,   ///< with errno set
};

/// The parts of one message that are not empty, as sendmsg takes them. At most kMaxParts.
class MessageParts {
 public:
  explicit MessageParts(std::span<const ByteView> parts) noexcept {
    assert(parts.size() <= kMaxParts);
    for (const ByteView part : parts) {
      if (!part.empty()) {
        pieces_[end_++] = {const_cast<char*>(part.data()), part.size()};
      }
    }
  }
  bool empty() const noexcept { return begin_ == end_; }
  std::span<const iovec> left() const noexcept {
    return std::span(pieces_).subspan(begin_, end_ - begin_);
  }
  /// Leaves out the first `bytes`, which were sent.
  void drop(std::size_t bytes) noexcept {
    while (begin_ < end_ && bytes >= pieces_[begin_].iov_len) {
      bytes -= pieces_[begin_++].iov_len;
    }
    if (begin_ < end_) {
      pieces_[begin_].iov_base = static_cast<char*>(pieces_[begin_].iov_base) + bytes;
      pieces_[begin_].iov_len -= bytes;
    }
  }

 private:
  std::array<iovec, kMaxParts> pieces_{};
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

/// Sends the concatenation of at most kMaxParts `parts`, which are not copied. While the socket
/// accepts no bytes, calls `wait()`, which returns true to go on.
template <class Wait>
SendStatus send_all(int socket, std::span<const ByteView> parts, int descriptor, const Wait& wait) {
  MessageParts message(parts);
  while (!message.empty()) {
    const ssize_t sent = send_once(socket, message.left(), descriptor);
    if (sent < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS) {
        return SendStatus::failed;
      }
      if (!wait()) {
        return SendStatus::stopped;
      }
      continue;
    }
    descriptor = -1;
    message.drop(static_cast<std::size_t>(sent));
  }
  return SendStatus::ok;
}

}  // namespace cukiln::wire
