// SPDX-License-Identifier: Apache-2.0
#include <hiredis/hiredis.h>
#include <poll.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "addons/fleet/endpoint.hpp"
#include "addons/fleet/envelope.hpp"
#include "addons/fleet/resolve.hpp"
#include "addons/fleet/stream.hpp"
#include "core/base/cache_format.hpp"
#include "core/base/mutex.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

constexpr std::size_t kBufferBytes = 64 << 10;
constexpr std::size_t kMaxLineBytes = 1024;  // of a reply that is one line
constexpr std::size_t kMaxDetailBytes = 200;
constexpr const char* kExpiryS = "2592000";  // 30 days; each put renews it

struct FreeReader {
  void operator()(redisReader* reader) const noexcept { ::redisReaderFree(reader); }
};
struct FreeReply {
  void operator()(redisReply* reply) const noexcept { ::freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

std::string command(const std::vector<ByteView>& words) {
  std::vector<const char*> data;
  std::vector<std::size_t> sizes;
  for (const ByteView word : words) {
    data.push_back(word.data());
    sizes.push_back(word.size());
  }
  char* text = nullptr;
  const int size =
      ::redisFormatCommandArgv(&text, static_cast<int>(words.size()), data.data(), sizes.data());
  std::string out;
  if (size > 0) {
    out.assign(text, static_cast<std::size_t>(size));
    ::redisFreeCommand(text);
  }
  return out;
}

/// Returns the status for an error reply, by its first word.
RemoteStatus status_of_error(std::string_view text) noexcept {
  const std::string_view word = text.substr(0, text.find(' '));
  for (const std::string_view one : {"NOAUTH", "WRONGPASS", "NOPERM", "DENIED"}) {
    if (word == one) return RemoteStatus::denied;
  }
  for (const std::string_view one :
       {"OOM", "MISCONF", "LOADING", "BUSY", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"}) {
    if (word == one) return RemoteStatus::busy;
  }
  return word == "MOVED" || word == "ASK" ? RemoteStatus::redirected : RemoteStatus::bad_answer;
}

/// Checks the first line of a reply before hiredis parses it, because hiredis trusts any length:
/// `*2147483647` makes it allocate 16 GiB. None of the commands used here is answered by a list,
/// and no string is larger than an object may be.
class ReplyGuard {
 public:
  /// Checks the next bytes of the reply. Returns ok as long as they are acceptable.
  RemoteStatus check(ByteView bytes) {
    if (known_) {
      return RemoteStatus::ok;
    }
    line_.append(bytes.substr(0, kMaxLineBytes - std::min(kMaxLineBytes, line_.size())));
    if (line_.empty()) {
      return RemoteStatus::ok;
    }
    if (std::string_view("+-:$").find(line_[0]) == std::string_view::npos) {
      return RemoteStatus::bad_answer;
    }
    const std::size_t end = line_.find("\r\n");
    if (end == std::string::npos) {
      return line_.size() >= kMaxLineBytes ? RemoteStatus::bad_answer : RemoteStatus::ok;
    }
    known_ = true;
    if (line_[0] != '$') {
      return RemoteStatus::ok;
    }
    std::int64_t size = 0;
    const auto [rest, error] = std::from_chars(line_.data() + 1, line_.data() + end, size);
    if (error != std::errc{} || rest != line_.data() + end || size < -1) {
      return RemoteStatus::bad_answer;
    }
    return size > static_cast<std::int64_t>(kMaxEnvelopeBytes) ? RemoteStatus::oversize
                                                               : RemoteStatus::ok;
  }

 private:
  std::string line_;
  bool known_ = false;
};

/// A connection to a Redis server. It must be dropped after anything but a complete reply.
class RedisConnection {
 public:
  explicit RedisConnection(std::unique_ptr<ByteStream> stream)
      : stream_(std::move(stream)), reader_(::redisReaderCreate()) {}

  /// True if the server has closed the connection, or has sent anything unrequested.
  bool stale() const {
    char byte = 0;
    return reader_->pos < reader_->len || stream_->receive(&byte, 1) != ByteStream::kLater;
  }

  /// True if anything was received after the last command. If not, the server may have closed an
  /// idle connection at that moment, which is not a failure.
  bool replied() const noexcept { return replied_; }

  RemoteAnswer ask(const std::vector<ByteView>& words, SteadyTime deadline, Reply& reply) {
    replied_ = false;
    RemoteAnswer sent = send(command(words), deadline);
    return sent.status == RemoteStatus::ok ? receive(deadline, reply) : sent;
  }

 private:
  RemoteAnswer send(ByteView bytes, SteadyTime deadline) const {
    while (!bytes.empty()) {
      const std::ptrdiff_t count = stream_->send(bytes);
      if (count >= 0) {
        bytes.remove_prefix(static_cast<std::size_t>(count));
      } else if (count == ByteStream::kFailed) {
        return stream_->failure();
      } else if (!wait_for_socket(stream_->socket(), POLLOUT, deadline)) {
        return {RemoteStatus::timeout, {}, "the server does not read the request"};
      }
    }
    return {};
  }

  RemoteAnswer receive(SteadyTime deadline, Reply& reply) {
    ReplyGuard guard;
    std::string buffer(kBufferBytes, '\0');
    for (;;) {
      const std::ptrdiff_t count = stream_->receive(buffer.data(), buffer.size());
      if (count == ByteStream::kLater) {
        if (!wait_for_socket(stream_->socket(), POLLIN, deadline)) {
          return {RemoteStatus::timeout, {}, "no complete reply before the deadline"};
        }
        continue;
      }
      if (count == ByteStream::kFailed && stream_->failure().status == RemoteStatus::untrusted) {
        return stream_->failure();
      }
      if (count <= 0) {
        return {RemoteStatus::bad_answer, {}, "the server closed the connection"};
      }
      replied_ = true;
      const ByteView bytes(buffer.data(), static_cast<std::size_t>(count));
      if (const RemoteStatus status = guard.check(bytes); status != RemoteStatus::ok) {
        return {status, {}, "the reply is not a valid Redis reply to this command"};
      }
      void* whole = nullptr;
      if (::redisReaderFeed(reader_.get(), bytes.data(), bytes.size()) != REDIS_OK ||
          ::redisReaderGetReply(reader_.get(), &whole) != REDIS_OK) {
        return {RemoteStatus::bad_answer, {}, reader_->errstr};
      }
      if (whole != nullptr) {
        reply.reset(static_cast<redisReply*>(whole));
        return {};
      }
    }
  }

  std::unique_ptr<ByteStream> stream_;
  std::unique_ptr<redisReader, FreeReader> reader_;
  bool replied_ = false;
};

struct RedisAddress {
  std::string host, port = "6379", user, password, prefix = "cukiln" CUKILN_CACHE_FORMAT;
  bool tls = false;
};

std::optional<RedisAddress> parse_address(std::string_view url) {
  RedisAddress out;
  out.tls = url.substr(0, url.find(':')) == "rediss";
  url.remove_prefix(std::min(url.find("://") + 3, url.size()));
  if (const std::size_t slash = url.find('/'); slash != std::string_view::npos) {
    const std::string_view prefix = url.substr(slash + 1);
    out.prefix = prefix.empty() ? out.prefix : std::string(prefix);
    url = url.substr(0, slash);
  }
  if (const std::size_t at = url.rfind('@'); at != std::string_view::npos) {
    const std::string_view credentials = url.substr(0, at);
    const std::size_t colon = credentials.find(':');
    out.user = credentials.substr(0, colon);
    out.password = colon == std::string_view::npos ? "" : credentials.substr(colon + 1);
    url.remove_prefix(at + 1);
  }
  std::size_t end = url.rfind(':');
  if (!url.empty() && url[0] == '[') {  // an IPv6 address
    const std::size_t close = url.find(']');
    if (close == std::string_view::npos) {
      return std::nullopt;
    }
    out.host = url.substr(1, close - 1);
    end = close + 1 < url.size() ? close + 1 : std::string_view::npos;
  } else {
    out.host = url.substr(0, end);
  }
  if (end != std::string_view::npos) {
    out.port = url.substr(end + 1);
  }
  int port = 0;
  const auto [rest, error] =
      std::from_chars(out.port.data(), out.port.data() + out.port.size(), port);
  const bool good = !out.host.empty() && error == std::errc{} &&
                    rest == out.port.data() + out.port.size() && port > 0 && port < 65536;
  return good ? std::optional(std::move(out)) : std::nullopt;
}

class RedisRemote final : public RemoteEndpoint {
 public:
  RedisRemote(RedisAddress address, RemoteOptions options)
      : address_(std::move(address)),
        options_(std::move(options)),
        where_(fmt::format("{}://{}:{}/{}", address_.tls ? "rediss" : "redis", address_.host,
                           address_.port, address_.prefix)) {}

  const std::string& where() const noexcept override { return where_; }

  RemoteAnswer get(const ObjectName& name, SteadyTime deadline) override {
    return get_string(key_of(name), deadline);
  }

  RemoteAnswer put(const ObjectName& name, ByteView bytes, SteadyTime deadline) override {
    return set({"SET", key_of(name), bytes, "EX", kExpiryS}, deadline);
  }

  bool has_leases() const noexcept override { return true; }
  RemoteAnswer acquire_lease(const ObjectName& name, ByteView token,
                             std::chrono::milliseconds expiry, SteadyTime deadline) override {
    const std::string ms = std::to_string(expiry.count());
    return set({"SET", lease_of(name), token, "NX", "PX", ms}, deadline);
  }
  RemoteAnswer renew_lease(const ObjectName& name, ByteView token, std::chrono::milliseconds expiry,
                           SteadyTime deadline) override {
    const std::string ms = std::to_string(expiry.count());
    return set({"SET", lease_of(name), token, "XX", "PX", ms}, deadline);
  }
  RemoteAnswer release_lease(const ObjectName& name, SteadyTime deadline) override {
    Reply reply;
    RemoteAnswer answer = ask({"DEL", lease_of(name)}, deadline, reply);
    const bool wrong = answer.status == RemoteStatus::ok && reply->type != REDIS_REPLY_INTEGER;
    return wrong ? wrong_type() : answer;
  }
  RemoteAnswer query_lease(const ObjectName& name, SteadyTime deadline) override {
    return get_string(lease_of(name), deadline);
  }

 private:
  std::string key_of(const ObjectName& name) const { return address_.prefix + ":" + name.hex(); }
  std::string lease_of(const ObjectName& name) const {
    return address_.prefix + ":lease:" + name.hex();
  }
  static RemoteAnswer wrong_type() {
    return {RemoteStatus::bad_answer, {}, "the reply has the wrong type"};
  }

  RemoteAnswer get_string(const std::string& key, SteadyTime deadline) {
    Reply reply;
    RemoteAnswer answer = ask({"GET", key}, deadline, reply);
    if (answer.status != RemoteStatus::ok) {
      return answer;
    }
    if (reply->type == REDIS_REPLY_NIL) {
      return {RemoteStatus::absent, {}, {}};
    }
    if (reply->type != REDIS_REPLY_STRING) {
      return wrong_type();
    }
    answer.body.assign(reply->str, static_cast<std::size_t>(reply->len));
    return answer;
  }

  /// Sends a SET command. Returns absent if NX or XX prevented it.
  RemoteAnswer set(const std::vector<ByteView>& words, SteadyTime deadline) {
    Reply reply;
    RemoteAnswer answer = ask(words, deadline, reply);
    if (answer.status != RemoteStatus::ok) {
      return answer;
    }
    if (reply->type == REDIS_REPLY_NIL) {
      return {RemoteStatus::absent, {}, {}};
    }
    return reply->type == REDIS_REPLY_STATUS ? RemoteAnswer() : wrong_type();
  }

  /// Sends a command over an idle or new connection. If it succeeds, `reply` is not an error reply.
  RemoteAnswer ask(const std::vector<ByteView>& words, SteadyTime deadline, Reply& reply) {
    std::unique_ptr<RedisConnection> connection = take_idle();
    RemoteAnswer answer;
    if (connection != nullptr) {
      answer = ask_on(*connection, words, deadline, reply);
    }
    if (connection == nullptr ||
        (!connection->replied() && answer.status != RemoteStatus::timeout)) {
      answer = connect(deadline, connection);
      if (answer.status == RemoteStatus::ok) {
        answer = ask_on(*connection, words, deadline, reply);
      }
    }
    if (reply != nullptr) {  // the connection can be used again, also after an error reply
      const MutexLock lock(mutex_);
      idle_.push_back(std::move(connection));
    }
    return answer;
  }

  RemoteAnswer ask_on(RedisConnection& connection, const std::vector<ByteView>& words,
                      SteadyTime deadline, Reply& reply) const {
    RemoteAnswer answer = connection.ask(words, deadline, reply);
    if (address_.tls && answer.status == RemoteStatus::bad_answer && !connection.replied() &&
        options_.certificate.empty()) {
      answer.detail += "; if it requires client certificates, add ?certificate=FILE to the address";
    }
    if (answer.status == RemoteStatus::ok && reply->type == REDIS_REPLY_ERROR) {
      const std::string_view text(reply->str, static_cast<std::size_t>(reply->len));
      return {status_of_error(text),
              {},
              std::string(text.substr(0, kMaxDetailBytes)),
              text.starts_with("LOADING ")};
    }
    return answer;
  }

  std::unique_ptr<RedisConnection> take_idle() {
    const MutexLock lock(mutex_);
    while (!idle_.empty()) {
      std::unique_ptr<RedisConnection> connection = std::move(idle_.back());
      idle_.pop_back();
      if (!connection->stale()) {
        return connection;
      }
    }
    return nullptr;
  }

  RemoteAnswer connect(SteadyTime deadline, std::unique_ptr<RedisConnection>& connection) {
    OpenedStream opened =
        address_.tls ? open_tls_stream(address_.host, address_.port, deadline, options_)
                     : open_stream(address_.host, address_.port, connect_deadline(deadline));
    if (opened.stream == nullptr) {
      return std::move(opened.failure);
    }
    auto fresh = std::make_unique<RedisConnection>(std::move(opened.stream));
    if (!address_.password.empty()) {
      std::vector<ByteView> words = {"AUTH", address_.user, address_.password};
      if (address_.user.empty()) {
        words.erase(words.begin() + 1);
      }
      Reply reply;
      RemoteAnswer answer = ask_on(*fresh, words, deadline, reply);
      if (answer.status != RemoteStatus::ok) {
        return answer;
      }
    }
    connection = std::move(fresh);
    return {};
  }

  const RedisAddress address_;
  const RemoteOptions options_;
  const std::string where_;
  Mutex mutex_;
  std::vector<std::unique_ptr<RedisConnection>> idle_ CUKILN_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<RemoteEndpoint>> make_redis_remote(const std::string& url,
                                                          const RemoteOptions& options) {
  auto address = parse_address(url);
  if (!address) {
    return make_error(ErrorCode::invalid_argument,
                      "a Redis store's address is malformed: expected "
                      "redis(s)://[[user]:password@]host[:port][/prefix]");
  }
  if (address->tls && !has_tls()) {
    return Error(ErrorCode::invalid_argument, kWithoutCurl);
  }
  return std::unique_ptr<RemoteEndpoint>(
      std::make_unique<RedisRemote>(*std::move(address), options));
}

}  // namespace cukiln
