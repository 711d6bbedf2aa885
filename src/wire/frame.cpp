// SPDX-License-Identifier: Apache-2.0
#include "wire/frame.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/poll_until.hpp"
#include "base/serial.hpp"

namespace cukiln::wire {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kReadAhead = 64 << 10;
constexpr std::size_t kMaxParts = 6;

}  // namespace

const char* name_of(IoStatus status) noexcept {
  switch (status) {
    case IoStatus::ok: return "ok";
    case IoStatus::closed: return "closed";
    case IoStatus::timeout: return "timeout";
    case IoStatus::cancelled: return "cancelled";
    case IoStatus::malformed: return "malformed";
  }
  return "unknown";
}

IoStatus FrameSocket::wait_for(short events, const WaitOptions& wait) const {
  const auto never = steady_clock::time_point::max();
  auto silent_at = when_silent_ ? steady_clock::now() + silence_ : never;
  for (;;) {
    if (wait.cancelled.is_set()) {
      return IoStatus::cancelled;
    }
    const auto next = std::min(wait.deadline, silent_at);
    if (next != never) {
      const auto now = steady_clock::now();
      if (wait.deadline <= now) {
        return IoStatus::timeout;
      }
      if (silent_at <= now) {
        silent_at = never;
        when_silent_();
        continue;
      }
    }
    const auto slice = wait.cancelled.can_be_set() ? kCancelPoll : milliseconds::max();
    // poll ignores a descriptor of -1.
    std::array<pollfd, 2> polled{{{fd_, events, 0}, {wait.peer_process, POLLIN, 0}}};
    switch (poll_until(polled.data(), polled.size(), next, slice)) {
      case Polled::ready:
        // A closed socket is reported by the read or write that follows.
        return polled[0].revents != 0 ? IoStatus::ok : IoStatus::closed;
      case Polled::failed: return IoStatus::closed;
      case Polled::waiting: break;
    }
  }
}

IoStatus FrameSocket::send(std::uint16_t op, std::initializer_list<ByteView> parts,
                           const WaitOptions& wait) {
  std::size_t total = 0;
  for (const ByteView part : parts) {
    total += part.size();
  }
  if (total > kMaxBodyBytes || parts.size() > kMaxParts) {
    return IoStatus::malformed;
  }
  SerialWriter header;
  header.u32(static_cast<std::uint32_t>(total)).u32(op);
  std::array<iovec, kMaxParts + 1> pieces{};
  std::size_t count = 0;
  const auto add = [&](ByteView bytes) {
    if (!bytes.empty()) {
      pieces[count++] = {const_cast<char*>(bytes.data()), bytes.size()};
    }
  };
  add(header.view());
  for (const ByteView part : parts) {
    add(part);
  }
  std::size_t first = 0;
  while (first < count) {
    msghdr message{};
    message.msg_iov = pieces.data() + first;
    message.msg_iovlen = count - first;
    const ssize_t sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) {
        continue;
      }
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS) {
        return IoStatus::closed;
      }
      if (const IoStatus status = wait_for(POLLOUT, wait); status != IoStatus::ok) {
        return status;
      }
      continue;
    }
    std::size_t done = static_cast<std::size_t>(sent);
    while (first < count && done >= pieces[first].iov_len) {
      done -= pieces[first++].iov_len;
    }
    if (first < count) {
      pieces[first].iov_base = static_cast<char*>(pieces[first].iov_base) + done;
      pieces[first].iov_len -= done;
    }
  }
  return IoStatus::ok;
}

IoStatus FrameSocket::read_some(char* to, std::size_t size, std::size_t& got,
                                const WaitOptions& wait) const {
  for (;;) {
    const ssize_t count = ::recv(fd_, to, size, MSG_DONTWAIT);
    if (count > 0) {
      got = static_cast<std::size_t>(count);
      return IoStatus::ok;
    }
    if (count == 0) {
      return IoStatus::closed;
    }
    if (errno == EINTR) {
      continue;
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      return IoStatus::closed;
    }
    if (const IoStatus status = wait_for(POLLIN, wait); status != IoStatus::ok) {
      return status;
    }
  }
}

IoStatus FrameSocket::receive(Frame& frame, const WaitOptions& wait) {
  buffer_.resize(kReadAhead);
  std::size_t got = 0;
  while (end_ - begin_ < kHeaderBytes) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    const IoStatus status = read_some(buffer_.data() + end_, buffer_.size() - end_, got, wait);
    if (status != IoStatus::ok) {
      return status;
    }
    end_ += got;
  }
  SerialReader header(ByteView(buffer_).substr(begin_, kHeaderBytes));
  const std::uint32_t size = header.u32();
  const std::uint32_t op = header.u32();
  if (size > kMaxBodyBytes || op > 0xffff) {
    return IoStatus::malformed;
  }
  begin_ += kHeaderBytes;
  std::size_t used = std::min<std::size_t>(size, end_ - begin_);
  std::string body(buffer_, begin_, used);
  begin_ += used;
  while (used < size) {
    // Grow with the bytes received: a header with a large length must not allocate.
    body.resize(std::min<std::size_t>(size, std::max(used * 2, used + kReadAhead)));
    const IoStatus status = read_some(body.data() + used, body.size() - used, got, wait);
    if (status != IoStatus::ok) {
      return status;
    }
    used += got;
  }
  frame.op = static_cast<std::uint16_t>(op);
  frame.body = std::move(body);
  return IoStatus::ok;
}

}  // namespace cukiln::wire
