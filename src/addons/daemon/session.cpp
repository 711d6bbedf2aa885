// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/session.hpp"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <iterator>
#include <utility>

#include "addons/daemon/protocol/daemon_messages.hpp"
#include "addons/daemon/protocol/sealed_file.hpp"
#include "core/base/result.hpp"

namespace cukiln::daemon {

namespace {

using wire::DaemonFrame;
using wire::DaemonOp;

constexpr std::size_t kReadBytes = 64 << 10;
constexpr int kMaxReads = 16;  // per event, so that a client that keeps sending delays no other
constexpr std::uint32_t kReading = EPOLLIN | EPOLLRDHUP;

}  // namespace

Session::Session(std::uint64_t number, UniqueFd socket, const wire::Peer& peer, Shared& shared)
    : number_(number),
      socket_(std::move(socket)),
      peer_(peer),
      shared_(shared),
      deadline_(shared.loop,
                [this] {
                  ++shared_.counters.slow_clients;
                  close();
                }),
      next_turn_(shared.loop, [this] {
        guard([&]() -> Result<void> {
          resume();
          return {};
        });
      }) {}

Result<void> Session::begin(const std::string& greeting) {
  // Else the kernel closes what comes out of band, in this thread, when the next byte is read.
  constexpr int kOn = 1;
  if (::setsockopt(socket_.get(), SOL_SOCKET, SO_OOBINLINE, &kOn, sizeof kOn) != 0) {
    return make_error(ErrorCode::io, "SO_OOBINLINE failed on a socket: {}", errno_text(errno));
  }
  CUKILN_TRY(watch_, shared_.loop.watch(socket_.get(), kReading, [this](std::uint32_t events) {
    guard([&]() -> Result<void> {
      on_events(events);
      return {};
    });
    shared_.loop.stay_awake();
  }));
  watched_ = kReading;
  deadline_.set_after(shared_.limits.frame_timeout);
  unsent_.push_back({greeting, 0, nullptr});
  count_unsent(greeting.size());
  flush();
  return {};
}

RequestHandle Session::request(std::uint64_t id) const noexcept {
  return {.session = number_, .id = id, .process = static_cast<std::uint32_t>(peer_.process)};
}

bool Session::has_unread() const noexcept {
  int bytes = 0;
  return !unsent_.empty() || (::ioctl(socket_.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0);
}

void Session::guard(const std::function<Result<void>()>& body) noexcept {
  if (const auto done = guarded(body); !done) {
    shared_.log.warn("closed the connection of process {}: {}", peer_.process,
                     done.error().message());
    close();
  }
}

void Session::on_events(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    flush();
  }
  if (closed_ || (events & ~std::uint32_t{EPOLLOUT}) == 0) {
    return;
  }
  if (pauses_ == 0) {
    return read();
  }
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
    return close();  // the client can receive no reply
  }
  reads_blocked_ = true;
  watch_for();
}

void Session::resume() {
  if (--pauses_ != 0) {
    return;
  }
  reads_blocked_ = false;
  take_frames();
  watch_for();
}

void Session::read() {
  std::string& buffer = shared_.read_buffer;
  for (int i = 0; i < kMaxReads && !closed_ && pauses_ == 0; ++i) {
    buffer.resize(kReadBytes);
    std::vector<UniqueFd> descriptors;
    const ssize_t got = wire::receive_some(socket_.get(), buffer.data(), kReadBytes, descriptors);
    if (got == 0 || (got < 0 && errno != EAGAIN)) {
      return close();
    }
    if (got < 0) {
      return;
    }
    parser_.feed(ByteView(buffer).substr(0, static_cast<std::size_t>(got)));
    if (!descriptors.empty() && !feed(std::move(descriptors))) {
      return protocol_error("descriptors");
    }
    take_frames();
    if (static_cast<std::size_t>(got) < kReadBytes) {
      return;  // probably all input; if not, epoll reports the rest
    }
  }
}

/// Takes the descriptor that came with some bytes. False if there were several, or if it is no
/// memory file: then only the ClosingThread may close them.
bool Session::feed(std::vector<UniqueFd> descriptors) {
  if (descriptors.size() == 1 && wire::is_memory_file(descriptors.front().get())) {
    parser_.feed(std::move(descriptors.front()));
    return true;
  }
  for (UniqueFd& descriptor : descriptors) {
    shared_.closing.close(std::move(descriptor));
  }
  return false;
}

void Session::take_frames() {
  const auto end_of_turn = EventLoop::Clock::now() + shared_.limits.turn;
  while (!closed_ && pauses_ == 0) {
    DaemonFrame frame;
    switch (parser_.next(frame)) {
      case wire::DaemonFrameParser::Next::frame: take(frame); break;
      case wire::DaemonFrameParser::Next::malformed: return protocol_error(parser_.fault());
      case wire::DaemonFrameParser::Next::more: return set_deadline();
    }
    if (!closed_ && pauses_ == 0 && EventLoop::Clock::now() >= end_of_turn) {
      pause();
      next_turn_.set_after({});
    }
  }
}

void Session::take(DaemonFrame& frame) {
  deadline_.cancel();
  if (frame.is(DaemonOp::hello)) {
    hello(frame);
  } else if (!has_hello_) {
    protocol_error("no_hello");
  } else {
    shared_.handler->on_frame(*this, frame);
  }
  if (frame.attachment) {
    shared_.handler->discard(std::move(frame.attachment));
  }
}

void Session::hello(const DaemonFrame& frame) {
  const auto hello = wire::DaemonHello::decode(frame.body);
  if (!hello || has_hello_ || frame.attachment) {
    return protocol_error("hello");
  }
  if (hello->version != wire::kDaemonProtocol) {
    ++shared_.counters.rejected_version;
    return close();
  }
  has_hello_ = true;
}

