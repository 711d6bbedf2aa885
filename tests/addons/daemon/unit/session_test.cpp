// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/session.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <list>
#include <memory>
#include <string>

#include "addons/daemon/event_loop.hpp"
#include "addons/daemon/protocol/sealed_file.hpp"

using cukiln::Logger;
using cukiln::UniqueFd;
using cukiln::daemon::ClosingThread;
using cukiln::daemon::DaemonCounters;
using cukiln::daemon::EventLoop;
using cukiln::daemon::Session;
using cukiln::wire::DaemonFrame;
using cukiln::wire::DaemonOp;

namespace {

constexpr std::size_t kPage = 4096;

std::shared_ptr<UniqueFd> sealed(std::size_t pages) {
  auto file = cukiln::wire::make_sealed_file({std::string(pages * kPage, 'x')});
  REQUIRE(file);
  return std::make_shared<UniqueFd>(*std::move(file));
}

/// Sessions whose loop does not run, and the sockets of their clients.
struct Sessions : Session::Handler {
  void on_frame(Session&, DaemonFrame&) override {}
  void on_closed(Session&) noexcept override {}
  void discard(UniqueFd file) noexcept override { file.reset(); }

  Session& add() {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
    clients.emplace_back(ends[1]);
    Session& added =
        sessions.emplace_back(sessions.size() + 1, UniqueFd(ends[0]), cukiln::wire::Peer{}, shared);
    REQUIRE(added.begin("greeting"));
    return added;
  }
  static void read_all(const UniqueFd& client) {
    std::string bytes(1 << 20, '\0');
    while (::recv(client.get(), bytes.data(), bytes.size(), 0) > 0) {
    }
  }
  static Session::Limits small_limits() {
    Session::Limits limits;
    limits.unsent_bytes = {.total = 4 << 20};
    limits.unread_file_bytes = {.total = 10 * kPage};
    return limits;
  }

  std::unique_ptr<EventLoop> loop = *EventLoop::create(Logger());
  std::unique_ptr<ClosingThread> closing = *ClosingThread::create();
  DaemonCounters counters;
  Session::Shared shared{*loop, counters, *closing, Logger(), small_limits(), this};
  std::list<UniqueFd> clients;
  std::list<Session> sessions;
};

}  // namespace

TEST_CASE_FIXTURE(Sessions, "fault 322: files that clients do not read are bounded in all") {
  Session& first = add();
  CHECK(first.send(DaemonOp::object, 1, {}, sealed(6)) == DaemonOp::object);
  CHECK(first.send(DaemonOp::object, 2, {}, sealed(1)) ==
        DaemonOp::error);  // has more than is left
  Session& second = add();
  CHECK(second.send(DaemonOp::object, 1, {}, sealed(5)) == DaemonOp::error);
  CHECK(second.send(DaemonOp::object, 2, {}, sealed(2)) == DaemonOp::object);
  CHECK_FALSE(first.closed());
  SUBCASE("what was read makes room") {
    read_all(clients.front());
    CHECK(second.send(DaemonOp::object, 3, {}, sealed(5)) == DaemonOp::object);
  }
  SUBCASE("a closed connection makes room") {
    first.close();
    CHECK(second.send(DaemonOp::object, 3, {}, sealed(5)) == DaemonOp::object);
  }
  SUBCASE("a client that reads each reply has room for the next") {
    for (std::uint64_t id = 3; id < 30; ++id) {
      read_all(clients.back());
      CHECK(second.send(DaemonOp::object, id, {}, sealed(3)) == DaemonOp::object);
    }
  }
  SUBCASE("a reply that takes no file needs no room") {
    CHECK(first.send(DaemonOp::miss, 3, {}) == DaemonOp::miss);
    CHECK(first.send(DaemonOp::question, 4, std::string(70'000, 's')) == DaemonOp::error);
  }
}

TEST_CASE_FIXTURE(Sessions, "fault 322: one file for many clients counts once") {
  const auto file = sealed(5);
  for (int i = 0; i < 20; ++i) {
    CHECK(add().send(DaemonOp::object, 1, {}, file) == DaemonOp::object);
  }
  CHECK(add().send(DaemonOp::object, 1, {}, sealed(5)) == DaemonOp::object);
  CHECK(add().send(DaemonOp::object, 1, {}, sealed(1)) == DaemonOp::error);
}

TEST_CASE_FIXTURE(Sessions, "fault 322: replies that no socket takes are bounded in all") {
  const std::string large(60'000, 'r');
  const auto fill = [&](Session& session) {
    std::size_t sent = 0;
    for (; !session.closed() && sent < 1000; ++sent) {
      session.send(DaemonOp::question, 1, large);
    }
    return sent;
  };
  Session& idle = add();
  CHECK(fill(add()) < 60);  // half of the limit, and what its socket takes
  Session& half = add();
  while (shared.unsent_bytes < shared.limits.unsent_bytes.total / 3) {
    half.send(DaemonOp::question, 1, large);
  }
  CHECK(fill(add()) < 40);
  CHECK_FALSE(half.closed());
  CHECK(idle.send(DaemonOp::question, 1, large) == DaemonOp::question);
  CHECK_FALSE(idle.closed());
  CHECK(counters.slow_clients == 2);
  half.close();
  CHECK(shared.unsent_bytes == 0);
}
