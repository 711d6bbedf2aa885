// SPDX-License-Identifier: Apache-2.0
#include "daemon/signer/signer_server.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/result.hpp"
#include "wire/signing_messages.hpp"

namespace cukiln::daemon {

namespace {

constexpr std::size_t kMaxConnections = 8;  // a daemon has one
constexpr std::size_t kFixedPolled = 2;     // `wake` and the listener

}  // namespace

SignerServer::SignerServer(Options options, UniqueFd listener, Signer& signer)
    : options_(std::move(options)), listener_(std::move(listener)), signer_(signer) {}

Result<void> SignerServer::run(const std::atomic<bool>& stopping, int wake) {
  while (!stopping) {
    std::vector<pollfd> polled{{wake, POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const Connection& connection : connections_) {
      polled.push_back({connection.socket.get(), POLLIN, 0});
    }
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) {
      return make_error(ErrorCode::io, "cannot wait for connections: {}", errno_text(errno));
    }
    for (std::size_t i = connections_.size(); i-- > 0 && !stopping;) {
      if (polled[kFixedPolled + i].revents != 0 && !serve(connections_[i], stopping)) {
        connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    if (polled[1].revents != 0) {
      accept();
    }
  }
  return {};
}

void SignerServer::accept() {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const auto peer = wire::peer_of(socket.get());
  if (!peer) {
    return;  // the client has gone already
  }
  if (peer->user != options_.accepts) {
    return reject(*peer, "user");
  }
  if (connections_.size() >= kMaxConnections) {
    return reject(*peer, "limit");
  }
  connections_.push_back({std::move(socket), *peer});
}

void SignerServer::reject(const wire::Peer& peer, const char* reason) {
  options_.log.warn(
      "rejected a connection of user {} (process {}, {}): only user {} may have "
      "entries signed",
      peer.user, peer.process, reason, options_.accepts);
  if (options_.audit != nullptr) {
    options_.audit->record({"rejected", peer.user, peer.process, {{"reason", reason}}});
  }
}

bool SignerServer::serve(Connection& connection, const std::atomic<bool>& stopping) {
  std::array<char, wire::kSigningDatagram.size() + 1> datagram{};
  std::vector<UniqueFd> descriptors;
  const ssize_t got =
      wire::receive_some(connection.socket.get(), datagram.data(), datagram.size(), descriptors);
  if (got < 0 && errno == EAGAIN) {
    return true;
  }
  if (got <= 0) {
    return false;
  }
  const ByteView said(datagram.data(), static_cast<std::size_t>(got));
  if (said != wire::kSigningDatagram || descriptors.size() != 1) {
    reject(connection.peer, "protocol");
    return false;
  }
  const wire::SigningVerdict verdict =
      signer_.judge(descriptors.front(), connection.peer, stopping);
  const std::string answer = verdict.encode();
  return wire::send_some(connection.socket.get(), {answer}, -1) ==
         static_cast<ssize_t>(answer.size());
}

}  // namespace cukiln::daemon
