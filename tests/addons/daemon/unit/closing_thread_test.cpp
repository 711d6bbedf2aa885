// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/closing_thread.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "support/lingering_socket.hpp"
#include "support/wait.hpp"

using cukiln::UniqueFd;
using cukiln::daemon::ClosingThread;
using cukiln::testing::becomes_true;
using cukiln::testing::LingeringSocket;

namespace {

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
TEST_CASE("a close that blocks does not delay the caller, and too many that wait are reported") {
  const auto closing = ClosingThread::create(3);
  REQUIRE(closing);
  LingeringSocket slow(kLongerThanATest);
  (*closing)->close(std::move(slow.socket));
  Pipe later[4];
  for (Pipe& pipe : later) {
    (*closing)->close(std::move(pipe.writing));
  }
  CHECK((*closing)->is_full());
  for (const Pipe& pipe : later) {
    CHECK_FALSE(pipe.is_closed());
  }
  slow.other.reset();  // ends the close
  for (const Pipe& pipe : later) {
    CHECK(becomes_true([&] { return pipe.is_closed(); }, kEnough));
  }
  CHECK_FALSE((*closing)->is_full());
}
