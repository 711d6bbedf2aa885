// SPDX-License-Identifier: Apache-2.0
// libFuzzer: sends requests to cukilnd's admin HTTP server. Built by scripts/fuzz.
//
// The server runs whole, with its thread and a store that has entries, on a socket of its own. The
// first byte gives the size of the pieces in which the rest is sent; then the client shuts its side
// down. Rules: a complete head gets one answer with the security policy; only GET and HEAD succeed;
// the connection is closed.

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "addons/daemon/ops/admin_http_server.hpp"
#include "addons/daemon/ops/http_listener.hpp"
#include "addons/daemon/ops/http_responder.hpp"
#include "core/base/bytes.hpp"
#include "core/base/file.hpp"
#include "fuzz/require.hpp"
#include "support/ops_source.hpp"

namespace {

using namespace cukiln;
using cukiln::testing::require;

bool has(ByteView text, ByteView part) { return text.find(part) != ByteView::npos; }

class Server {
 public:
  Server() {
    for (std::uint64_t number = 1; number <= 3; ++number) {
      require(bool(source_.store().put(testing::make_entry(number))), "an entry is stored");
    }
    source_.remote.servers = {{"redis://cache:6379", "redis", false}};
    std::vector<ops::HttpListener> listeners;
    listeners.push_back(*ops::listen_on_unix(path_));
    ops::AdminHttpLimits limits;
    limits.threads = 1;
    // Odd requests as from TCP, where they must name this host.
    server_ = *ops::AdminHttpServer::open(
        std::move(listeners),
        [this](ByteView head, bool) { return responder_.respond(head, head.size() % 2 == 1); },
        limits);
  }

  std::string answer_to(ByteView bytes, std::size_t piece) const {
    const UniqueFd plug(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size());
    require(::connect(plug.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
            "the server accepts");
    while (!bytes.empty()) {
      const ssize_t sent = TEMP_FAILURE_RETRY(  // libFuzzer has an alarm
          ::send(plug.get(), bytes.data(), std::min(piece, bytes.size()), MSG_NOSIGNAL));
      if (sent < 0) {
        break;  // the server has closed the connection
      }
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    ::shutdown(plug.get(), SHUT_WR);
    std::string answer;
    char buffer[16384];
    for (ssize_t got = 0;
         (got = TEMP_FAILURE_RETRY(::read(plug.get(), buffer, sizeof buffer))) > 0;) {
      answer.append(buffer, static_cast<std::size_t>(got));
    }
    return answer;
  }

 private:
  testing::ScratchFolder folder_;
  const std::string path_ = folder_ / "ops.sock";
  testing::FakeOpsSource source_{folder_ / "store"};
  ops::HttpResponder responder_{source_};
  std::unique_ptr<ops::AdminHttpServer> server_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Server server;
  if (size == 0) {
    return 0;
  }
  const ByteView bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string answer = server.answer_to(bytes, data[0] * std::size_t{16} + 1);
  const std::size_t end = bytes.find("\r\n\r\n");
  if (end == ByteView::npos || end + 4 > ops::AdminHttpLimits().head_bytes) {
    require(answer.empty() || answer.rfind("HTTP/1.1 4", 0) == 0, "no head, no good answer",
            answer);
    return 0;
  }
  require(answer.rfind("HTTP/1.1 ", 0) == 0, "a head gets an answer", answer);
  const ByteView head = ByteView(answer).substr(0, answer.find("\r\n\r\n") + 2);
  require(has(head, "\r\nContent-Security-Policy: default-src 'none'"), "with the policy", head);
  require(has(head, "\r\nConnection: close\r\n"), "the last one of its connection", head);
  require(!has(ByteView(answer).substr(1), "\r\nHTTP/1.1 "), "one answer", answer);
  if (answer.rfind("HTTP/1.1 2", 0) == 0) {
    constexpr const char* kBlanks = " \t";  // any number of them around the method
    ByteView method = bytes.substr(std::min(bytes.find_first_not_of(kBlanks), bytes.size()));
    method = method.substr(0, method.find_first_of(kBlanks));
    require(method == "GET" || method == "HEAD", "only these are done", answer);
  }
  return 0;
}
