// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/protocol/daemon_frame.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "addons/daemon/protocol/sealed_file.hpp"
#include "addons/daemon/protocol/unix_socket.hpp"
#include "core/base/serial.hpp"

using namespace cukiln;
using namespace cukiln::wire;
using Next = DaemonFrameParser::Next;

namespace {

std::string header(std::uint32_t size, std::uint32_t op, std::uint32_t flags, std::uint64_t id) {
  SerialWriter out;
  out.u32(size).u32(op | flags << 16).u64(id);
  return out.take();
}

UniqueFd some_descriptor() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

TEST_CASE("a frame round-trips, however its bytes are split") {
  const std::string bytes = encode_header(DaemonOp::obtain, 7, 5, false) + "hello" +
                            encode_header(DaemonOp::ping, 8, 0, false);
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    DaemonFrameParser parser;
    std::vector<DaemonFrame> frames;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      parser.feed(ByteView(bytes).substr(at, piece));
      DaemonFrame frame;
      while (parser.next(frame) == Next::frame) {
        frames.push_back(std::move(frame));
      }
    }
    REQUIRE(frames.size() == 2);
    CHECK(frames[0].is(DaemonOp::obtain));
    CHECK(frames[0].id == 7);
    CHECK(frames[0].body == "hello");
    CHECK(frames[1].is(DaemonOp::ping));
    CHECK_FALSE(parser.in_frame());
  }
}

