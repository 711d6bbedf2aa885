// SPDX-License-Identifier: Apache-2.0
// A system daemon among users that want to change, read, stop or slow what others get. Each test
// acts as users of its own, which needs root.

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "support/daemon_users.hpp"
#include "support/lingering_socket.hpp"
#include "support/raw_client.hpp"

using namespace cukiln;
using cukiln::testing::becomes_true;
using cukiln::testing::Being;
using cukiln::testing::Child;
using cukiln::testing::kAlice;
using cukiln::testing::kMallory;
using cukiln::testing::kService;
using cukiln::testing::LingeringSocket;
using cukiln::testing::RawClient;
using cukiln::testing::Users;
using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;
using wire::DaemonOp;

namespace {

/// Makes this thread, and no other of the process, act as a user.
void become(uid_t user) {
  REQUIRE(::syscall(SYS_setresgid, -1, user, -1) == 0);
  REQUIRE(::syscall(SYS_setresuid, -1, user, -1) == 0);
}

/// An order of a kernel. Its NVRTC does not exist, so it is declined when it starts.
wire::CompileOrder order(const std::string& text) {
  wire::CompileOrder order;
  order.request.sources = {{"/cukiln/src/k.cu", SharedBytes("// " + text)}};
  order.request.target = {90, 'a'};
  order.request.toolchain.version = "0";
  order.labels.name = text;
  return order;
}

void send_order(const RawClient& client, std::uint64_t id, const wire::CompileOrder& order) {
  const auto content = wire::make_sealed_file({order.encode()});
  REQUIRE(content);
  client.frame(DaemonOp::compile, id, wire::CompileTerms{60'000, false}.encode(), content->get());
}

/// A sealed memory file without memory: all of it is a hole.
UniqueFd sealed_hole(std::size_t bytes) {
  UniqueFd file(::memfd_create("hole", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0);
  REQUIRE(::fcntl(file.get(), F_ADD_SEALS,
                  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0);
  return file;
}

struct Attack : Users {
  /// How long the daemon takes to greet another user; `limit` if it does not.
  milliseconds greeting_takes(milliseconds limit = milliseconds(10'000)) const {
    const auto began = SteadyClock::now();
    const RawClient client(socket, false);
    while (client.connected() && !client.readable() && SteadyClock::now() < began + limit) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    return std::chrono::duration_cast<milliseconds>(SteadyClock::now() - began);
  }
  std::optional<wire::DaemonSnapshot> state_for(uid_t user) const {
    const Being them(user);
    return state();
  }
  /// Everything that a daemon has logged; ends it.
  static std::string log_of(std::unique_ptr<Child> daemon) {
    daemon->signal(SIGTERM);
    return all_of(*daemon);
  }
  std::size_t descriptors_of(std::uint32_t process) const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& one :
         std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd")) {
      ++count;
    }
    return count;
  }
};

}  // namespace

// fault 160
TEST_CASE_FIXTURE(Attack,
                  "a descriptor whose close blocks delays no other client, and ends its session") {
  if (!is_root) {
    return;
  }
  const auto daemon = serve_all();
  const std::uint32_t process = state().value().process;
  const std::size_t before = descriptors_of(process);
  std::vector<std::unique_ptr<LingeringSocket>> lingering;
  const auto attach = [&] {
    lingering.push_back(std::make_unique<LingeringSocket>(seconds(3)));
    return lingering.back()->socket.get();
  };
  {
    // As an attachment, without a frame, and on a connection that ends before it is read.
    const Being mallory(kMallory);
    for (int round = 0; round < 2; ++round) {
      const RawClient attached(socket), unread(socket, false);
      attached.frame(DaemonOp::answer, 1, "", attach());
      unread.send("junk", attach());
      const RawClient ended(socket);
      ended.frame(DaemonOp::ping, 1, "", attach());
      for (const auto& one : lingering) {
        one->socket.reset();  // the daemon has the last descriptor
      }
      CHECK(attached.hung_up(seconds(2)));
    }
  }
  milliseconds longest{0};
  for (int i = 0; i < 20; ++i) {
    const Being alice(kAlice);
    longest = std::max(longest, greeting_takes());
  }
  CHECK(longest < milliseconds(1000));
  CHECK(becomes_true([&] { return descriptors_of(process) <= before + 1; }, seconds(30)));
}

// fault 160
TEST_CASE_FIXTURE(Attack, "a user with many blocked closes is not greeted, and others are") {
  if (!is_root) {
    return;
  }
  const auto daemon = serve_all();
  const std::uint64_t rejected_before = counter("rejected_limit");
  bool rejected = false;
  std::vector<std::unique_ptr<LingeringSocket>> lingering;
  {
    const Being mallory(kMallory);
    for (int i = 0; i < 200 && !rejected; ++i) {
      lingering.push_back(std::make_unique<LingeringSocket>(seconds(30)));
      const RawClient client(socket, false);
      rejected = !client.greeting();
      client.send(wire::encode_header(DaemonOp::hello, 0, 0, true), lingering.back()->socket.get());
      lingering.back()->socket.reset();
    }
  }
  CHECK(rejected);
  CHECK(counter("rejected_limit") > rejected_before);
  const Being alice(kAlice);
  CHECK(greeting_takes() < milliseconds(1000));
}

// fault 161
TEST_CASE_FIXTURE(Attack, "files of holes are refused before they are read") {
  if (!is_root) {
    return;
  }
  const auto daemon = serve_all();
  const std::uint64_t before = counter("protocol_errors");
  {
    const Being mallory(kMallory);
    const UniqueFd hole = sealed_hole(100 << 20);
    for (const DaemonOp op : {DaemonOp::sets, DaemonOp::compile, DaemonOp::answer}) {
      const RawClient client(socket);
      client.frame(op, 1, op == DaemonOp::compile ? wire::CompileTerms{1000, false}.encode() : "",
                   hole.get());
      CHECK(client.hung_up(seconds(10)));
    }
  }
  CHECK(counter("protocol_errors") == before + 3);
}

// fault 162
TEST_CASE_FIXTURE(Attack, "replies that a client does not read are bounded in bytes and files") {
  if (!is_root) {
    return;
  }
  const auto daemon = serve_all({"--jobs", "1"});
  const std::uint32_t process = state().value().process;
  SUBCASE("a large ping is a violation of the protocol") {
    const Being mallory(kMallory);
    const RawClient client(socket);
    client.frame(DaemonOp::ping, 1, std::string(1 << 20, 'p'));
    CHECK(client.hung_up(seconds(10)));
  }
  SUBCASE("replies with files") {
    const auto slow = client_of(kMallory, readable("slow.cu", "// fake: sleep 60000\n"),
                                "XDG_RUNTIME_DIR=" + runtime);
    REQUIRE(becomes_true([&] { return state().value().jobs.size() == 1; }, seconds(20)));
    auto mallory = std::make_unique<Being>(kMallory);
    const RawClient queued(socket), asking(socket);
    for (std::uint64_t id = 1; id <= 400; ++id) {  // so that a state takes a file
      wire::CompileOrder one = order(std::string(1000, 'n') + std::to_string(id));
      send_order(queued, id, one);
    }
    for (std::uint64_t id = 1; id <= 4000; ++id) {
      asking.frame(DaemonOp::state, id, "");
    }
    mallory.reset();
    CHECK(becomes_true([&] { return counter("slow_clients") == 1; }, seconds(30)));
    CHECK(descriptors_of(process) < 300);
    CHECK(asking.hung_up(seconds(20)));
  }
}

// fault 163
TEST_CASE_FIXTURE(Attack, "one user's full queue, sources and waiters leave room for others'") {
  if (!is_root) {
    return;
  }
  const auto daemon = serve_all({"--jobs", "1"});
  const std::string slow = readable("slow.cu", "// fake: sleep 60000\n");
  const auto first = client_of(kMallory, slow, "XDG_RUNTIME_DIR=" + runtime);
  REQUIRE(becomes_true([&] { return state().value().jobs.size() == 1; }, seconds(20)));
  std::vector<std::unique_ptr<RawClient>> crowd;
  {
    const Being mallory(kMallory);
    SUBCASE("queue") {
      crowd.push_back(std::make_unique<RawClient>(socket));
      for (std::uint64_t id = 1; id <= 1500; ++id) {
        send_order(*crowd.back(), id, order(std::to_string(id)));
      }
    }
    SUBCASE("sources") {
      crowd.push_back(std::make_unique<RawClient>(socket));
      for (std::uint64_t id = 1; id <= 12; ++id) {
        send_order(*crowd.back(), id, order(std::to_string(id) + std::string(50 << 20, 'x')));
      }
    }
    SUBCASE("waiters") {
      const wire::CompileOrder same = order("same");
      for (int i = 0; i < 10; ++i) {
        crowd.push_back(std::make_unique<RawClient>(socket));
        for (std::uint64_t id = 1; id <= 500; ++id) {
          send_order(*crowd.back(), id, same);
        }
      }
    }
  }
  CHECK(becomes_true([&] { return counter("declined_busy") > 0; }, seconds(60)));
  int number = 0;
  CHECK(becomes_true(
      [&] {  // a client on a busy machine may compile locally, without a greeting in time
        const std::uint64_t before = counter("compiles_ok");
        const std::string path = readable("alice" + std::to_string(++number) + ".cu", "// a\n");
        static_cast<void>(asks(kAlice, path, "store" + std::to_string(number)));
        return counter("compiles_ok") > before;
      },
      seconds(60)));
}

// fault 164
TEST_CASE_FIXTURE(Attack, "one user's many connections leave room for others'") {
  if (!is_root) {
    return;
  }
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit raised{std::min<rlim_t>(limit.rlim_max, 4096), limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &raised) == 0);
  const auto daemon = serve_all();
  std::vector<std::unique_ptr<RawClient>> crowd;
  for (const uid_t user : {kMallory, kMallory + 10, kMallory + 11, kMallory + 12}) {
    const Being them(user);
    for (int i = 0; i < 800; ++i) {
      crowd.push_back(std::make_unique<RawClient>(socket, false));
      if (!crowd.back()->greeting()) {
        break;
      }
    }
  }
  {
    const Being alice(kAlice);
    const RawClient client(socket, false);
    CHECK(client.greeting());
  }
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// fault 165
TEST_CASE_FIXTURE(Attack, "a user sees own compiles and counters only; root and the service all") {
  if (!is_root) {
    return;
  }
  const auto daemon = serve_all({"--jobs", "4"});
  const std::string path = readable("secret.cu", "// fake: sleep 60000\n");
  const auto compile = client_of(kAlice, path, "XDG_RUNTIME_DIR=" + runtime);
  REQUIRE(becomes_true([&] { return state_for(kAlice).value().jobs.size() == 1; }, seconds(20)));
  CHECK(state_for(kAlice).value().jobs.front().owner_user == kAlice);
  CHECK(state_for(0).value().jobs.size() == 1);
  CHECK(state_for(kService).value().jobs.size() == 1);
  const auto others = state_for(kMallory).value();
  CHECK(others.jobs.empty());
  CHECK(others.counter("connections") == 1);  // its own
  CHECK(others.counter("compile_requests") == 0);
  CHECK(state_for(0).value().counter("compile_requests") == 1);
}

// fault 166
TEST_CASE_FIXTURE(Attack, "labels are cut, and can forge no line of the log or of the audit log") {
  if (!is_root) {
    return;
  }
  auto daemon = serve_all({"--jobs", "1", "--verbose"});
  {
    const Being mallory(kMallory);
    const RawClient client(socket);
    wire::CompileOrder one = order("x");
    one.labels.name = "\x1b[2J\ncukilnd: serving at /run/evil\n{\"event\":\"entry\"}\xe2\x80\xae";
    one.labels.target = "\r\x1b]0;pwn\x07";
    send_order(client, 1, one);
    wire::CompileOrder two = order("y");
    two.labels.name = std::string(1 << 20, 'z');
    send_order(client, 2, two);
    CHECK(client.answer() == DaemonOp::declined);
    CHECK(client.answer() == DaemonOp::declined);
  }
  CHECK(becomes_true([&] { return counter("requests_compile_declined") == 2; }, seconds(20)));
  const std::string log = log_of(std::move(daemon));
  CHECK(log.find('\x1b') == std::string::npos);
  CHECK(log.find("\ncukilnd: serving at /run/evil") == std::string::npos);
  const std::string audit = cukiln::testing::read_all(home_of(kService) + "/store/audit.jsonl");
  CAPTURE(audit);
  CHECK(audit.find("\\u001b[2J\\ncukilnd") != std::string::npos);
  std::size_t lines = 0;
  for (std::size_t at = 0; at < audit.size(); at = audit.find('\n', at) + 1) {
    CHECK(audit.substr(at, 9) == "{\"time\":\"");
    ++lines;
  }
  CHECK(lines == 4);  // started, two compiles, stopped
  CHECK(std::all_of(audit.begin(), audit.end(),
                    [](char c) { return c == '\n' || (c >= ' ' && c < 127); }));
  CHECK(audit.size() < 8 << 10);
}

// fault 167
TEST_CASE_FIXTURE(Attack, "arguments that the library does not give NVRTC do not reach it") {
  if (!is_root) {
    return;
  }
  const auto daemon = serve_all();
  const std::vector<std::string> refused = {
      "--create-pch=/tmp/evil",
      "--use-pch=/tmp/evil",
      "--pch",
      "--pch-dir=/tmp",
      "--time=/tmp/evil",
      "--fdevice-time-trace=/tmp/evil",
      "--output-file=/tmp/evil",
      "--ptxas-options=--options-file=/etc/passwd",
      "--ptxas-options=-o /tmp/evil",
      "--ptxas-options=--output-file=/tmp/evil",
      "--ptxas-options=/tmp/evil",
      "--split-compile=1000",
      "--split-compile=0",
      "--gen-opt-lto",
      "-I/etc",
      "",
      std::string("--define-macro=A\0B", 18),
  };
  std::uint64_t expected = 0;
  for (const std::string& argument : refused) {
    CAPTURE(argument);
    {
      const Being mallory(kMallory);
      const RawClient client(socket);
      wire::CompileOrder one = order("k");
      one.request.options.arguments = {"--std=c++17", argument};
      send_order(client, 1, one);
      CHECK(client.answer() == DaemonOp::declined);
    }
    CHECK(counter("declined_arguments") == ++expected);
  }
  {  // the control: what the library sends passes to the next check
    const Being mallory(kMallory);
    const RawClient client(socket);
    wire::CompileOrder one = order("k");
    one.request.options.arguments = {"--gpu-architecture=sm_90a", "--std=c++17",
                                     "--define-macro=A=1",        "--include-path=/cukiln/inc0",
                                     "--ptxas-options=-v",        "--ptxas-options=-dlcm=ca",
                                     "--split-compile=4",         "--use_fast_math"};
    send_order(client, 1, one);
    CHECK(client.answer() == DaemonOp::declined);  // for its NVRTC
  }
  CHECK(counter("declined_compiler") == 1);
}

namespace {

/// Runs attacks in threads of their own, as users of their own, until it is destroyed.
class Attackers {
 public:
  using Round = std::function<void()>;

  ~Attackers() {
    stop_ = true;
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  void add(uid_t user, Round round) {
    threads_.emplace_back([this, user, round = std::move(round)] {
      become(user);
      while (!stop_) {
        round();
      }
    });
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

/// What a thread of another process sleeps in, by samples: system calls and how often.
/// Meanwhile a thread calls `meanwhile` as `user`, again and again.
std::map<std::string, int> sampled_sleeps(std::uint32_t process, milliseconds time, uid_t user,
                                          const std::function<void()>& meanwhile) {
  const std::string path =
      "/proc/" + std::to_string(process) + "/task/" + std::to_string(process) + "/syscall";
  std::map<std::string, int> sleeps;
  std::atomic<bool> stop{false};
  std::thread other([&] {
    become(user);
    while (!stop) {
      meanwhile();
    }
  });
  const auto end = SteadyClock::now() + time;
  while (SteadyClock::now() < end) {
    std::string text = cukiln::testing::read_all(path);
    text = text.substr(0, text.find_first_of(" \n"));
    if (!text.empty() && text != "running") {
      ++sleeps[text];
    }
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  stop = true;
  other.join();
  return sleeps;
}

}  // namespace

// A greeting waits for the machine's other processes too: the best run counts.
constexpr int kRuns = 5;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlower = 20;  // sanitisers
#else
constexpr double kSlower = 1;
#endif
constexpr double kMaxGreetingMs = 50 * kSlower;
constexpr auto kMaxRoundUs = static_cast<std::uint64_t>(5000 * kSlower);

// fault 168
TEST_CASE_FIXTURE(
    Attack,
    "under all attacks the loop never waits, others are greeted in time, and it is healthy") {
  if (!is_root) {
    return;
  }
  double best_ms = 1e9;
  std::uint64_t best_round_us = ~std::uint64_t{0};
  std::map<std::string, int> sleeps;
  for (int run = 0; run < kRuns && (best_ms > kMaxGreetingMs || best_round_us > kMaxRoundUs);
       ++run) {
    // Another each time: it keeps its longest round.
    const auto daemon = serve_all({"--jobs", "2"});
    const std::uint32_t process = state().value().process;
    Attackers attackers;
    attackers.add(kMallory, [&] {  // descriptors whose close blocks
      LingeringSocket one(seconds(1));
      const RawClient client(socket, false);
      client.send("junk", one.socket.get());
      std::this_thread::sleep_for(milliseconds(20));
    });
    attackers.add(kMallory + 1, [&] {  // full files, and holes, that must be read
      const auto full = wire::make_sealed_file({std::string(7 << 20, 's')});
      std::vector<std::unique_ptr<RawClient>> hungry;
      for (int i = 0; i < 26; ++i) {
        hungry.push_back(std::make_unique<RawClient>(socket, false));
        hungry.back()->frame(DaemonOp::hello, 0,
                             wire::DaemonHello{wire::kDaemonProtocol, 1, "test"}.encode());
        for (std::uint64_t id = 1; id <= 16; ++id) {
          hungry.back()->frame(DaemonOp::sets, id, "", full->get());
        }
      }
      std::this_thread::sleep_for(milliseconds(20));
    });
    attackers.add(kMallory + 2, [&] {  // small frames without end
      const RawClient client(socket, false);
      client.frame(DaemonOp::hello, 0,
                   wire::DaemonHello{wire::kDaemonProtocol, 1, "test"}.encode());
      std::string pings;
      for (std::uint64_t id = 1; id <= 3000; ++id) {
        pings +=
            wire::encode_header(id % 8 == 0 ? DaemonOp::state : DaemonOp::cancel, id, 0, false);
      }
      client.send(pings);
    });
    attackers.add(kMallory + 3, [&] {  // orders and joins
      const RawClient client(socket, false);
      client.frame(DaemonOp::hello, 0,
                   wire::DaemonHello{wire::kDaemonProtocol, 1, "test"}.encode());
      for (std::uint64_t id = 1; id <= 1000; ++id) {
        send_order(client, id, order(std::to_string(id % 600)));
      }
    });
    std::vector<double> took_ms;
    sleeps = sampled_sleeps(process, seconds(3), kAlice, [&] {
      const auto began = SteadyClock::now();
      const RawClient client(socket, false);
      CHECK(client.greeting());
      took_ms.push_back(
          std::chrono::duration<double, std::milli>(SteadyClock::now() - began).count());
      std::this_thread::sleep_for(milliseconds(4));
    });
    const RawClient health(socket.substr(0, socket.rfind('/')) + "/ops.sock", false);
    health.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    CHECK(health.text(15) == "HTTP/1.1 200 OK");
    std::sort(took_ms.begin(), took_ms.end());
    REQUIRE(took_ms.size() > 20);
    best_ms = std::min(best_ms, took_ms[took_ms.size() * 99 / 100]);
    best_round_us = std::min(best_round_us, counter("loop_longest_round_us"));
    MESSAGE("greetings: ", took_ms.size(), ", 99th percentile: ", best_ms,
            " ms, longest round: ", best_round_us, " us");
  }
  CHECK(best_ms <= kMaxGreetingMs);
  CHECK(best_round_us <= kMaxRoundUs);
  // Besides for events it sleeps for the kernel's lock of its address space and, shortly, for a
  // lock of another thread.
  const std::set<int> allowed = {
#ifdef SYS_epoll_wait
      SYS_epoll_wait,
#endif
      SYS_epoll_pwait, SYS_futex,   SYS_mmap,   SYS_munmap, SYS_mprotect,
      SYS_brk,         SYS_madvise, SYS_mremap, SYS_clone,  SYS_clone3};
  for (const auto& [call, count] : sleeps) {
    CAPTURE(call);
    CAPTURE(count);
    CHECK((call == "-1" || allowed.contains(std::atoi(call.c_str()))));  // -1: a page fault
  }
}
