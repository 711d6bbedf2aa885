// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/ops/http_responder.hpp"

#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include "addons/daemon/ops/api_json.hpp"
#include "addons/daemon/ops/metrics_text.hpp"
#include "core/base/mutex.hpp"
#include "core/base/result.hpp"
#include "embedded/ops_page.hpp"

namespace cukiln::ops {

namespace {

using httplib::Request;
using httplib::Response;
using std::chrono::milliseconds;

constexpr int kBadRequest = 400, kNotFound = 404, kNotAllowed = 405, kInternal = 500,
              kUnavailable = 503;
constexpr milliseconds kStateWait{2000};
constexpr milliseconds kHealthWait{5000};
constexpr milliseconds kGateWait{2000};

constexpr const char* kText = "text/plain; charset=utf-8";
constexpr const char* kJson = "application/json; charset=utf-8";
constexpr const char* kMetrics = "text/plain; version=0.0.4; charset=utf-8";

const char* type_of(std::string_view file) {
  const std::string_view suffix = file.substr(file.rfind('.') + 1);
  return suffix == "html"  ? "text/html; charset=utf-8"
         : suffix == "css" ? "text/css; charset=utf-8"
         : suffix == "js"  ? "text/javascript; charset=utf-8"
                           : "image/svg+xml";
}

/// A stream in memory: reads a request's head and collects the response.
class MemoryStream final : public httplib::Stream {
 public:
  MemoryStream(ByteView head, bool tcp) : head_(head), tcp_(tcp) {}
  std::string take() { return std::move(response_); }

