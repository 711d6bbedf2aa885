// SPDX-License-Identifier: Apache-2.0
#include "core/wire/frame.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include <doctest/doctest.h>

#include "core/base/file.hpp"
#include "core/base/serial.hpp"

using namespace cukiln;
using namespace cukiln::wire;
using namespace std::chrono_literals;

namespace {

struct Pair {
  UniqueFd here, there;
  Pair() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    here = UniqueFd(fds[0]);
    there = UniqueFd(fds[1]);
  }
  void raw(ByteView bytes) const {
    REQUIRE(::send(there.get(), bytes.data(), bytes.size(), 0) ==
            static_cast<ssize_t>(bytes.size()));
  }
};

WaitOptions within(std::chrono::milliseconds time) {
  return {std::chrono::steady_clock::now() + time};
}

std::string header(std::uint32_t size, std::uint32_t op) {
  SerialWriter out;
  out.u32(size).u32(op);
  return out.take();
}

}  // namespace

TEST_CASE("a frame round-trips, whatever its parts") {
  const Pair pair;
  FrameSocket from(pair.there.get());
  FrameSocket to(pair.here.get());
  CHECK(from.send(7, {"ab", "", "c"}) == IoStatus::ok);
  CHECK(from.send(8, {}) == IoStatus::ok);
  Frame frame;
  REQUIRE(to.receive(frame) == IoStatus::ok);
  CHECK(frame.op == 7);
  CHECK(frame.body == "abc");
  REQUIRE(to.receive(frame) == IoStatus::ok);
  CHECK(frame.op == 8);
  CHECK(frame.body.empty());
}

TEST_CASE("a frame larger than the socket's buffer arrives complete") {
  const Pair pair;
  const std::string large(5'000'000, 'x');
  std::thread sender([&] {
    FrameSocket from(pair.there.get());
    CHECK(from.send(1, {large, "end"}) == IoStatus::ok);
  });
  Frame frame;
  FrameSocket to(pair.here.get());
  CHECK(to.receive(frame, within(10s)) == IoStatus::ok);
  sender.join();
  CHECK(frame.body.size() == large.size() + 3);
  CHECK(frame.body.substr(large.size()) == "end");
}

TEST_CASE("frames are parsed whether bytes arrive one at a time or several frames together") {
  const Pair pair;
  std::string stream = header(3, 5) + "abc" + header(0, 6) + header(2, 7) + "de";
  FrameSocket to(pair.here.get());
  Frame frame;
  std::thread sender([&] {
    for (const char c : stream) {
      pair.raw(ByteView(&c, 1));
    }
    pair.raw(stream);
  });
  for (int i = 0; i < 2; ++i) {
    REQUIRE(to.receive(frame, within(10s)) == IoStatus::ok);
    CHECK(frame.body == "abc");
    REQUIRE(to.receive(frame, within(10s)) == IoStatus::ok);
    CHECK(frame.op == 6);
    REQUIRE(to.receive(frame, within(10s)) == IoStatus::ok);
    CHECK(frame.body == "de");
  }
  sender.join();
}

TEST_CASE("a truncated frame is a closed connection and not a short frame") {
  for (const std::string& part :
       {std::string(), std::string("abc"), header(10, 1), header(10, 1) + "half"}) {
    Pair pair;
    pair.raw(part);
    pair.there.reset();
    Frame frame;
    FrameSocket to(pair.here.get());
    CHECK(to.receive(frame, within(5s)) == IoStatus::closed);
  }
}

TEST_CASE("a length above the limit is malformed and allocates nothing") {
  const Pair pair;
  pair.raw(header(kMaxBodyBytes + 1, 1));
  Frame frame;
  FrameSocket to(pair.here.get());
  CHECK(to.receive(frame, within(5s)) == IoStatus::malformed);
}

TEST_CASE("bytes that are not a frame are malformed") {
  const Pair pair;
  pair.raw("GET / HTTP/1.1\r\n\r\n");
  Frame frame;
  FrameSocket to(pair.here.get());
  CHECK(to.receive(frame, within(5s)) == IoStatus::malformed);
}

TEST_CASE("a body above the limit is not sent") {
  const Pair pair;
  const std::string tenth(kMaxBodyBytes / 5, 'x');
  FrameSocket from(pair.there.get());
  CHECK(from.send(1, {tenth, tenth, tenth, tenth, tenth, "and more"}) == IoStatus::malformed);
}

