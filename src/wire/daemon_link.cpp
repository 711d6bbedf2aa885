// SPDX-License-Identifier: Apache-2.0
#include "wire/daemon_link.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "base/process_local.hpp"
#include "base/result.hpp"
#include "wire/daemon_connection.hpp"
#include "wire/sealed_file.hpp"
#include "wire/send_all.hpp"
#include "wire/unix_socket.hpp"

namespace cukiln::wire {

namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMaxIdleConnections = 8;
constexpr std::size_t kReadBytes = 64 << 10;

}  // namespace

Result<SharedBytes> content_of(DaemonFrame& frame, std::uint64_t max_bytes) {
  if (frame.attachment && frame.body.empty()) {
    return map_sealed_file(frame.attachment.get(), max_bytes);
  }
  return SharedBytes(std::move(frame.body));
}

Refusal refusal_of(DaemonFrame& frame) {
  const std::uint16_t op = frame.op;
  const bool is_error = frame.is(DaemonOp::error);
  const auto content = content_of(frame);
  auto refusal = is_error && content ? Refusal::decode(*content) : std::nullopt;
  if (!refusal) {
    return Refusal::of(make_error(ErrorCode::internal,
                                  "cukilnd sent an unexpected reply (op {}); restart it from the "
                                  "same version as this program",
                                  op));
  }
  return *std::move(refusal);
}

Error error_of(DaemonFrame& frame) {
  Refusal refusal = refusal_of(frame);
  return Error(refusal.code, std::move(refusal.message), std::move(refusal.log));
}

struct DaemonLink::State {
  Mutex mutex;
  std::vector<std::unique_ptr<Conversation::Connection>> idle CUKILN_GUARDED_BY(mutex);
};

DaemonLink::DaemonLink(Options options)
    : options_(std::move(options)), state_(std::make_unique<ProcessLocal<State>>()) {}

DaemonLink::~DaemonLink() = default;

bool DaemonLink::available() const noexcept {
  if (options_.sockets.empty()) {
    return false;
  }
  return options_.required || steady_ns() >= open_until_ns_.load(std::memory_order_relaxed);
}

bool DaemonLink::hung() const noexcept {
  return steady_ns() < hung_until_ns_.load(std::memory_order_relaxed);
}

DaemonLinkStats DaemonLink::stats() const noexcept {
  return {asked_.load(std::memory_order_relaxed), absent_.load(std::memory_order_relaxed),
          failed_.load(std::memory_order_relaxed), declined_.load(std::memory_order_relaxed)};
}

void DaemonLink::open_breaker(const Error& error) {
  switch (error.code()) {
    case ErrorCode::not_found: count(Fallback::absent); break;
    case ErrorCode::timeout: count(Fallback::timeout); break;
    case ErrorCode::incompatible: count(Fallback::version); break;
    case ErrorCode::internal: count(Fallback::protocol); break;
    default: count(Fallback::io); break;
  }
  const bool absent = error.code() == ErrorCode::not_found;
  (absent ? absent_ : failed_).fetch_add(1, std::memory_order_relaxed);
  const auto pause = std::chrono::duration_cast<std::chrono::nanoseconds>(options_.breaker_pause);
  const std::int64_t until = steady_ns() + pause.count();
  open_until_ns_.store(until, std::memory_order_relaxed);
  if (!absent) {
    options_.log.warn("cukilnd is not used for {} s (circuit breaker open): {}",
                      options_.breaker_pause.count() / 1000, error.message());
  }
}

std::unique_ptr<DaemonLink::Conversation::Connection> DaemonLink::take_idle() {
  State& own = state_->get();
  for (;;) {
    std::unique_ptr<Conversation::Connection> idle;
    {
      const MutexLock lock(own.mutex);
      if (own.idle.empty()) {
        return nullptr;
      }
      idle = std::move(own.idle.back());
      own.idle.pop_back();
    }
    // The daemon sends nothing on an idle connection: if it is readable, it was closed.
    pollfd polled{idle->socket.get(), POLLIN | POLLRDHUP, 0};
    if (polled.fd >= 0 && ::poll(&polled, 1, 0) == 0) {
      return idle;
    }
  }
}

void DaemonLink::keep_idle(std::unique_ptr<Conversation::Connection> connection) {
  State& own = state_->get();
  const MutexLock lock(own.mutex);
  if (own.idle.size() < kMaxIdleConnections) {
    own.idle.push_back(std::move(connection));
  }
}

Result<DaemonLink::Conversation> DaemonLink::begin() {
  if (!available()) {
    return make_error(ErrorCode::not_found,
                      "cukilnd is not used for now: its circuit breaker is open after a failure");
  }
  asked_.fetch_add(1, std::memory_order_relaxed);
  if (auto idle = take_idle()) {
    return Conversation(*this, std::move(idle));
  }
  auto connection = connect_any();
  if (!connection) {
    open_breaker(connection.error());
    return std::move(connection).error();
  }
  return Conversation(*this, *std::move(connection));
}

DaemonLink::Conversation::Conversation(DaemonLink& link, std::unique_ptr<Connection> connection)
    : link_(&link), connection_(std::move(connection)), id_(++connection_->last_id) {}

DaemonLink::Conversation::Conversation(Conversation&&) noexcept = default;
DaemonLink::Conversation& DaemonLink::Conversation::operator=(Conversation&&) noexcept = default;
DaemonLink::Conversation::~Conversation() = default;

const Greeting& DaemonLink::Conversation::greeting() const noexcept {
  return connection_->greeting;
}

