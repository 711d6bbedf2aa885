// SPDX-License-Identifier: Apache-2.0
// cukilnd with hostile and broken clients, and clients with a broken cukilnd.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "support/daemon_process.hpp"
#include "support/fake_daemon.hpp"
#include "support/raw_client.hpp"

using namespace cukiln;
using cukiln::testing::becomes_true;
using cukiln::testing::Child;
using cukiln::testing::FakeDaemon;
using cukiln::testing::first_word;
using cukiln::testing::RawClient;
using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;
using wire::DaemonOp;

namespace {

double ms_since(SteadyClock::time_point then) {
  return std::chrono::duration<double, std::milli>(SteadyClock::now() - then).count();
}

std::string greeting(std::uint16_t oldest, std::uint16_t newest) {
  wire::Greeting greeting;
  greeting.oldest_version = oldest;
  greeting.newest_version = newest;
  return greeting.encode();
}

struct Fixture : cukiln::testing::DaemonFixture {
  /// The error of a link's first request.
  Error refused(DaemonClient& link) const {
    auto greeted = link.begin();
    REQUIRE_FALSE(greeted);
    return greeted.error();
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "fault 54: without a daemon a client loses a millisecond, once for a while") {
  double best = 1000;  // of several: others use this machine too
  for (int i = 0; i < 100; ++i) {
    DaemonClient another(options());
    const auto began = SteadyClock::now();
    CHECK(refused(another).code() == ErrorCode::not_found);
    best = std::min(best, ms_since(began));
  }
  CHECK(best < 1.0);
  DaemonClient link(options());
  CHECK_FALSE(link.begin());
  CHECK_FALSE(link.available());
  CHECK(link.counts().absent == 1);
  for (int i = 0; i < 1000; ++i) {
    CHECK_FALSE(link.begin());
  }
  CHECK(link.counts().absent == 1);
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 59: a client refuses the greeting of another protocol version, and compiles "
    "locally") {
  FakeDaemon newer(socket, greeting(wire::kDaemonProtocol + 1, 99));
  DaemonClient link(options());
  const Error error = refused(link);
  CHECK(error.code() == ErrorCode::incompatible);
  CHECK(error.message().find(" to 99") != std::string::npos);
  auto compiling = client(source(""));
  CHECK(compiling->wait() == 0);
  CHECK(first_word(compiling->output()) == "compiled");
}

TEST_CASE_FIXTURE(Fixture,
                  "a report uses an open connection, and only to a daemon that accepts reports") {
  const DaemonTier::Report report{{"fallbacks_io", 2}};
  for (const bool wants : {false, true}) {
    std::filesystem::remove(socket);
    wire::Greeting greeting;
    greeting.oldest_version = greeting.newest_version = wire::kDaemonProtocol;
    greeting.takes_reports = wants;
    FakeDaemon daemon(socket, greeting.encode(), FakeDaemon::HangsUp::last);
    {
      DaemonClient link(options());
      CHECK_FALSE(link.report(report));
      CHECK(daemon.accepted == 0);
      auto conversation = link.begin();
      REQUIRE(conversation);
      conversation->finish();
      REQUIRE(becomes_true([&] { return daemon.heard > 0; }, seconds(10)));
      const int hello = daemon.heard;
      CHECK(link.report(report) == wants);
      CHECK(link.report(report) == wants);  // the connection is still good
      const auto reported =
          static_cast<int>(wire::kDaemonHeaderBytes + wire::ClientReport{report}.encode().size());
      CHECK(becomes_true([&] { return daemon.heard == hello + (wants ? 2 * reported : 0); },
                         seconds(10)));
    }
    CHECK(becomes_true([&] { return daemon.ended == 1; }, seconds(10)));
    CHECK(daemon.accepted == 1);
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "totals are reported without waiting for a connection, and only to a daemon that "
                  "counts them in the client's store") {
  const DaemonTier::Report report{{"hits", 2}};
  for (const auto& [counts, is_own] :
       {std::pair(true, true), std::pair(true, false), std::pair(false, true)}) {
    std::filesystem::remove(socket);
    wire::Greeting greeting;
    greeting.oldest_version = greeting.newest_version = wire::kDaemonProtocol;
    greeting.takes_reports = true;
    greeting.takes_totals = counts;
    greeting.store_inode = 7;
    auto link_options = options();
    link_options.is_own_store = [is_own = is_own](std::uint64_t, std::uint64_t) { return is_own; };
    {
      DaemonClient absent(link_options);
      CHECK_FALSE(absent.report_totals(report));
      CHECK(absent.counts().absent == 0);  // nothing was to be compiled
    }
    FakeDaemon daemon(socket, greeting.encode(), FakeDaemon::HangsUp::last);
    {
      DaemonClient link(link_options);
      CHECK(link.report_totals(report) == (counts && is_own));
      CHECK(link.report_totals(report) == (counts && is_own));
    }
    CHECK(becomes_true([&] { return daemon.ended == 1; }, seconds(10)));
    CHECK(daemon.accepted == 1);
  }
}

TEST_CASE_FIXTURE(Fixture, "local fallbacks are counted by reason, and reported once") {
  const auto reasons = [](DaemonClient& link) {
    std::string all;
    DaemonTier::Report report;
    link.take_fallbacks(report);
    for (const auto& [reason, times] : report) {
      all += reason + (" " + std::to_string(times));
    }
    return all;
  };
  DaemonClient absent(options());
  CHECK_FALSE(absent.begin());
  CHECK_FALSE(absent.begin());  // the circuit is open: not counted again
  CHECK(reasons(absent) == "fallbacks_absent 1");
  CHECK(reasons(absent).empty());
  {
    FakeDaemon newer(socket, greeting(wire::kDaemonProtocol + 1, 99));
    DaemonClient link(options());
    CHECK_FALSE(link.begin());
    CHECK(reasons(link) == "fallbacks_version 1");
  }
  std::filesystem::remove(socket);
  FakeDaemon rude(socket, "CKD");  // and no more
  auto hasty = options();
  hasty.connect_timeout = milliseconds(100);
  DaemonClient link(hasty);
  CHECK_FALSE(link.begin());
  CHECK(reasons(link) == "fallbacks_timeout 1");
}

TEST_CASE_FIXTURE(Fixture, "a client waits longer for a greeting if it requires the daemon") {
  const FakeDaemon starting(socket, greeting(1, 99), FakeDaemon::HangsUp::last, milliseconds(300));
  auto needs = options();
  needs.required = true;
  needs.connect_timeout = milliseconds(50);
  CHECK(DaemonClient(needs).begin());
  needs.required = false;
  const auto late = DaemonClient(needs).begin();
  REQUIRE_FALSE(late);
  CHECK(late.error().code() == ErrorCode::timeout);
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 58: with a daemon that dies within a frame, or violates the protocol, clients "
    "compile locally") {
  const std::string entry = wire::encode_header(DaemonOp::object, 1, 100, false);
  const std::string bad_length = std::string("\xff\xff\xff\xff", 4) + std::string(12, '\0');
  for (const std::string& said :
       {std::string("HTTP/1.1 400 Bad Request\r\n\r\n") + std::string(64, ' '),
        greeting(1, 1) + entry + "short", greeting(1, 1) + bad_length, greeting(1, 1)}) {
    std::filesystem::remove(socket);
    FakeDaemon fake(socket, said);
    auto compiling = client(scratch.write("k" + std::to_string(clients) + ".cu",
                                          "// " + std::to_string(clients) + "\n"));
    CHECK(compiling->wait() == 0);
    CHECK(first_word(compiling->output()) == "compiled");
    CHECK(fake.accepted > 0);
  }
}

TEST_CASE_FIXTURE(Fixture, "fault 60: a socket's path of 200 bytes works for daemon and clients") {
  const std::string folder = runtime + "/" + std::string(100, 'd') + "/cukiln";
  std::filesystem::create_directories(folder);
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
  socket = folder + "/cukilnd.sock";
  CHECK(socket.size() > 107);
  const auto daemon = start();
  CHECK(state());
}

TEST_CASE_FIXTURE(Fixture, "fault 61: many clients that connect concurrently are all greeted") {
  const auto daemon = start();
  std::vector<std::unique_ptr<RawClient>> many;
  for (int i = 0; i < 200; ++i) {
    many.push_back(std::make_unique<RawClient>(socket));
    REQUIRE(many.back()->connected());
  }
  CHECK(counter("connections") >= 200);
}

TEST_CASE_FIXTURE(Fixture, "fault 62: a malformed frame closes its connection and no other") {
  const auto daemon = start();
  struct {
    const char* what;
    std::string bytes;
  } const table[] = {
      {"a length of 4 GiB", std::string("\xff\xff\xff\xff", 4) + std::string(12, '\0')},
      {"a body of 1 MiB and a byte", std::string("\x01\x00\x10\x00", 4) + std::string(12, '\0')},
      {"an unknown flag", std::string("\0\0\0\0\x09\0\x02\0", 8) + std::string(8, '\0')},
      {"a descriptor that is not there",
       std::string("\0\0\0\0\x0e\0\x01\0", 8) + std::string(8, '\1')},
      {"a second hello", wire::encode_header(DaemonOp::hello, 0, 0, false)},
      {"an obtain without terms", wire::encode_header(DaemonOp::obtain, 1, 0, false)},
      {"a compile without an order",
       wire::encode_header(DaemonOp::obtain, 1, 8, false) + wire::ObtainTerms{1000}.encode()},
      {"an answer without a question", wire::encode_header(DaemonOp::answer, 1, 1, false) + "x"},
      {"an answer with more than a key",
       wire::encode_header(DaemonOp::answer, 1, 33, false) + std::string(33, 'k')},
      {"an invalidate without a key",
       wire::encode_header(DaemonOp::invalidate, 1, 2, false) + "xx"},
  };
  std::uint64_t errors = 0;
  for (const auto& [what, bytes] : table) {
    CAPTURE(what);
    const RawClient client(socket);
    client.send(bytes);
    CHECK(client.hung_up(seconds(20)));
    CHECK(counter("protocol_errors") == ++errors);
  }
  const RawClient client(socket);
  client.send(wire::encode_header(static_cast<DaemonOp>(999), 5, 0, false));
  CHECK(client.outcome() == DaemonOp::error);
  client.frame(DaemonOp::ping, 6, "still here");
  CHECK(client.answer() == DaemonOp::pong);
}

TEST_CASE_FIXTURE(Fixture, "fault 62: a request before hello closes the connection") {
  const auto daemon = start();
  const RawClient client(socket, false);
  client.frame(DaemonOp::ping, 1, {});
  CHECK(client.hung_up(seconds(20)));
}

// fault 379
TEST_CASE_FIXTURE(Fixture, "an order in a file that is not sealed is refused") {
  const auto daemon = start();
  const RawClient client(socket);
  const UniqueFd open_file(::open((scratch / "order").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  client.frame(DaemonOp::obtain, 1, wire::ObtainTerms{1000}.encode(), open_file.get());
  CHECK(client.hung_up(seconds(20)));
  CHECK(counter("protocol_errors") == 1);
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 63: a client that sends half a frame, or a byte now and then, is disconnected") {
  const auto daemon = start();
  const RawClient silent(socket, false);
  const RawClient half(socket);
  half.send(wire::encode_header(DaemonOp::ping, 1, 10, false) + "half");
  const RawClient slow(socket);
  std::atomic<bool> over{false};
  std::thread drip([&] {
    for (const char c : wire::encode_header(DaemonOp::ping, 1, 10, false)) {
      slow.send(ByteView(&c, 1));
      std::this_thread::sleep_for(milliseconds(over ? 0 : 400));
    }
  });
  const auto began = SteadyClock::now();
  CHECK(silent.hung_up(seconds(20)));
  CHECK(half.hung_up(seconds(20)));
  CHECK(slow.hung_up(seconds(20)));
  CHECK(ms_since(began) < 6000);
  over = true;
  drip.join();
  CHECK(counter("slow_clients") == 3);
  CHECK(client(source(""))->wait() == 0);
}

TEST_CASE_FIXTURE(Fixture, "a folder for the socket that others can enter is refused") {
  std::filesystem::create_directories(runtime + "/cukiln");
  std::filesystem::permissions(runtime + "/cukiln", std::filesystem::perms::all);
  Child daemon({cukiln::testing::bin() + "/cukilnd", "--socket", socket});
  CHECK(daemon.wait() == 1);
  std::filesystem::remove(runtime + "/cukiln");
  std::filesystem::create_directory(scratch / "elsewhere");
  std::filesystem::create_directory_symlink(scratch / "elsewhere", runtime + "/cukiln");
  Child by_link({cukiln::testing::bin() + "/cukilnd", "--socket", socket});
  CHECK(by_link.wait() == 1);
  CHECK_FALSE(std::filesystem::exists(scratch / "elsewhere/cukilnd.sock"));
}

// fault 119
TEST_CASE_FIXTURE(Fixture, "the NVRTC that a client names compiles its kernels, and no other's") {
  const auto daemon = start();
  CHECK(becomes_true([&, number = 0]() mutable {
    const std::string name = "own" + std::to_string(++number) + ".cu";
    CHECK(client(scratch.write(name, "// " + name + "\n"))->wait() == 0);
    return counter("compiles_ok") > 0;
  }));
  const std::uint64_t before = counter("compiles_ok");
  std::filesystem::copy_file(cukiln::testing::bin() + "/libnvrtc_fake_unobserved.so",
                             scratch / "libnvrtc.so.13.0.0");
  CHECK(becomes_true([&, number = 0]() mutable {
    const std::string name = "other" + std::to_string(++number) + ".cu";
    Child client({cukiln::testing::bin() + "/build_process", scratch / name,
                  scratch / "libnvrtc.so.13.0.0", cukiln::testing::bin() + "/cukiln-compile-worker",
                  scratch.write(name + ".cu", "// " + name + "\n")},
                 {"XDG_RUNTIME_DIR=" + runtime});
    CHECK(first_word(client.line(seconds(20))) == "compiled");
    return counter("compiles_ok") > before;
  }));
  CHECK(counter("declined_compiler") == 0);
}

TEST_CASE_FIXTURE(
    Fixture,
    "while a daemon runs it alone evicts and merges the write-ahead log; after that the "
    "processes do") {
  const std::string log = scratch / "store/v6/gen-0001/store.db-wal";
  const auto write_much = [&](int from) {
    for (int i = from; i < from + 3; ++i) {  // each source text is a MiB, and does not compress
      std::string text = "// " + std::to_string(i) + "\n";
      std::uint64_t state = static_cast<std::uint64_t>(i) + 88172645463325252ull;
      while (text.size() < 3u << 20) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        text += "//" + std::to_string(state) + (text.size() % 64 == 0 ? "\n" : "");
      }
      Child process({cukiln::testing::bin() + "/build_process", scratch / "store",
                     cukiln::testing::bin() + "/libnvrtc_fake.so",
                     cukiln::testing::bin() + "/cukiln-compile-worker",
                     scratch.write("big" + std::to_string(i) + ".cu", text)},
                    {"XDG_RUNTIME_DIR=" + scratch / "nowhere"});
      CHECK(first_word(process.line()) == "compiled");
      process.wait();
    }
  };
  auto daemon = start();
  write_much(0);
  CHECK(std::filesystem::file_size(log) >
        4u << 20);  // above the limit, and not merged by the clients
  daemon->signal(SIGTERM);
  CHECK(daemon->wait() == 0);
  CHECK(std::filesystem::file_size(log) == 0);  // merged when the daemon ended
  write_much(3);
  CHECK(std::filesystem::file_size(log) < 4u << 20);
}
