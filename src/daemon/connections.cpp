// SPDX-License-Identifier: Apache-2.0
// A Server's bytes: in from clients, and out to them.

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/result.hpp"
#include "daemon/server_client.hpp"
#include "wire/sealed_file.hpp"

namespace cukiln::daemon {

namespace {

using SteadyClock = std::chrono::steady_clock;
using wire::DaemonFrame;
using wire::DaemonOp;

constexpr auto kNever = SteadyClock::time_point::max();
constexpr std::size_t kReadBytes = 64 << 10;
/// A client that keeps sending is not read for ever while others wait.
constexpr int kReadsAtOnce = 16;

}  // namespace

/// What one client wants and memory is lacking for ends its connection, and nobody else's.
void Server::serve(Client& client, std::uint32_t events) {
  const auto served = guarded([&]() -> Result<void> {
    if ((events & EPOLLOUT) != 0) {
      write_to(client);
    }
    if (!client.closed && (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
      read_from(client);
    }
    return {};
  });
  if (!served) {
    log_.warn("process {} of user {} is hung up on: {}", client.peer.process, client.peer.user,
              served.error().message());
    close(client);
  }
}

void Server::read_from(Client& client) {
  for (int i = 0; i < kReadsAtOnce && !client.closed; ++i) {
    read_buffer_.resize(kReadBytes);
    UniqueFd descriptor;
    const ssize_t got =
        wire::receive_some(client.socket.get(), read_buffer_.data(), kReadBytes, descriptor);
    if (got == 0 || (got < 0 && errno != EAGAIN)) {
      return close(client);
    }
    if (got < 0) {
      return;
    }
    client.parser.feed(ByteView(read_buffer_).substr(0, static_cast<std::size_t>(got)));
    if (descriptor) {
      client.parser.feed(std::move(descriptor));
    }
    take_frames(client);
    if (static_cast<std::size_t>(got) < kReadBytes && !client.closed) {
      // Usually all there was: the next look is epoll's.
      return;
    }
  }
}

void Server::take_frames(Client& client) {
  for (;;) {
    DaemonFrame frame;
    switch (client.parser.next(frame)) {
      case wire::DaemonFrameParser::Next::frame:
        if (!handle(client, frame)) {
          return;
        }
        continue;
      case wire::DaemonFrameParser::Next::malformed: return misuse(client, client.parser.fault());
      case wire::DaemonFrameParser::Next::more: break;
    }
    const bool hurry = !client.greeted || client.parser.in_frame();
    if (!hurry) {
      client.deadline = kNever;
      hurried_.erase(client.number);
    } else if (client.deadline == kNever) {
      client.deadline = SteadyClock::now() + options_.frame_within;
      hurried_.insert(client.number);
    }
    return;
  }
}

void Server::misuse(Client& client, std::string_view what) {
  ++counters_.protocol_errors[what];
  log_.info("process {} of user {} broke the protocol ({}): hung up", client.peer.process,
            client.peer.user, what);
  close(client);
}

void Server::answer_to(RequestCounters& requests, SteadyClock::time_point since, Client& client,
                       DaemonOp op, std::uint64_t id, std::string body,
                       std::shared_ptr<UniqueFd> attachment) {
  requests.answered(op, SteadyClock::now() - since);
  send(client, op, id, std::move(body), std::move(attachment));
}

void Server::send(Client& client, DaemonOp op, std::uint64_t id, std::string body,
                  std::shared_ptr<UniqueFd> attachment) {
  if (client.closed) {
    return;
  }
  if (body.size() > wire::kMaxInlineBytes && attachment == nullptr) {
    auto sealed = wire::make_sealed_file({body});
    if (!sealed) {
      return close(client);
    }
    attachment = std::make_shared<UniqueFd>(*std::move(sealed));
    body.clear();
  }
  std::string bytes = wire::encode_header(op, id, body.size(), attachment != nullptr) + body;
  client.unsent_bytes += bytes.size();
  client.unsent.push_back({std::move(bytes), 0, std::move(attachment)});
  if (client.unsent_bytes > options_.max_unsent_bytes) {
    ++counters_.slow_clients;
    return close(client);
  }
  write_to(client);
}

void Server::write_to(Client& client) {
  while (!client.unsent.empty() && !client.closed) {
    Client::Unsent& first = client.unsent.front();
    const int descriptor =
        first.done == 0 && first.attachment != nullptr ? first.attachment->get() : -1;
    const ssize_t sent = wire::send_some(client.socket.get(),
                                         {ByteView(first.bytes).substr(first.done)}, descriptor);
    if (sent < 0) {
      if (errno != EAGAIN && errno != ENOBUFS && errno != ETOOMANYREFS) {
        return close(client);
      }
      return watch(client, true);
    }
    first.done += static_cast<std::size_t>(sent);
    client.unsent_bytes -= static_cast<std::size_t>(sent);
    if (first.done == first.bytes.size()) {
      client.unsent.pop_front();
    }
  }
  watch(client, false);
}

void Server::watch(Client& client, bool writable) {
  if (client.closed || client.watched_for_room == writable) {
    return;
  }
  client.watched_for_room = writable;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | (writable ? std::uint32_t{EPOLLOUT} : 0);
  event.data.u64 = client.number;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.socket.get(), &event);
}

void Server::reply(const Asker& to, DaemonOp op, std::string body,
                   std::shared_ptr<UniqueFd> attachment) {
  if (const auto at = clients_.find(to.connection); at != clients_.end()) {
    if (op == DaemonOp::progress || op == DaemonOp::question) {
      send(*at->second, op, to.id, std::move(body), std::move(attachment));
    } else {
      answer_to(counters_.compile, to.since, *at->second, op, to.id, std::move(body),
                std::move(attachment));
    }
  }
}

void Server::give_up(const Asker& client) {
  if (const auto at = clients_.find(client.connection); at != clients_.end()) {
    ++counters_.slow_clients;
    close(*at->second);
  }
}

/// Removed at the end of the loop's turn: who calls this may still be looking at the client.
void Server::close(Client& client) {
  if (client.closed) {
    return;
  }
  client.closed = true;
  client.socket.reset();
  client.unsent.clear();
  closed_.push_back(client.number);
}

void Server::remove_closed() {
  while (!closed_.empty()) {
    const std::uint64_t number = closed_.back();
    closed_.pop_back();
    const auto at = clients_.find(number);
    if (at == clients_.end()) {
      continue;
    }
    flights_.leave(asker(*at->second, 0));
    if (--clients_of_user_[at->second->peer.user] == 0) {
      clients_of_user_.erase(at->second->peer.user);
    }
    hurried_.erase(number);
    clients_.erase(at);
  }
}

}  // namespace cukiln::daemon
