// SPDX-License-Identifier: Apache-2.0
// libFuzzer: reads answers of a remote store. Built by scripts/fuzz.
//
// A server sends the input to every client and closes. The first byte selects the protocol and the
// request. Rules: the call ends before its deadline, and keeps nothing larger than an object.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "addons/fleet/endpoint.hpp"
#include "addons/fleet/envelope.hpp"
#include "core/base/bytes.hpp"
#include "core/base/file.hpp"
#include "fuzz/require.hpp"

namespace {

using namespace cukiln;
using cukiln::testing::require;
using SteadyClock = std::chrono::steady_clock;

class Server {
 public:
  Server() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    require(::bind(listener_.get(), any, size) == 0 && ::listen(listener_.get(), 16) == 0 &&
                ::getsockname(listener_.get(), any, &size) == 0,
            "a port is free");
    const std::string where = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    http_ = *make_http_remote("http://" + where + "/cache");
    redis_ = *make_redis_remote("redis://" + where);
    std::thread([this] { serve(); }).detach();
  }

  RemoteAnswer ask(std::uint8_t what, ByteView answer) {
    {
      const std::lock_guard lock(mutex_);
      answer_ = answer;
    }
    RemoteEndpoint& endpoint = what % 2 == 0 ? *http_ : *redis_;
    const ObjectName name = ObjectName::of_sets("fuzz");
    const auto deadline = SteadyClock::now() + std::chrono::seconds(5);
    switch (what / 2 % 4) {
      case 0: return endpoint.put(name, "bytes", deadline);
      case 1: return endpoint.query_lease(name, deadline);
      default: return endpoint.get(name, deadline);
    }
  }

 private:
  /// One question at a time, so a connection that the client keeps is of no more use to it when the
  /// next one comes.
  [[noreturn]] void serve() {
    UniqueFd last;
    for (;;) {
      UniqueFd plug(TEMP_FAILURE_RETRY(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
      const linger none{1, 0};  // thousands of connections a second leave no port in TIME_WAIT
      ::setsockopt(plug.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
      last = std::move(plug);
      char buffer[4096];
      if (TEMP_FAILURE_RETRY(::recv(last.get(), buffer, sizeof buffer, 0)) > 0) {
        const std::string answer = this->answer();
        static_cast<void>(!::send(last.get(), answer.data(), answer.size(), MSG_NOSIGNAL));
        ::shutdown(last.get(), SHUT_WR);
      }
    }
  }

  std::string answer() {
    const std::lock_guard lock(mutex_);
    return answer_;
  }

  UniqueFd listener_;
  std::mutex mutex_;
  std::string answer_;  // of the question that was asked last
  std::unique_ptr<RemoteEndpoint> http_, redis_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto& server = *new Server;  // its thread never ends
  if (size == 0) {
    return 0;
  }
  const auto start = SteadyClock::now();
  const RemoteAnswer answer =
      server.ask(data[0], ByteView(reinterpret_cast<const char*>(data) + 1, size - 1));
  require(SteadyClock::now() - start < std::chrono::seconds(6), "a call ends at its deadline",
          answer.detail);
  require(answer.status == RemoteStatus::ok || answer.body.empty(), "only a good answer has a body",
          answer.body);
  require(answer.body.size() <= size, "nothing is made up", answer.body);
  return 0;
}
