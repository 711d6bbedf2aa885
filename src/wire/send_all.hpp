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

#include "base/bytes.hpp"

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

/// Sends the concatenation of at most kMaxParts `parts`, which are not copied. While the socket
/// accepts no bytes, calls `wait()`, which returns true to go on.
template <class Wait>
SendStatus send_all(int socket, std::span<const ByteView> parts, int descriptor, const Wait& wait) {
  assert(parts.size() <= kMaxParts);
  std::array<iovec, kMaxParts> pieces{};
  std::size_t count = 0;
  for (const ByteView part : parts) {
    if (!part.empty()) {
      pieces[count++] = {const_cast<char*>(part.data()), part.size()};
    }
  }
  std::size_t first = 0;
  while (first < count) {
    const ssize_t sent =
        send_once(socket, std::span(pieces).subspan(first, count - first), descriptor);
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
    std::size_t done = static_cast<std::size_t>(sent);
    while (first < count && done >= pieces[first].iov_len) {
      done -= pieces[first++].iov_len;
    }
    if (first < count) {
      pieces[first].iov_base = static_cast<char*>(pieces[first].iov_base) + done;
      pieces[first].iov_len -= done;
    }
  }
  return SendStatus::ok;
}

}  // namespace cukiln::wire
