// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/client/daemon_client.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "addons/daemon/client/daemon_connection.hpp"
#include "addons/daemon/client/object_message.hpp"
#include "addons/daemon/protocol/sealed_file.hpp"
#include "addons/daemon/protocol/unix_socket.hpp"
#include "core/base/clock.hpp"
#include "core/base/mutex.hpp"
#include "core/base/process_local.hpp"
#include "core/base/result.hpp"
#include "core/wire/send_all.hpp"

namespace cukiln {

using wire::DaemonFrame;
using wire::DaemonFrameParser;
using wire::DaemonOp;
using wire::Greeting;

namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMaxIdleConnections = 8;
constexpr std::size_t kReadBytes = 64 << 10;

/// The reply about a blob. Until then the daemon says now and then that it is alive: its remote
/// store may be slow. Errors: the conversation's.
Result<DaemonFrame> receive_after_progress(DaemonClient::Conversation& conversation) {
  for (;;) {
    CUKILN_TRY(DaemonFrame reply, conversation.receive());
    if (!reply.is(DaemonOp::progress)) {
      return reply;
    }
  }
}

}  // namespace

Result<SharedBytes> content_of(DaemonFrame& frame, std::uint64_t max_bytes) {
  if (frame.attachment && frame.body.empty()) {
    return wire::map_sealed_file(frame.attachment.get(), max_bytes);
  }
  return SharedBytes(std::move(frame.body));
}

struct DaemonClient::State {
  Mutex mutex;
  std::vector<std::unique_ptr<DaemonConnection>> idle CUKILN_GUARDED_BY(mutex);
};

DaemonClient::DaemonClient(Options options)
    : options_(std::move(options)), state_(std::make_unique<ProcessLocal<State>>()) {}

DaemonClient::~DaemonClient() = default;

bool DaemonClient::available() const noexcept {
  if (options_.sockets.empty()) {
    return false;
  }
  return options_.required || steady_ns() >= open_until_ns_.load(std::memory_order_relaxed);
}

bool DaemonClient::hung() const noexcept {
  return steady_ns() < hung_until_ns_.load(std::memory_order_relaxed);
}

DaemonTier::Counts DaemonClient::counts() const noexcept {
  return {asked_.load(std::memory_order_relaxed), absent_.load(std::memory_order_relaxed),
          failed_.load(std::memory_order_relaxed), declined_.load(std::memory_order_relaxed)};
}