Error DaemonLink::Conversation::lost(ErrorCode code, std::string why) {
  connection_.reset();
  Error error(code, std::move(why));
  link_->open_breaker(error);
  return error;
}

Error DaemonLink::Conversation::protocol_error(const char* what) {
  return lost(ErrorCode::internal, fmt::format("cukilnd violated the protocol ({})", what));
}

Result<void> DaemonLink::Conversation::send(DaemonOp op, ByteView body, UniqueFd attachment) {
  if (connection_ == nullptr) {
    return Error(ErrorCode::io, "the conversation with cukilnd is over");
  }
  const int fd = connection_->socket.get();
  const std::string header = encode_header(op, id_, body.size(), static_cast<bool>(attachment));
  const auto deadline = SteadyClock::now() + link_->options_.heartbeat;
  const std::array<ByteView, 2> parts{ByteView(header), body};
  const SendStatus sent = send_all(fd, parts, attachment.get(), [&] {
    return wait_for(fd, POLLOUT, deadline, {}) == WaitResult::ready;
  });
  switch (sent) {
    case SendStatus::ok: return {};
    case SendStatus::stopped:
      return lost(ErrorCode::timeout,
                  fmt::format("cukilnd read nothing for {} ms", link_->options_.heartbeat.count()));
    case SendStatus::failed: break;
  }
  return lost(ErrorCode::io, "cukilnd closed the connection: " + errno_text(errno));
}

Result<void> DaemonLink::Conversation::send_content(DaemonOp op, const std::string& content) {
  if (content.size() <= kMaxInlineBytes) {
    return send(op, content);
  }
  CUKILN_TRY(UniqueFd sealed, make_sealed_file({content}));
  return send(op, {}, std::move(sealed));
}

Result<DaemonFrame> DaemonLink::Conversation::receive(SteadyClock::time_point deadline,
                                                      CancelFlags cancelled) {
  if (connection_ == nullptr) {
    return Error(ErrorCode::io, "the conversation with cukilnd is over");
  }
  const int fd = connection_->socket.get();
  const auto silent_at = SteadyClock::now() + link_->options_.heartbeat;
  // Not a string, which would fill it with zeros each time.
  const std::unique_ptr<char[]> buffer(new char[kReadBytes]);
  for (;;) {
    DaemonFrame frame;
    switch (connection_->parser.next(frame)) {
      case DaemonFrameParser::Next::frame:
        if (frame.id != id_) {
          continue;  // a late reply of an earlier conversation
        }
        return frame;
      case DaemonFrameParser::Next::malformed: return protocol_error(connection_->parser.fault());
      case DaemonFrameParser::Next::more: break;
    }
    switch (wait_for(fd, POLLIN, std::min(deadline, silent_at), cancelled)) {
      case WaitResult::ready: break;
      case WaitResult::cancelled:
        connection_.reset();
        return Error(ErrorCode::timeout, "cancelled");
      case WaitResult::deadline: {
        if (deadline <= silent_at) {
          connection_.reset();
          return Error(ErrorCode::timeout, "cukilnd sent no result before the deadline");
        }
        Error error = lost(ErrorCode::timeout, fmt::format("cukilnd sent nothing for {} ms",
                                                           link_->options_.heartbeat.count()));
        link_->hung_until_ns_.store(link_->open_until_ns_.load());
        return error;
      }
    }
    std::vector<UniqueFd> descriptors;
    const ssize_t got = receive_some(fd, buffer.get(), kReadBytes, descriptors);
    if (got == 0 || (got < 0 && errno != EAGAIN)) {
      return lost(ErrorCode::io, "cukilnd closed the connection");
    }
    if (got > 0) {
      connection_->parser.feed(ByteView(buffer.get(), static_cast<std::size_t>(got)));
    }
    for (UniqueFd& descriptor : descriptors) {
      connection_->parser.feed(std::move(descriptor));
    }
  }
}

void DaemonLink::Conversation::finish() {
  if (connection_ == nullptr || connection_->parser.in_frame()) {
    return;
  }
  link_->keep_idle(std::move(connection_));
}

void DaemonLink::Conversation::declined() {
  link_->declined_.fetch_add(1, std::memory_order_relaxed);
  link_->count(Fallback::declined);
  finish();
}

Result<DaemonFrame> DaemonLink::ask(DaemonOp op, const std::string& content) {
  CUKILN_TRY(Conversation conversation, begin());
  CUKILN_CHECK(conversation.send_content(op, content));
  CUKILN_TRY(DaemonFrame answer, conversation.receive());
  conversation.finish();
  return answer;
}

bool DaemonLink::report(const ClientReport& report) {
  auto connection = take_idle();
  if (connection == nullptr) {
    return false;
  }
  if (!connection->greeting.takes_reports) {
    keep_idle(std::move(connection));
    return false;
  }
  const std::string body = report.encode();
  const std::string header =
      encode_header(DaemonOp::report, ++connection->last_id, body.size(), false);
  const ssize_t sent = send_some(connection->socket.get(), {header, body}, -1);
  if (sent != static_cast<ssize_t>(header.size() + body.size())) {
    return false;  // a frame was sent in part: the connection must be closed
  }
  keep_idle(std::move(connection));
  return true;
}

Result<Greeting> DaemonLink::greet() {
  CUKILN_TRY(Conversation conversation, begin());
  Greeting greeting = conversation.greeting();
  conversation.finish();
  return greeting;
}

}  // namespace cukiln::wire