TEST_CASE("a deadline ends a wait for a frame that never comes, or never ends") {
  const Pair pair;
  Frame frame;
  FrameSocket to(pair.here.get());
  CHECK(to.receive(frame, within(30ms)) == IoStatus::timeout);
  pair.raw(header(10, 1) + "half");
  CHECK(to.receive(frame, within(30ms)) == IoStatus::timeout);
}

TEST_CASE("a deadline ends a send to a peer that does not read") {
  const Pair pair;
  const std::string large(20'000'000, 'x');
  FrameSocket from(pair.there.get());
  CHECK(from.send(1, {large}, within(50ms)) == IoStatus::timeout);
}

TEST_CASE("a cancel flag ends a wait without a deadline") {
  const Pair pair;
  std::atomic<bool> cancelled = false;
  std::thread canceller([&] {
    std::this_thread::sleep_for(50ms);
    cancelled = true;
  });
  Frame frame;
  FrameSocket to(pair.here.get());
  WaitOptions patience;
  patience.cancelled = cancelled;
  CHECK(to.receive(frame, patience) == IoStatus::cancelled);
  canceller.join();
}

TEST_CASE("a silent peer is noticed, and the wait goes on") {
  Pair pair;
  FrameSocket socket(pair.here.get());
  std::atomic<int> noticed{0};
  socket.when_silent(20ms, [&] { ++noticed; });
  Frame frame;
  CHECK(socket.receive(frame, within(200ms)) == IoStatus::timeout);
  CHECK(noticed == 1);  // once in each wait
  CHECK(socket.send(1, {std::string(1 << 20, 'x')}, within(200ms)) == IoStatus::timeout);
  CHECK(noticed == 2);
  std::thread speaker([&] {
    for (int i = 0; i < 2000 && noticed < 3; ++i) {
      std::this_thread::sleep_for(5ms);
    }
    pair.raw(header(0, 7));
  });
  CHECK(socket.receive(frame, within(20s)) == IoStatus::ok);
  CHECK(frame.op == 7);
  CHECK(noticed == 3);
  speaker.join();
}

TEST_CASE("sending to a closed socket is an error and raises no SIGPIPE") {
  Pair pair;
  pair.here.reset();
  FrameSocket from(pair.there.get());
  CHECK(from.send(1, {"x"}) == IoStatus::closed);
}

TEST_CASE("a descriptor comes with its frame, and only if it is accepted") {
  const Pair pair;
  FrameSocket from(pair.there.get());
  FrameSocket to(pair.here.get());
  const UniqueFd sent(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Frame frame;
  CHECK(from.send(1, {"x"}, {}, sent.get()) == IoStatus::ok);
  REQUIRE(to.receive(frame) == IoStatus::ok);
  CHECK(to.take_descriptor() == -1);
  to.accept_descriptors();
  CHECK(from.send(2, {"a"}) == IoStatus::ok);
  REQUIRE(to.receive(frame) == IoStatus::ok);
  CHECK(frame.op == 2);
  CHECK(to.take_descriptor() == -1);
  CHECK(from.send(3, {"b"}, {}, sent.get()) == IoStatus::ok);
  REQUIRE(to.receive(frame) == IoStatus::ok);
  CHECK(frame.body == "b");
  const UniqueFd received(to.take_descriptor());
  CHECK(received.get() > sent.get());
  CHECK(::fcntl(received.get(), F_GETFD) == FD_CLOEXEC);
  CHECK(to.take_descriptor() == -1);
}

TEST_CASE("a descriptor that nothing takes is closed") {
  const Pair pair;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  {
    FrameSocket from(pair.there.get());
    FrameSocket to(pair.here.get());
    to.accept_descriptors();
    for (int i = 0; i < 2; ++i) {
      CHECK(from.send(1, {}, {}, writer.get()) == IoStatus::ok);
      Frame frame;
      REQUIRE(to.receive(frame) == IoStatus::ok);
    }
  }
  writer.reset();
  char byte = 0;
  CHECK(::read(reader.get(), &byte, 1) == 0);
}

TEST_CASE("a peer's end is noticed even if another process has a copy of its socket") {
  const Pair pair;  // `there` stays open in this process, like a copy in a forked child
  const pid_t child = ::fork();
  if (child == 0) {
    ::usleep(50'000);
    ::_exit(0);
  }
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  if (process) {
    WaitOptions patience = within(10s);
    patience.peer_process = process.get();
    Frame frame;
    FrameSocket to(pair.here.get());
    CHECK(to.receive(frame, patience) == IoStatus::closed);
  }
  ::waitpid(child, nullptr, 0);
}