  bool is_readable() const override { return !head_.empty(); }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, std::size_t size) override {
    size = std::min(size, head_.size());
    std::memcpy(to, head_.data(), size);
    head_.remove_prefix(size);
    return static_cast<ssize_t>(size);
  }
  ssize_t write(const char* from, std::size_t size) override {
    response_.append(from, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  /// Tells handlers whether the request came over TCP: the port is 1 then, else 0.
  void get_local_ip_and_port(std::string&, int& port) const override { port = tcp_ ? 1 : 0; }
  socket_t socket() const override { return 0; }

 private:
  ByteView head_;
  const bool tcp_;
  std::string response_;
};

/// Protects against DNS rebinding: a foreign site can make its name resolve to 127.0.0.1, but its
/// requests then name that site. Any port is accepted, for `ssh -L`.
bool names_this_host(const Request& request) {
  std::string host = request.get_header_value("Host");
  if (request.get_header_value_count("Host") != 1) {
    return false;
  }
  const std::size_t colon = host.rfind(':');
  if (colon != std::string::npos && host.find(']', colon) == std::string::npos) {
    host.resize(colon);
  }
  std::transform(host.begin(), host.end(), host.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return host == "127.0.0.1" || host == "localhost" || host == "[::1]";
}

void set_text(Response& response, int status, const std::string& text) {
  response.status = status;
  response.set_content(text + "\n", kText);
}

/// Admits one thread at a time to an operation that may hang, so that a dead disk blocks one thread
/// and the others can still answer `/healthz`.
class Gate {
 public:
  bool enter() {
    MutexLock lock(mutex_);
    if (!is_free_.wait_for(lock, kGateWait, [this]() CUKILN_REQUIRES(mutex_) { return !taken_; })) {
      return false;
    }
    taken_ = true;
    return true;
  }
  void leave() {
    const MutexLock lock(mutex_);
    taken_ = false;
    is_free_.notify_one();
  }

 private:
  Mutex mutex_;
  ConditionVariable is_free_;
  bool taken_ CUKILN_GUARDED_BY(mutex_) = false;
};

/// Writes to the store and reads it back.
Result<void> probe(TieredStore& store) {
  constexpr const char* kCounter = "readiness_probes";
  if (!store.bypass_reason().empty()) {
    return make_error(ErrorCode::io, "the store cannot be used: {}", store.bypass_reason());
  }
  if (store.read_only()) {
    return make_error(ErrorCode::io, "the store in {} is read-only", store.directory());
  }
  CUKILN_TRY(auto before, store.counters());
  store.count(kCounter);
  CUKILN_CHECK(store.flush());
  CUKILN_TRY(auto after, store.counters());
  if (after[kCounter] <= before[kCounter]) {
    return make_error(ErrorCode::io, "the store did not return what was written to it");
  }
  return {};
}

}  // namespace

class HttpResponder::Server final : public httplib::Server {
 public:
  explicit Server(OpsSource& source) : source_(source) {
    set_default_headers(
        {{"Content-Security-Policy",
          "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
          "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
         {"X-Content-Type-Options", "nosniff"},
         {"X-Frame-Options", "DENY"},
         {"Referrer-Policy", "no-referrer"},
         {"Cross-Origin-Resource-Policy", "same-origin"},
         {"Cache-Control", "no-store"}});
    set_pre_routing_handler([this](const Request& request, Response& response) {
      return is_refused(request, response) ? HandlerResponse::Handled : HandlerResponse::Unhandled;
    });
    set_exception_handler([](const Request&, Response& response, const std::exception_ptr&) {
      set_text(response, kInternal, "internal error: the request failed");
    });
    set_error_handler([](const Request&, Response& response) {
      if (response.body.empty()) {
        set_text(response, response.status,
                 response.status == kNotFound
                     ? "not found; the paths are /, /metrics, /healthz, /readyz, /api/status and "
                       "/api/entries"
                     : fmt::format("invalid request ({})", response.status));
      }
    });
    for (const embedded::File& file : embedded::ops_page()) {
      const auto serve = [file](const Request&, Response& response) {
        response.set_content(file.bytes.data(), file.bytes.size(), type_of(file.name));
      };
      Get(file.name == "index.html" ? "/" : "/" + std::string(file.name), serve);
    }
    Get("/healthz", [this](const Request&, Response& response) { serve_health(response); });
    Get("/readyz", [this](const Request&, Response& response) { serve_readiness(response); });
    Get("/metrics", [this](const Request&, Response& response) {
      with_store(response, &Server::serve_metrics);
    });
    Get("/api/status", [this](const Request&, Response& response) {
      with_store(response, &Server::serve_status);
    });
    Get("/api/entries", [this](const Request& request, Response& response) {
      with_store(response, [&](Server&, Response& to) { serve_entries(request, to); });
    });
    Get("/api/entries/([0-9a-f]{64})", [this](const Request& request, Response& response) {
      with_store(response, [&](Server&, Response& to) { serve_entry(request.matches[1], to); });
    });
  }

  std::string respond(ByteView head, bool tcp) {
    MemoryStream stream(head, tcp);
    bool closed = false;
    process_request(stream, true, closed, [](Request& request) {
      // A request may name thousands of ranges of one response, and cpp-httplib's brotli takes a
      // second for a long one.
      request.ranges.clear();
      request.headers.erase("Accept-Encoding");
      request.headers.erase("Expect");  // no body is read
    });
    return stream.take();
  }

 private:
  bool is_refused(const Request& request, Response& response) const {
    if (request.method != "GET" && request.method != "HEAD") {
      response.set_header("Allow", "GET, HEAD");
      set_text(response, kNotAllowed, "method not allowed: expected GET or HEAD");
      return true;
    }
    if (request.local_port != 0 && !names_this_host(request)) {
      set_text(response, kBadRequest, "the Host header must name 127.0.0.1, localhost or [::1]");
      return true;
    }
    return false;
  }

  /// Calls `body` inside the gate. Errors: timeout, and those of `body`.
  template <class Body>
  static auto through(Gate& gate, Body&& body) -> decltype(body()) {
    if (!gate.enter()) {
      return make_error(ErrorCode::timeout, "another request still waits for it after {} ms",
                        kGateWait.count());
    }
    const std::unique_ptr<Gate, void (*)(Gate*)> leave(&gate, [](Gate* g) { g->leave(); });
    return body();
  }

  template <class Serve>
  void with_store(Response& response, Serve&& serve) {
    const auto served = through(store_gate_, [&]() -> Result<void> {
      std::invoke(serve, *this, response);
      return {};
    });
    if (!served) {
      set_text(response, kUnavailable, "the store: " + served.error().message());
    }
  }

  void serve_health(Response& response) {
    const auto state = source_.state(kHealthWait);
    state ? set_text(response, 200, "ok")
          : set_text(response, kUnavailable, state.error().message());
  }

  void serve_readiness(Response& response) {
    std::string report;
    bool ready = true;
    const auto line = [&](std::string_view part, const Error* error, std::string_view good) {
      ready = ready && error == nullptr;
      report += fmt::format("{}: {}\n", part, error == nullptr ? good : error->message());
    };
    const auto state = source_.state(kStateWait);
    const Error draining(ErrorCode::io, "draining: this daemon shuts down");
    line("daemon", !state ? &state.error() : state->draining ? &draining : nullptr, "ok");
    const auto probed = through(store_gate_, [&] { return probe(source_.store()); });
    line("store", probed ? nullptr : &probed.error(), "ok, written and read");
    const auto compiler = through(compiler_gate_, [&] { return source_.compiler(); });
    line("compiler", compiler ? nullptr : &compiler.error(), compiler ? *compiler : "");
    report.pop_back();
    set_text(response, ready ? 200 : kUnavailable, report);
  }

  void serve_metrics(Response& response) {
    const auto state = source_.state(kStateWait);
    if (!state) {
      return set_text(response, kUnavailable, state.error().message());
    }
    const auto compiler = through(compiler_gate_, [&] { return source_.compiler(); });
    response.set_content(metrics_text(*state, source_.store(), source_.remotes(),
                                      compiler ? *compiler : std::string()),
                         kMetrics);
  }

  void serve_status(Response& response) {
    const auto state = source_.state(kStateWait);
    if (!state) {
      return set_text(response, kUnavailable, state.error().message());
    }
    response.set_content(status_json(*state, source_.store(), source_.remotes()), kJson);
  }

  void serve_entries(const Request& request, Response& response) {
    EntryQuery query;
    query.text = request.get_param_value("q");
    query.target = request.get_param_value("target");
    query.origin = request.get_param_value("origin");
    query.sort = request.get_param_value("sort");
    query.offset = number(request, "offset", 0);
    query.limit = number(request, "limit", query.limit);
    set_json(response, entries_json(source_.store(), query));
  }

  void serve_entry(const std::string& key, Response& response) {
    set_json(response, entry_json(source_.store(), key));
  }

  static void set_json(Response& response, const Result<std::string>& json) {
    if (json) {
      return response.set_content(*json, kJson);
    }
    const ErrorCode code = json.error().code();
    set_text(response,
             code == ErrorCode::not_found          ? kNotFound
             : code == ErrorCode::invalid_argument ? kBadRequest
                                                   : kUnavailable,
             json.error().message());
  }

  static std::size_t number(const Request& request, const char* name, std::size_t fallback) {
    constexpr std::size_t kMaxDigits = 9;
    const std::string text = request.get_param_value(name);
    const bool valid = !text.empty() && text.size() <= kMaxDigits &&
                       text.find_first_not_of("0123456789") == std::string::npos;
    return valid ? std::stoul(text) : fallback;
  }

  OpsSource& source_;
  Gate store_gate_, compiler_gate_;
};

HttpResponder::HttpResponder(OpsSource& source) : server_(std::make_unique<Server>(source)) {}
HttpResponder::~HttpResponder() = default;

std::string HttpResponder::respond(ByteView head, bool tcp) { return server_->respond(head, tcp); }

}  // namespace cukiln::ops