TEST_CASE("fault 62: a length above the limit is refused before anything is buffered for it") {
  for (const std::uint32_t size : {kMaxDaemonBody + 1, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    DaemonFrameParser parser;
    parser.feed(header(size, 1, 0, 0));
    DaemonFrame frame;
    CHECK(parser.next(frame) == Next::malformed);
    CHECK(std::string(parser.fault()) == "length");
  }
}

TEST_CASE("fault 62: an unknown flag is refused") {
  for (const std::uint32_t flags : {2u, 4u, 0x8000u, 3u}) {
    DaemonFrameParser parser;
    parser.feed(header(0, 1, flags, 0));
    DaemonFrame frame;
    CHECK(parser.next(frame) == Next::malformed);
    CHECK(std::string(parser.fault()) == "flags");
  }
}

TEST_CASE("a frame with an unknown operation is parsed: the receiver replies with an error") {
  DaemonFrameParser parser;
  parser.feed(header(0, 0xffff, 0, 9));
  DaemonFrame frame;
  CHECK(parser.next(frame) == Next::frame);
  CHECK(frame.op == 0xffff);
}

TEST_CASE("a descriptor is attached to the frame that announces it") {
  SUBCASE("announced, and there") {
    DaemonFrameParser parser;
    parser.feed(encode_header(DaemonOp::object, 1, 0, true));
    parser.feed(some_descriptor());
    DaemonFrame frame;
    CHECK(parser.next(frame) == Next::frame);
    CHECK(static_cast<bool>(frame.attachment));
    CHECK(parser.next(frame) == Next::more);
  }
  SUBCASE("announced, and not there") {
    DaemonFrameParser parser;
    parser.feed(encode_header(DaemonOp::object, 1, 0, true));
    DaemonFrame frame;
    CHECK(parser.next(frame) == Next::malformed);
  }
  SUBCASE("not announced") {
    DaemonFrameParser parser;
    parser.feed(encode_header(DaemonOp::ping, 1, 0, false));
    parser.feed(some_descriptor());
    DaemonFrame frame;
    CHECK(parser.next(frame) == Next::frame);
    CHECK_FALSE(static_cast<bool>(frame.attachment));
    CHECK(parser.next(frame) == Next::malformed);
  }
  SUBCASE("more descriptors than frames can have") {
    DaemonFrameParser parser;
    for (int i = 0; i < 3; ++i) {
      parser.feed(some_descriptor());
    }
    DaemonFrame frame;
    CHECK(parser.next(frame) == Next::malformed);
  }
}

TEST_CASE("a greeting of 64 bytes round-trips, and any other byte sequence is refused") {
  Greeting greeting;
  greeting.oldest_version = 1;
  greeting.newest_version = 3;
  greeting.takes_reports = true;
  greeting.keeps_blobs = true;
  greeting.shares_blobs = true;
  greeting.takes_totals = true;
  greeting.process = 42;
  greeting.store_device = 5;
  greeting.store_inode = 6;
  greeting.build = "0.2.0";
  const std::string bytes = greeting.encode();
  CHECK(bytes.size() == kGreetingBytes);
  Greeting read;
  REQUIRE(Greeting::decode(bytes, read));
  CHECK(read.newest_version == 3);
  CHECK(read.takes_reports);
  CHECK(read.keeps_blobs);
  CHECK(read.shares_blobs);
  CHECK(read.takes_totals);
  Greeting older = greeting;
  older.takes_reports = false;
  older.keeps_blobs = false;
  older.shares_blobs = false;
  older.takes_totals = false;
  REQUIRE(Greeting::decode(older.encode(), read));
  CHECK_FALSE(read.takes_reports);
  CHECK_FALSE(read.keeps_blobs);
  CHECK_FALSE(read.shares_blobs);
  CHECK_FALSE(read.takes_totals);
  CHECK(read.process == 42);
  CHECK(read.store_inode == 6);
  CHECK(read.build == "0.2.0");

  std::string other = bytes;
  other[0] = 'X';
  CHECK_FALSE(Greeting::decode(other, read));
  CHECK_FALSE(Greeting::decode(bytes.substr(1), read));
  CHECK_FALSE(Greeting::decode(bytes + "x", read));
  other = bytes;
  std::swap(other[4], other[6]);  // the oldest version is newer than the newest
  CHECK_FALSE(Greeting::decode(other, read));
}

TEST_CASE("a sealed file has the parts' bytes and cannot be changed") {
  auto sealed = make_sealed_file({"one ", "two"});
  REQUIRE(sealed);
  CHECK(::ftruncate(sealed->get(), 0) != 0);
  CHECK(::write(sealed->get(), "x", 1) < 0);
  const auto bytes = map_sealed_file(sealed->get(), 100);
  REQUIRE(bytes);
  CHECK(bytes->view() == "one two");
  CHECK(map_sealed_file(sealed->get(), 6).error().code() == ErrorCode::invalid_argument);
}

// fault 379
TEST_CASE("a descriptor that is not sealed against truncation is refused") {
  UniqueFd open_file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  CHECK(::write(open_file.get(), "text", 4) == 4);
  CHECK_FALSE(check_sealed_file(open_file.get(), 100));
  CHECK(::fcntl(open_file.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW) == 0);
  CHECK_FALSE(check_sealed_file(open_file.get(), 100));
  CHECK_FALSE(check_sealed_file(some_descriptor().get(), 100));
  CHECK_FALSE(check_sealed_file(-1, 100));
}

TEST_CASE("fault 324: a file with a hole is refused, however many blocks it has beyond its end") {
  constexpr off_t kSize = 1 << 20;
  for (const bool with_hole : {true, false}) {
    for (const bool with_blocks_beyond : {true, false}) {
      CAPTURE(with_hole);
      CAPTURE(with_blocks_beyond);
      const UniqueFd file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      const std::string text(with_hole ? kSize / 2 : kSize, 'x');
      REQUIRE(write_all(file.get(), text));
      REQUIRE(::ftruncate(file.get(), kSize) == 0);
      if (with_blocks_beyond) {
        REQUIRE(::fallocate(file.get(), FALLOC_FL_KEEP_SIZE, kSize, kSize) == 0);
      }
      REQUIRE(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0);
      CHECK(check_sealed_file(file.get(), kSize).has_value() != with_hole);
      CHECK(map_sealed_file(file.get(), kSize).has_value() != with_hole);
    }
  }
}

TEST_CASE("fault 324: a file in huge pages, whose holes nothing reports, is refused") {
  constexpr off_t kHugePage = 2 << 20;
  const UniqueFd file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!file || ::ftruncate(file.get(), kHugePage) != 0) {
    MESSAGE("this kernel has no hugetlbfs");
    return;
  }
  REQUIRE(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0);
  CHECK_FALSE(check_sealed_file(file.get(), kHugePage));
}
