// SPDX-License-Identifier: Apache-2.0
#include "daemon/descriptor_closer.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <utility>

#include "support/lingering_socket.hpp"
#include "support/wait.hpp"

using cukiln::UniqueFd;
using cukiln::daemon::DescriptorCloser;
using cukiln::testing::becomes_true;
using cukiln::testing::LingeringSocket;

namespace {

constexpr std::uint64_t kFirst = 1, kSecond = 2;
constexpr std::chrono::seconds kLongerThanATest{600}, kEnough{20};

/// The writing end of a pipe, and whether all of its descriptors are closed.
struct Pipe {
  UniqueFd reading, writing;
  Pipe() {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    reading = UniqueFd(ends[0]);
    writing = UniqueFd(ends[1]);
  }
  bool is_closed() const {
    pollfd polled{reading.get(), POLLIN, 0};
    return ::poll(&polled, 1, 0) > 0 && (polled.revents & POLLHUP) != 0;
  }
};

}  // namespace

// fault 160
TEST_CASE("a close that blocks delays neither the caller nor another connection's") {
  const auto closer = DescriptorCloser::create({});
  REQUIRE(closer);
  LingeringSocket slow(kLongerThanATest);
  Pipe pipe;
  (*closer)->close(std::move(slow.socket), kFirst);
  (*closer)->close(std::move(pipe.writing), kSecond);
  CHECK(becomes_true([&] { return pipe.is_closed(); }, kEnough));
  slow.other.reset();  // ends the close
}

TEST_CASE("one connection's closes occupy one thread, and too many in all are reported") {
  const auto closer = DescriptorCloser::create({.threads = 2, .max_pending = 3});
  REQUIRE(closer);
  LingeringSocket slow(kLongerThanATest);
  (*closer)->close(std::move(slow.socket), kFirst);
  Pipe own[3], others;
  for (Pipe& pipe : own) {
    (*closer)->close(std::move(pipe.writing), kFirst);
  }
  CHECK((*closer)->is_full());
  (*closer)->close(std::move(others.writing), kSecond);
  CHECK(becomes_true([&] { return others.is_closed(); }, kEnough));
  CHECK_FALSE(own[0].is_closed());
  slow.other.reset();  // ends the close
  CHECK(becomes_true([&] { return own[2].is_closed(); }, kEnough));
  CHECK(becomes_true([&] { return !(*closer)->is_full(); }, kEnough));
}