void Session::set_deadline() {
  if (has_hello_ && !parser_.in_frame()) {
    deadline_.cancel();
  } else if (!deadline_.is_set()) {
    deadline_.set_after(shared_.limits.frame_timeout);
  }
}

void Session::protocol_error(std::string_view reason) {
  assert(std::find(std::begin(kProtocolErrors), std::end(kProtocolErrors), reason) !=
         std::end(kProtocolErrors));
  ++shared_.counters.protocol_errors[reason];
  shared_.log.info("closed the connection of process {}: protocol error ({})", peer_.process,
                   reason);
  close();
}

DaemonOp Session::send(DaemonOp op, std::uint64_t id, std::string body,
                       std::shared_ptr<UniqueFd> attachment) {
  if (closed_) {
    return op;
  }
  if (body.size() > wire::kMaxInlineBytes && attachment == nullptr) {
    auto sealed = wire::make_sealed_file({body});
    if (!sealed) {
      close();
      return op;
    }
    attachment = std::make_shared<UniqueFd>(*std::move(sealed));
    body.clear();
  }
  if (attachment != nullptr && !shared_.unread_files.add(*this, attachment->get())) {
    if (attachment.use_count() == 1) {
      shared_.handler->discard(std::move(*attachment));
    }
    return send(DaemonOp::error, id,
                wire::Refusal::of(make_error(ErrorCode::internal,
                                             "cukilnd has no memory for this reply: clients have "
                                             "not read others, {} MiB in all; try again later",
                                             shared_.limits.unread_file_bytes.total >> 20))
                    .encode());
  }
  std::string bytes = wire::encode_header(op, id, body.size(), attachment != nullptr) + body;
  count_unsent(bytes.size());
  unsent_files_ += attachment != nullptr ? 1 : 0;
  unsent_.push_back({std::move(bytes), 0, std::move(attachment)});
  flush();
  if (!closed_ && (!shared_.limits.unsent_bytes.allows(unsent_bytes_, shared_.unsent_bytes, 0) ||
                   unsent_files_ > shared_.limits.max_unsent_files)) {
    ++shared_.counters.slow_clients;
    close();
  }
  return op;
}

void Session::count_unsent(std::size_t bytes) noexcept {
  unsent_bytes_ += bytes;
  shared_.unsent_bytes += bytes;
}

void Session::discount_unsent(std::size_t bytes) noexcept {
  unsent_bytes_ -= bytes;
  shared_.unsent_bytes -= bytes;
}

void Session::flush() {
  while (!unsent_.empty() && !closed_) {
    Unsent& first = unsent_.front();
    const int descriptor =
        first.done == 0 && first.attachment != nullptr ? first.attachment->get() : -1;
    const ssize_t sent =
        wire::send_some(socket_.get(), {ByteView(first.bytes).substr(first.done)}, descriptor);
    if (sent < 0) {
      if (errno != EAGAIN && errno != ENOBUFS && errno != ETOOMANYREFS) {
        return close();
      }
      break;
    }
    first.done += static_cast<std::size_t>(sent);
    discount_unsent(static_cast<std::size_t>(sent));
    if (first.done == first.bytes.size()) {
      unsent_files_ -= first.attachment != nullptr ? 1 : 0;
      unsent_.pop_front();
    }
  }
  watch_for();
}

void Session::watch_for() {
  const std::uint32_t events =
      (reads_blocked_ ? 0 : kReading) | (unsent_.empty() ? 0 : std::uint32_t{EPOLLOUT});
  if (!closed_ && events != watched_) {
    watched_ = events;
    watch_.set(events);
  }
}

void Session::close() noexcept {
  if (closed_) {
    return;
  }
  closed_ = true;
  deadline_.cancel();
  next_turn_.cancel();
  watch_.reset();
  ::shutdown(socket_.get(), SHUT_RDWR);
  socket_slot_.front() = std::move(socket_);
  shared_.closing.close(std::move(socket_slot_));
  for (UniqueFd& file : parser_.take_descriptors()) {
    shared_.handler->discard(std::move(file));
  }
  unsent_.clear();
  discount_unsent(unsent_bytes_);
  shared_.unread_files.remove(*this);
  shared_.handler->on_closed(*this);
}

Result<void> SessionTable::add(std::uint64_t number, UniqueFd socket, const wire::Peer& peer,
                               const std::string& greeting) {
  if (closed_.capacity() <= sessions_.size()) {
    closed_.reserve(2 * (sessions_.size() + 1));
  }
  const auto at =
      sessions_.emplace(number, std::make_unique<Session>(number, std::move(socket), peer, shared_))
          .first;
  auto begun = guarded([&] { return at->second->begin(greeting); });
  if (!begun) {
    at->second->close();
  }
  return begun;
}

Session* SessionTable::find(std::uint64_t number) {
  const auto at = sessions_.find(number);
  return at != sessions_.end() && !at->second->closed() ? at->second.get() : nullptr;
}

void SessionTable::note_closed(const Session& session) noexcept {
  assert(closed_.size() < closed_.capacity());
  closed_.push_back(session.number());
}

void SessionTable::remove_closed(const std::function<void(const Session&)>& on_removed) {
  while (!closed_.empty()) {
    const auto removed = sessions_.extract(closed_.back());
    closed_.pop_back();
    on_removed(*removed.mapped());
  }
}

void SessionTable::flush() {
  for (const auto& [number, session] : sessions_) {
    session->flush();
  }
}

}  // namespace cukiln::daemon
