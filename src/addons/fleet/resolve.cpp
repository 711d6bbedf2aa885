// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/resolve.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <thread>

#include "core/base/mutex.hpp"
#include "core/base/poll_until.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const noexcept { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

/// A name resolution, shared with the thread that runs it. getaddrinfo has no deadline and cannot
/// be cancelled, so it runs in a detached thread: if it hangs, the caller does not.
struct Resolution {
  Mutex mutex;
  ConditionVariable ended;
  bool done CUKILN_GUARDED_BY(mutex) = false;
  int error CUKILN_GUARDED_BY(mutex) = 0;
  Addresses found CUKILN_GUARDED_BY(mutex);
};

Addresses resolve(const std::string& host, const std::string& port, int flags, int& error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  return Addresses(error == 0 ? list : nullptr);
}

RemoteAnswer resolve_by(const std::string& host, const std::string& port, SteadyTime deadline,
                        Addresses& found) {
  int error = 0;
  found = resolve(host, port, AI_NUMERICHOST, error);
  if (found != nullptr) {
    return {};
  }
  const auto resolution = std::make_shared<Resolution>();
  std::thread([resolution, host, port] {
    int resolve_error = 0;
    Addresses list = resolve(host, port, 0, resolve_error);
    const MutexLock lock(resolution->mutex);
    resolution->found = std::move(list);
    resolution->error = resolve_error;
    resolution->done = true;
    resolution->ended.notify_one();
  }).detach();
  MutexLock lock(resolution->mutex);
  const auto is_done = [&]() CUKILN_REQUIRES(resolution->mutex) { return resolution->done; };
  if (!resolution->ended.wait_until(lock, deadline, is_done)) {
    return {RemoteStatus::timeout, {}, "the name server did not reply before the deadline"};
  }
  found = std::move(resolution->found);
  if (found == nullptr) {
    return {RemoteStatus::unreachable, {}, ::gai_strerror(resolution->error)};
  }
  return {};
}

}  // namespace

bool wait_for_socket(int socket, short events, SteadyTime deadline) {
  pollfd one{socket, events, 0};
  while (std::chrono::steady_clock::now() < deadline) {
    if (poll_until(&one, 1, deadline) != Polled::waiting) {
      return true;  // an error is reported by the next call on the socket
    }
  }
  return false;
}

Connected connect_to(const std::string& host, const std::string& port, SteadyTime deadline) {
  Connected out;
  Addresses addresses;
  out.failure = resolve_by(host, port, deadline, addresses);
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    UniqueFd socket(::socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    int error = 0;
    if (!socket ||
        (::connect(socket.get(), one->ai_addr, one->ai_addrlen) != 0 && errno != EINPROGRESS)) {
      error = errno;
    } else if (!wait_for_socket(socket.get(), POLLOUT, deadline)) {
      out.failure = {RemoteStatus::timeout, {}, "no connection before the deadline"};
      return out;
    } else {
      socklen_t size = sizeof error;
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) {
      const int on = 1;
      ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      out.failure = {};
      out.socket = std::move(socket);
      return out;
    }
    out.failure = {RemoteStatus::unreachable, {}, errno_text(error), error == ECONNREFUSED};
  }
  return out;
}

}  // namespace cukiln
