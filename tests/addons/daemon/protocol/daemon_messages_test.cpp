// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/protocol/daemon_messages.hpp"

#include <doctest/doctest.h>

#include "core/base/hasher.hpp"
#include "core/base/serial.hpp"
#include "core/wire/whole_messages.hpp"

using namespace cukiln;
using namespace cukiln::wire;
using cukiln::testing::check_only_whole;

namespace {

/// One byte at `at` becomes `value`.
template <class Message>
bool decodes_with(const Message& message, std::size_t at, char value) {
  std::string body = message.encode();
  body.at(at) = value;
  return Message::decode(body).has_value();
}

CompileOrder an_order() {
  CompileOrder order;
  order.request.sources = {{"/cukiln/src/k.cu", SharedBytes(std::string("text"))}};
  order.request.options = {{"-a", "-b"}, {"k<1>"}};
  order.request.target = {100, 'a'};
  order.request.toolchain = {"13.0.88", hash_of("nvrtc")};
  order.labels = {"k", "k.cu", "sm_100a", "-a -b", "nvrtc 13.0.88"};
  order.library = "/lib/libnvrtc.so";
  order.headers = {"/include"};
  return order;
}

}  // namespace

TEST_CASE("an order of a program round-trips, and its request keeps its digest") {
  CompileOrder order = an_order();
  order.request.program = NvrtcProgram{OutputKind::lto_ir, "/work"};
  order.request.headers = {{"a.h", SharedBytes("int a;")}};
  const auto read = CompileOrder::decode(order.encode());
  REQUIRE(read);
  CHECK(read->request.canonical() == order.request.canonical());
  CHECK(read->headers == order.headers);
  CHECK_FALSE(CompileOrder::decode(order.encode() + "x"));
}

TEST_CASE("an order of a module with headers as texts round-trips") {
  CompileOrder order = an_order();
  order.request.headers = {{"a.h", SharedBytes("int a;")}, {"b/c.h", SharedBytes("")}};
  const std::string encoded = order.encode();
  const auto read = CompileOrder::decode(encoded);
  REQUIRE(read);
  CHECK_FALSE(read->request.program);
  CHECK(read->request.canonical() == order.request.canonical());
}

TEST_CASE("fault 62: an order with a kind of program that there is not is refused") {
  // The kind is followed by the working folder and the headers, both empty.
  const std::size_t kind = an_order().encode().size() - 9;
  CHECK(decodes_with(an_order(), kind, 0));
  CHECK_FALSE(decodes_with(an_order(), kind, 100));
  CompileOrder order = an_order();
  order.request.program = NvrtcProgram{OutputKind::ptx, "w"};
  CHECK_FALSE(decodes_with(order, kind, static_cast<char>(0xff)));  // no program has a folder
}

TEST_CASE("an order round-trips, and its request keeps its digest") {
  const CompileOrder order = an_order();
  const auto read = CompileOrder::decode(order.encode());
  REQUIRE(read);
  CHECK(read->request.canonical() == order.request.canonical());
  CHECK(read->labels.flags == "-a -b");
  CHECK(read->library == "/lib/libnvrtc.so");
  CHECK(read->headers == std::vector<std::string>{"/include"});
}

TEST_CASE("fault 62: a message that is short, or has bytes left over, is refused") {
  check_only_whole(DaemonHello{1, 42, "program"});
  check_only_whole(ObtainTerms{1000, "canonical"});
  check_only_whole(EntryKey{hash_of<CacheKey>("k")});
  check_only_whole(BlobWanted{"triton", "key"});
  check_only_whole(StillNeeded{false});
  check_only_whole(an_order());
  check_only_whole(EntryTerms{true, false, true, false});
  check_only_whole(Refusal{ErrorCode::timeout, "message", "log", "set"});
  check_only_whole(Declined{"busy", true});
  check_only_whole(Progress{true, 500});
  check_only_whole(ClientReport{{{"preload_us_sum", 1}, {"fallbacks_absent", 2}}});
  DaemonSnapshot snapshot;
  snapshot.page = "http://localhost:9464/";
  snapshot.jobs.push_back({"k", "sm_100a", {}, 1, 2, 3, true, false});
  snapshot.counters = {{"a", 1}, {"b", 2}};
  check_only_whole(snapshot);
}

TEST_CASE("fault 62: each field out of its range is refused") {
  CHECK_FALSE(decodes_with(DaemonHello{1, 42, "p"}, 2, 1));  // a version of more than 16 bits
  SerialWriter hello;
  hello.u32(1).u32(42).bytes(std::string(65, 'x'));
  CHECK_FALSE(DaemonHello::decode(hello.view()));

  // fault 325
  const auto report = [](std::uint32_t count, std::size_t name_bytes, std::uint64_t number) {
    SerialWriter body;
    body.u32(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      std::string name = std::to_string(i);
      name.resize(name_bytes, 'x');
      body.bytes(name).u64(number);
    }
    return ClientReport::decode(body.view()).has_value();
  };
  CHECK(report(256, 64, std::uint64_t{1} << 36));
  CHECK_FALSE(report(257, 64, 1));
  CHECK_FALSE(report(1, 65, 1));
  CHECK_FALSE(report(1, 64, (std::uint64_t{1} << 36) + 1));
  CHECK_FALSE(report(11, 1, 1));  // the eleventh has the name of the second

  CHECK_FALSE(ObtainTerms::decode(ObtainTerms{25u * 3600 * 1000}.encode()));
  CHECK_FALSE(decodes_with(StillNeeded{}, 0, 2));  // not a bool

  for (std::size_t i = 0; i < 4; ++i) {
    CHECK_FALSE(decodes_with(EntryTerms{}, i, 2));
  }
  // A flipped bit that is still a valid bool would store a result that depends on the time.
  const std::string terms = EntryTerms{true, true, true, true}.encode();
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK_FALSE(decodes_with(EntryTerms{true, true, true, true}, i, 0));
  }
  CHECK(terms.size() == 4 + sizeof(Checksum));
  CHECK_FALSE(decodes_with(Refusal{ErrorCode::internal, "", "", ""}, 0, 0));
  CHECK_FALSE(decodes_with(Refusal{ErrorCode::internal, "", "", ""}, 0, 11));
  CHECK_FALSE(decodes_with(Progress{}, 0, 2));

  CompileOrder order = an_order();
  order.request.sources.clear();
  CHECK_FALSE(CompileOrder::decode(order.encode()));
  order = an_order();
  order.request.target = {100'000, 'a'};
  CHECK_FALSE(CompileOrder::decode(order.encode()));
  order.request.target = {100, 'x'};
  CHECK_FALSE(CompileOrder::decode(order.encode()));
}

TEST_CASE("fault 62: a count larger than the message allocates nothing") {
  SerialWriter sources;
  sources.u32(0xffffffff);
  CHECK_FALSE(CompileOrder::decode(sources.view()));
  SerialWriter strings;
  strings.u32(1).bytes("/cukiln/src/k.cu").bytes("text").u32(0xffffffff);
  CHECK_FALSE(CompileOrder::decode(strings.view()));
}

TEST_CASE("the bytes of a message do not change") {
  using namespace std::string_literals;
  CHECK(ObtainTerms{1000, "c"}.encode() ==
        "\xe8\3\0\0\1\0\0\0"
        "c"s);
  CHECK(StillNeeded{true}.encode() == "\1"s);
  CHECK(Progress{true, 258}.encode() == "\1\2\1\0\0"s);
  CHECK(Declined{"no", false}.encode() ==
        "\2\0\0\0"
        "no"
        "\0"s);
}