void DaemonClient::open_breaker(const Error& error) {
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

std::unique_ptr<DaemonConnection> DaemonClient::take_idle() {
  State& own = state_->get();
  for (;;) {
    std::unique_ptr<DaemonConnection> idle;
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

void DaemonClient::keep_idle(std::unique_ptr<DaemonConnection> connection) {
  State& own = state_->get();
  const MutexLock lock(own.mutex);
  if (own.idle.size() < kMaxIdleConnections) {
    own.idle.push_back(std::move(connection));
  }
}

Result<std::unique_ptr<DaemonConnection>> DaemonClient::connect_any() {
  // Reported is the first error other than not_found; if there is none, that of the first socket.
  Error first(ErrorCode::not_found, "no socket of cukilnd is configured");
  for (const std::string& path : options_.sockets) {
    auto connection = DaemonConnection::open(path, options_);
    if (connection) {
      return connection;
    }
    if (first.code() == ErrorCode::not_found &&
        (connection.error().code() != ErrorCode::not_found || &path == &options_.sockets.front())) {
      first = std::move(connection).error();
    }
  }
  return first;
}

Result<DaemonClient::Conversation> DaemonClient::begin() {
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

DaemonClient::Conversation::Conversation(DaemonClient& client,
                                         std::unique_ptr<DaemonConnection> connection)
    : client_(&client), connection_(std::move(connection)), id_(++connection_->last_id) {}

DaemonClient::Conversation::Conversation(Conversation&&) noexcept = default;
DaemonClient::Conversation& DaemonClient::Conversation::operator=(Conversation&&) noexcept =
    default;
DaemonClient::Conversation::~Conversation() = default;

const Greeting& DaemonClient::Conversation::greeting() const noexcept {
  return connection_->greeting;
}

Error DaemonClient::Conversation::lost(ErrorCode code, std::string why) {
  connection_.reset();
  Error error(code, std::move(why));
  client_->open_breaker(error);
  return error;
}

Error DaemonClient::Conversation::protocol_error(const char* what) {
  return lost(ErrorCode::internal, fmt::format("cukilnd violated the protocol ({})", what));
}

Result<void> DaemonClient::Conversation::send(DaemonOp op, ByteView body, UniqueFd attachment) {
  if (connection_ == nullptr) {
    return Error(ErrorCode::io, "the conversation with cukilnd is over");
  }
  const int fd = connection_->socket.get();
  const std::string header =
      wire::encode_header(op, id_, body.size(), static_cast<bool>(attachment));
  const auto deadline = SteadyClock::now() + client_->options_.heartbeat;
  const std::array<ByteView, 2> parts{ByteView(header), body};
  const wire::SendStatus sent = wire::send_all(fd, parts, attachment.get(), [&] {
    return wait_for(fd, POLLOUT, deadline, {}) == WaitResult::ready;
  });
  switch (sent) {
    case wire::SendStatus::ok: return {};
    case wire::SendStatus::stopped:
      return lost(ErrorCode::timeout, fmt::format("cukilnd read nothing for {} ms",
                                                  client_->options_.heartbeat.count()));
    case wire::SendStatus::failed: break;
  }
  return lost(ErrorCode::io, "cukilnd closed the connection: " + errno_text(errno));
}

Result<void> DaemonClient::Conversation::send_content(DaemonOp op, const std::string& content) {
  if (content.size() <= wire::kMaxInlineBytes) {
    return send(op, content);
  }
  CUKILN_TRY(UniqueFd sealed, wire::make_sealed_file({content}));
  return send(op, {}, std::move(sealed));
}

Result<DaemonFrame> DaemonClient::Conversation::receive(SteadyClock::time_point deadline,
                                                        CancelFlags cancelled) {
  if (connection_ == nullptr) {
    return Error(ErrorCode::io, "the conversation with cukilnd is over");
  }
  const int fd = connection_->socket.get();
  const auto silent_at = SteadyClock::now() + client_->options_.heartbeat;
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
                                                           client_->options_.heartbeat.count()));
        client_->hung_until_ns_.store(client_->open_until_ns_.load());
        return error;
      }
    }
    std::vector<UniqueFd> descriptors;
    const ssize_t got = wire::receive_some(fd, buffer.get(), kReadBytes, descriptors);
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

void DaemonClient::Conversation::finish() {
  if (connection_ == nullptr || connection_->parser.in_frame()) {
    return;
  }
  client_->keep_idle(std::move(connection_));
}

void DaemonClient::Conversation::declined() {
  client_->declined_.fetch_add(1, std::memory_order_relaxed);
  client_->count(Fallback::declined);
  finish();
}

Error DaemonClient::Conversation::unexpected(DaemonFrame& reply, const char* what) {
  const auto content = content_of(reply);
  auto refusal =
      reply.is(DaemonOp::error) && content ? wire::Refusal::decode(*content) : std::nullopt;
  if (!refusal) {
    return protocol_error(what);
  }
  declined();
  return Error(refusal->code, std::move(refusal->message));
}

Result<DaemonFrame> DaemonClient::ask(DaemonOp op, const std::string& content) {
  CUKILN_TRY(Conversation conversation, begin());
  CUKILN_CHECK(conversation.send_content(op, content));
  CUKILN_TRY(DaemonFrame answer, conversation.receive());
  conversation.finish();
  return answer;
}

void DaemonClient::take_fallbacks(Report& report) {
  const auto take = [&](std::string name, std::uint64_t number) {
    report.emplace_back(std::move(name), number);
  };
  fallbacks_.each("fallbacks_", kFallbacks, flush_into(take));
}

bool DaemonClient::report(const Report& report) {
  auto connection = take_idle();
  if (connection == nullptr) {
    return false;
  }
  if (!connection->greeting.takes_reports) {
    keep_idle(std::move(connection));
    return false;
  }
  return send_report(std::move(connection), report);
}

bool DaemonClient::report_totals(const Report& report) {
  auto connection = take_idle();
  if (connection == nullptr && available()) {
    auto opened = connect_any();
    if (!opened && opened.error().code() != ErrorCode::not_found) {
      open_breaker(opened.error());
    }
    connection = opened ? *std::move(opened) : nullptr;
  }
  if (connection == nullptr) {
    return false;
  }
  if (!connection->greeting.takes_totals || !is_own_store(connection->greeting)) {
    keep_idle(std::move(connection));
    return false;
  }
  return send_report(std::move(connection), report);
}

bool DaemonClient::send_report(std::unique_ptr<DaemonConnection> connection, const Report& report) {
  const std::string body = wire::ClientReport{report}.encode();
  const std::string header =
      wire::encode_header(DaemonOp::report, ++connection->last_id, body.size(), false);
  const ssize_t sent = wire::send_some(connection->socket.get(), {header, body}, -1);
  if (sent != static_cast<ssize_t>(header.size() + body.size())) {
    return false;  // a frame was sent in part: the connection must be closed
  }
  keep_idle(std::move(connection));
  return true;
}

Lookup DaemonClient::find(const RequestDigest& request, ByteView request_canonical,
                          SetCheck& check) {
  CUKILN_TRY(auto conversation, begin());
  if (is_own_store(conversation.greeting())) {
    conversation.finish();
    return std::optional<StoreEntry>();
  }
  const wire::ObtainTerms terms{0, std::string(request_canonical)};
  CUKILN_CHECK(conversation.send_content(DaemonOp::obtain, terms.encode()));
  const auto entry_in = [&](DaemonFrame& reply) -> Lookup {
    if (reply.is(DaemonOp::miss)) {
      return std::optional<StoreEntry>();
    }
    if (!reply.is(DaemonOp::object)) {
      return conversation.unexpected(reply, "a lookup's reply");
    }
    auto entry = entry_of(reply);
    if (!entry) {
      return conversation.protocol_error("an entry");
    }
    return entry;
  };
  CUKILN_TRY(DaemonFrame reply, conversation.receive());
  std::optional<StoreEntry> found;
  if (reply.is(DaemonOp::question)) {  // which of several sets
    const auto content = content_of(reply);
    const auto tree = content ? SetTree::parse(*content) : std::nullopt;
    if (!tree) {
      return conversation.protocol_error("dependency sets");
    }
    CUKILN_TRY(
        found,
        find_in_sets(*tree, request_canonical, check, [&](const SetTree::Leaf& leaf) -> Lookup {
          CUKILN_CHECK(conversation.send(DaemonOp::answer, wire::EntryKey{leaf.key}.encode()));
          CUKILN_TRY(DaemonFrame next, conversation.receive());
          return entry_in(next);
        }));
  } else {
    CUKILN_TRY(found, entry_in(reply));
    if (found && (found->request != request ||
                  !check.holds(found->dependencies, found->may_trust_toolkit()))) {
      found.reset();
    }
  }
  conversation.finish();
  if (found) {
    found->found_in = Tier::daemon;
  }
  return found;
}

bool DaemonClient::may_ask_for_blobs(const Greeting& greeting) const {
  return greeting.keeps_blobs && (greeting.shares_blobs || !is_own_store(greeting));
}

BlobLookup DaemonClient::get(const BlobName& name) {
  constexpr const char* kAbout = "a blob";
  CUKILN_TRY(auto conversation, begin());
  if (!may_ask_for_blobs(conversation.greeting())) {
    conversation.finish();
    return std::optional<StoreBlob>();
  }
  const wire::BlobWanted wanted{std::string(name.kind), std::string(name.key)};
  CUKILN_CHECK(conversation.send(DaemonOp::get_blob, wanted.encode()));
  CUKILN_TRY(DaemonFrame reply, receive_after_progress(conversation));
  if (reply.is(DaemonOp::miss)) {
    conversation.finish();
    return std::optional<StoreBlob>();
  }
  if (!reply.is(DaemonOp::object)) {
    return conversation.unexpected(reply, kAbout);
  }
  const auto blob = blob_of(reply);
  if (!blob || blob->kind != name.kind || blob->key != name.key) {
    return conversation.protocol_error(kAbout);
  }
  conversation.finish();
  return std::optional(StoreBlob{blob->kind, blob->key, blob->bytes, {}, 0});
}

Result<PutOutcome> DaemonClient::put(const StoreBlob& blob) {
  CUKILN_TRY(auto conversation, begin());
  const bool has_own = is_own_store(conversation.greeting());
  if (!may_ask_for_blobs(conversation.greeting())) {
    conversation.finish();
    return PutOutcome::not_stored;
  }
  CUKILN_TRY(UniqueFd file, seal_object(encode(blob)));
  CUKILN_CHECK(conversation.send(DaemonOp::put_blob, {}, std::move(file)));
  CUKILN_TRY(DaemonFrame reply, receive_after_progress(conversation));
  if (!reply.is(DaemonOp::done)) {
    return conversation.unexpected(reply, "the storing of a blob");
  }
  conversation.finish();
  return has_own ? PutOutcome::already_there : PutOutcome::stored;
}

}  // namespace cukiln
