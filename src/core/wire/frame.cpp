// SPDX-License-Identifier: Apache-2.0
#include "core/wire/frame.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "core/base/poll_until.hpp"
#include "core/wire/send_all.hpp"

namespace cukiln::wire {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kReadAhead = 64 << 10;

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

FrameSocket::~FrameSocket() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

IoStatus FrameSocket::send(std::uint16_t op, std::initializer_list<ByteView> parts,
                           const WaitOptions& wait, int descriptor) {
  std::size_t total = 0;
  for (const ByteView part : parts) {
    total += part.size();
  }
  if (total > kMaxBodyBytes || parts.size() >= kMaxParts) {
    return IoStatus::malformed;
  }
  const std::string header =
      encode_frame_header<WorkerProtocol>({static_cast<std::uint32_t>(total), op});
  std::array<ByteView, kMaxParts> all{ByteView(header)};
  std::copy(parts.begin(), parts.end(), all.begin() + 1);
  IoStatus waited = IoStatus::ok;
  const SendStatus sent = send_all(fd_, std::span(all).first(parts.size() + 1), descriptor, [&] {
    waited = wait_for(POLLOUT, wait);
    return waited == IoStatus::ok;
  });
  switch (sent) {
    case SendStatus::ok: return IoStatus::ok;
    case SendStatus::stopped: return waited;
    case SendStatus::failed: break;
  }
  return IoStatus::closed;
}

ssize_t FrameSocket::receive_bytes(char* to, std::size_t size) {
  if (!accepts_descriptors_) {
    return ::recv(fd_, to, size, MSG_DONTWAIT);
  }
  iovec piece{to, size};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};  // the kernel closes others
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t count = ::recvmsg(fd_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* const header = count > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int))) {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
    std::memcpy(&descriptor_, CMSG_DATA(header), sizeof descriptor_);
  }
  return count;
}

IoStatus FrameSocket::read_some(const WaitOptions& wait) {
  char* const to = received_.reserve(kReadAhead);
  for (;;) {
    const ssize_t count = receive_bytes(to, received_.reserved());
    if (count > 0) {
      received_.commit(static_cast<std::size_t>(count));
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
  for (;;) {
    FrameHeader header;
    ByteView body;
    switch (received_.next(header, body)) {
      case FrameBuffer<WorkerProtocol>::Next::frame:
        frame.op = header.op;
        frame.body = body;
        return IoStatus::ok;
      case FrameBuffer<WorkerProtocol>::Next::malformed: return IoStatus::malformed;
      case FrameBuffer<WorkerProtocol>::Next::more: break;
    }
    if (const IoStatus status = read_some(wait); status != IoStatus::ok) {
      return status;
    }
  }
}

}  // namespace cukiln::wire
