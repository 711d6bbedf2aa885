// SPDX-License-Identifier: Apache-2.0
// cukilnd under overload, out of memory or descriptors, interrupted by signals, or with hung
// compilers: every client gets its kernel.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <optional>

#include "addons/daemon/client/object_message.hpp"
#include "core/base/file_lock.hpp"
#include "core/store/tiered_store.hpp"
#include "support/daemon_process.hpp"
#include "support/raw_client.hpp"
#include "support/store_entries.hpp"

using namespace cukiln;
using cukiln::testing::becomes_true;
using cukiln::testing::BuildProcess;
using cukiln::testing::Child;
using cukiln::testing::first_word;
using cukiln::testing::RawClient;
using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;
using wire::DaemonOp;

namespace {

/// Whether a compile worker with this NVRTC is running.
bool has_worker(const std::string& library) {
  const std::string begin =
      cukiln::testing::bin() + "/cukiln-compile-worker" + std::string(1, '\0') + library;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    if (cukiln::testing::read_all(entry.path() / "cmdline").rfind(begin, 0) == 0) {
      return true;
    }
  }
  return false;
}

struct Fixture : cukiln::testing::DaemonFixture {
  /// A new source, whose compiles are counted in `count_file`.
  std::string numbered(int number, const std::string& directives) const {
    return scratch.write("k" + std::to_string(number) + ".cu",
                         "// fake: count " + count_file + "\n" + directives + "\n");
  }
  /// An order that is queued as any other. Its NVRTC does not exist, so it is declined when it
  /// starts.
  static std::string order(int number) {
    wire::CompileOrder order;
    order.request.sources = {{"/cukiln/src/k.cu", SharedBytes("// " + std::to_string(number))}};
    order.request.target = {90, 'a'};
    order.request.toolchain.version = "0";
    order.labels.name = "waits";
    return order.encode();
  }
  /// Runs three clients for each of six sources concurrently: one compile for each source, one
  /// result for all three. Repeated until the daemon took part, because a client that is not
  /// greeted within 50 ms compiles locally.
  void check_many_clients(const std::vector<std::string>& extra) {
    scratch.write("tile.h", "one");
    std::size_t rounds = 0;
    CHECK(becomes_true(
        [&] {
          std::vector<std::unique_ptr<BuildProcess>> processes;
          for (std::size_t i = 6 * rounds; i < 6 * rounds + 6; ++i) {
            const std::string path = numbered(static_cast<int>(i),
                                              "// fake: sleep 20\n"
                                              "// fake: include /cukiln/src/tile.h\n"
                                              "// fake: sleep 20");
            for (int client_of_it = 0; client_of_it < 3; ++client_of_it) {
              processes.push_back(client(path, extra));
            }
          }
          std::vector<std::string> keys;
          std::string all_said;
          CAPTURE(all_said);
          for (const auto& process : processes) {
            CHECK(process->ends_within(seconds(60)));
            const std::string said = process->output();
            all_said += said + "\n";
            keys.push_back(said.substr(std::min(said.find(' '), said.size())));
            CHECK(keys.back().size() > 32);
            CHECK(keys.back() == keys[(keys.size() - 1) / 3 * 3]);
          }
          CHECK(compiles() == 6 * ++rounds);
          return counter("compiles_ok") > 0;
        },
        seconds(30)));
  }
  long in_proc_status(std::uint32_t process, const std::string& name) const {
    std::ifstream in("/proc/" + std::to_string(process) + "/status");
    for (std::string line; std::getline(in, line);) {
      if (line.rfind(name + ":", 0) == 0) {
        return std::stol(line.substr(name.size() + 1));
      }
    }
    return -1;
  }
  std::size_t jobs() const {
    const wire::DaemonSnapshot now = answered_state();
    return now.counter("compiles_running") + now.counter("compiles_queued");
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "a full queue declines, and the declined client compiles locally and counts it") {
  const auto daemon = start({"--jobs", "1"});
  const auto slow = compiling_client(source(wait_go));  // ends with the daemon
  constexpr std::size_t kQueue = 1024;
  std::vector<std::unique_ptr<RawClient>> crowd;
  int number = 0;
  const auto send_order = [&] {
    const auto content = wire::make_sealed_file({order(++number)});
    REQUIRE(content);
    crowd.back()->frame(DaemonOp::obtain, static_cast<std::uint64_t>(number),
                        wire::ObtainTerms{60'000}.encode(), content->get());
  };
  // One connection gets at most half of what is left.
  for (std::size_t queued = jobs(); queued < 1 + kQueue && crowd.size() < 20; queued = jobs()) {
    crowd.push_back(std::make_unique<RawClient>(socket));
    for (std::size_t i = 0; i < (1 + kQueue - queued) / 2 + 2; ++i) {
      send_order();
    }
    crowd.back()->frame(DaemonOp::ping, 0, {});
    while (crowd.back()->answer().value_or(DaemonOp::pong) != DaemonOp::pong) {
    }
  }
  REQUIRE(jobs() == 1 + kQueue);
  const std::uint64_t declined_before = counter("declined_busy");
  crowd.push_back(std::make_unique<RawClient>(socket));
  send_order();
  CHECK(becomes_true([&] { return counter("declined_busy") == declined_before + 1; }, seconds(20)));

  int tries = 0;  // a client on a busy machine may compile locally, without a greeting in time
  CHECK(becomes_true(
      [&] {
        auto declined = client(numbered(++tries, ""), {"counts"});
        CHECK(declined->wait() == 0);
        CHECK(first_word(declined->output()) == "compiled");
        return declined->output().find("declined 1 failed 0") != std::string::npos;
      },
      seconds(20)));
  CHECK(counter("declined_busy") > declined_before + 1);

  crowd.clear();
  CHECK(becomes_true([&] { return jobs() == 1; }, seconds(20)));
  std::vector<std::unique_ptr<BuildProcess>> welcome;
  CHECK(becomes_true(
      [&] {
        welcome.push_back(client(numbered(++tries, "")));
        return becomes_true([&] { return jobs() > 1; }, seconds(2));
      },
      seconds(20)));
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 61: with a full listen queue the next client compiles locally, and all queued "
    "ones are greeted or rejected") {
  const auto daemon = start();
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  daemon->signal(SIGSTOP);
  const auto address = wire::unix_address(socket);
  REQUIRE(address);
  std::vector<UniqueFd> queue;
  for (;;) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    REQUIRE(fd);
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address->address), address->size) !=
        0) {
      REQUIRE(errno == EAGAIN);
      break;
    }
    queue.push_back(std::move(fd));
  }
  CHECK(queue.size() > 100);
  auto impatient = options();
  impatient.connect_timeout = milliseconds(50);
  DaemonClient link(impatient);
  const auto refused = link.begin();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::timeout);
  CHECK(refused.error().message().find("cannot be reached") != std::string::npos);
  const auto alone = client(source(""));
  CHECK(alone->ends_within(seconds(20)));
  CHECK(first_word(alone->output()) == "compiled");
  daemon->signal(SIGCONT);
  std::size_t greeted = 0;
  std::size_t refusals = 0;
  for (const UniqueFd& fd : queue) {
    pollfd polled{fd.get(), POLLIN, 0};
    char byte = 0;
    CHECK(::poll(&polled, 1, 20'000) == 1);
    (::recv(fd.get(), &byte, 1, 0) == 1 ? greeted : refusals) += 1;
  }
  CHECK(greeted == std::min<std::size_t>(queue.size(), 1024));  // as many as there may be
  queue.clear();
  CHECK(becomes_true([&] { return counter("connections") < 10; }, seconds(20)));
  CHECK(counter("rejected_limit") >= refusals);
}

TEST_CASE_FIXTURE(Fixture, "the connection of a client that never reads is closed") {
  const auto daemon = start();
  const RawClient deaf(socket);
  const std::string much(1000, 'x');
  for (std::uint64_t i = 1; i <= 24'000; ++i) {  // more than 16 MiB of answers
    deaf.frame(DaemonOp::ping, i, much);
  }
  CHECK(becomes_true([&] { return counter("slow_clients") == 1; }, seconds(20)));
  CHECK(deaf.hung_up(seconds(20)));
}

TEST_CASE_FIXTURE(Fixture, "fault 66: signals that interrupt clients lose no result") {
  const auto daemon = start();
  check_many_clients({"interrupted"});
}

TEST_CASE_FIXTURE(Fixture, "fault 66: signals that interrupt the daemon lose no client") {
  const auto daemon = start();
  std::atomic<bool> over{false};
  std::thread storm([&] {
    for (int i = 0; !over; ++i) {
      daemon->signal(i % 3 == 0 ? SIGHUP : SIGCHLD);
      if (i % 20 == 0) {
        daemon->signal(SIGSTOP);
        daemon->signal(SIGCONT);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  check_many_clients({});
  over = true;
  storm.join();
  CHECK(counter("protocol_errors") == 0);
  daemon->signal(SIGTERM);
  CHECK(daemon->wait() == 0);
}

TEST_CASE_FIXTURE(Fixture, "fault 327: no signal but two ends a daemon, while it starts either") {
  Child daemon({"/bin/sh", "-c", "echo $$; exec \"$0\" \"$@\"", cukiln::testing::bin() + "/cukilnd",
                "--store", scratch / "store", "--socket", socket},
               {"XDG_RUNTIME_DIR=" + runtime, "XDG_CONFIG_HOME=" + scratch / "config"});
  const std::string process = daemon.line();
  const std::string status = "/proc/" + process + "/status";
  const auto blocks_hangup = [&] {
    const std::string text = cukiln::testing::read_all(status);
    const std::size_t at = text.find("SigBlk:");
    return at != text.npos && (std::stoull(text.substr(at + 8), nullptr, 16) & 1) != 0;
  };
  REQUIRE(becomes_true(blocks_hangup, seconds(20)));  // main() has begun
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2}) {
    daemon.signal(signal);
  }
  CHECK(becomes_true([this] { return state().has_value(); }, seconds(20)));
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE, SIGXFSZ}) {
    daemon.signal(signal);
  }
  CHECK(std::to_string(answered_state().process) == process);
  daemon.signal(SIGTERM);
  CHECK(daemon.wait() == 0);
}

TEST_CASE_FIXTURE(
    Fixture, "fault 326: what a key signed that is revoked now is not in memory after SIGHUP") {
  const std::string stolen = "stolen:" + std::string(43, 'A') + "=";
  const std::string trusted = scratch.write("trusted", stolen + "\n");
  StoreEntry entry = cukiln::testing::make_entry(1);
  entry.signer = stolen;
  TieredStore::Options options;
  options.store.directory = scratch / "store";
  options.store.system_directory.clear();
  REQUIRE((*TieredStore::open(std::move(options)))->put(entry));
  const auto daemon = start({}, {"CUKILN_REMOTE_TRUST=" + trusted});
  const RawClient client(socket);
  const auto get = [&] {
    client.frame(DaemonOp::answer, 1, wire::EntryKey{entry.key}.encode());
    return client.answer();
  };
  CHECK(get() == DaemonOp::object);
  CHECK(get() == DaemonOp::object);  // from memory
  scratch.write("trusted", "revoked " + stolen + "\n");
  daemon->signal(SIGHUP);
  CHECK(becomes_true([&] { return get() == DaemonOp::miss; }, seconds(20)));
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 49: a compiler that hangs is killed at its time limit; the error names the "
    "module, and the daemon continues") {
  const std::string nvrtc = scratch / "libnvrtc-hangs.so";  // by which its worker is known
  std::filesystem::copy_file(cukiln::testing::bin() + "/libnvrtc_fake.so", nvrtc);
  const auto daemon = start();
  Child hanging(
      {cukiln::testing::bin() + "/build_process", scratch / "store", nvrtc,
       cukiln::testing::bin() + "/cukiln-compile-worker", source("// fake: spin"), "impatient"},
      {"XDG_RUNTIME_DIR=" + runtime});
  REQUIRE(becomes_true([&] { return compiles() == 1; }, seconds(20)));
  CHECK(has_worker(nvrtc));
  const std::string said = hanging.line();
  CAPTURE(said);
  CHECK(said.rfind("failed ", 0) == 0);
  CHECK(said.find("compiling slow took longer than 2000 ms") != std::string::npos);
  CHECK(hanging.wait() == 1);
  CHECK(counter("compiles_timed_out") == 1);
  CHECK(becomes_true([&] { return !has_worker(nvrtc); }, seconds(20)));
  CHECK(becomes_true(
      [&, number = 0]() mutable {
        CHECK(client(numbered(++number, ""))->wait() == 0);
        return counter("compiles_ok") > 0;
      },
      seconds(20)));
}

TEST_CASE_FIXTURE(Fixture,
                  "fault 67: a second SIGTERM ends the daemon without waiting for compiles") {
  daemon_log = scratch / "daemon.log";
  const auto daemon = start({"--verbose"});
  const auto running = compiling_client(source(wait_go));
  DaemonClient link(options());  // connected before: a draining daemon rejects connections
  const auto draining = [&] {
    auto frame = link.ask(DaemonOp::state, {});
    auto content = frame ? content_of(*frame) : Result<SharedBytes>(frame.error());
    const auto now = content ? wire::DaemonSnapshot::decode(*content) : std::nullopt;
    return now && now->draining;
  };
  CHECK_FALSE(draining());
  daemon->signal(SIGTERM);
  REQUIRE(becomes_true(draining, seconds(20)));
  daemon->signal(SIGTERM);
  CHECK(daemon->wait() == 0);
  const std::string logged = cukiln::testing::read_all(daemon_log);
  CHECK(logged.find("a second signal") != std::string::npos);
  CHECK(logged.find("were not done") == std::string::npos);
}

// fault 164
TEST_CASE_FIXTURE(Fixture,
                  "fault 63: connections above the limit are closed, and later ones are not") {
  const auto daemon = start();
  std::vector<std::unique_ptr<RawClient>> many;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  for (int i = 0; i < 1024; ++i) {
    many.push_back(std::make_unique<RawClient>(socket));
  }
  const RawClient too_many(socket, false);
  CHECK(too_many.hung_up(seconds(20)));
  many.resize(1000);
  CHECK(becomes_true([&] { return counter("rejected_limit") > 0; }, seconds(20)));
  CHECK(becomes_true([&] { return counter("connections") < 1010; }, seconds(20)));
  const RawClient next(socket, false);
  CHECK(next.greeting());
}

TEST_CASE_FIXTURE(Fixture,
                  "fault 66: without descriptors the daemon closes connections, does not spin, and "
                  "serves again afterwards") {
  const auto daemon = start();
  const auto before = state();
  REQUIRE(before);
  const rlimit few{40, 40};
  REQUIRE(::prlimit(static_cast<pid_t>(before->process), RLIMIT_NOFILE, &few, nullptr) == 0);
  {
    std::vector<std::unique_ptr<RawClient>> many;
    for (int i = 0; i < 60; ++i) {
      many.push_back(std::make_unique<RawClient>(socket, false));
    }
    CHECK(many.back()->hung_up(seconds(20)));
    const long switches = in_proc_status(before->process, "voluntary_ctxt_switches");
    std::this_thread::sleep_for(milliseconds(500));
    CHECK(in_proc_status(before->process, "voluntary_ctxt_switches") - switches < 50);
  }
  CHECK(becomes_true([&] { return counter("rejected_limit") > 0; }, seconds(20)));
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 64: an attachment above the limit is refused before memory is allocated for it") {
  const auto daemon = start();
  const auto before = state();
  REQUIRE(before);
  UniqueFd huge(::memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(huge.get(), off_t{1} << 40) == 0);  // a TiB of nothing
  REQUIRE(::fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0);
  const long peak = in_proc_status(before->process, "VmHWM");
  const RawClient client(socket);
  client.frame(DaemonOp::obtain, 1, wire::ObtainTerms{1000}.encode(), huge.get());
  CHECK(client.hung_up(seconds(20)));
  CHECK(counter("protocol_errors") == 1);
  CHECK(in_proc_status(before->process, "VmHWM") < peak + (16 << 10));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end a process for that
TEST_CASE_FIXTURE(
    Fixture,
    "fault 66: without memory the daemon closes the connection of a large request, declines "
    "what it cannot start, and serves again afterwards") {
  const auto daemon = start();
  const auto now = state();
  REQUIRE(now);
  const auto process = static_cast<pid_t>(now->process);
  const auto limit = [&](rlim_t more) {
    const rlim_t have = static_cast<rlim_t>(in_proc_status(now->process, "VmSize")) << 10;
    const rlimit bounds{more == RLIM_INFINITY ? more : have + more, RLIM_INFINITY};
    REQUIRE(::prlimit(process, RLIMIT_AS, &bounds, nullptr) == 0);
  };
  limit(48 << 20);
  wire::CompileOrder order;
  order.request.sources = {{"/cukiln/src/k.cu", SharedBytes(std::string(60 << 20, ' '))}};
  const auto content = wire::make_sealed_file({order.encode()});
  REQUIRE(content);
  const RawClient greedy(socket);
  greedy.frame(DaemonOp::obtain, 1, wire::ObtainTerms{1000}.encode(), content->get());
  CHECK(greedy.hung_up(seconds(20)));
  CHECK(state());

  limit(2 << 20);  // no room for a thread's stack
  order.request.sources = {{"/cukiln/src/k.cu", SharedBytes(std::string("// small"))}};
  const auto small = wire::make_sealed_file({order.encode()});
  REQUIRE(small);
  const RawClient modest(socket);
  modest.frame(DaemonOp::obtain, 1, wire::ObtainTerms{1000}.encode(), small->get());
  CHECK(modest.outcome() == DaemonOp::declined);
  CHECK(counter("declined_busy") == 1);

  limit(RLIM_INFINITY);
  CHECK(becomes_true(
      [&, number = 0]() mutable {
        const std::string name = "k" + std::to_string(++number) + ".cu";
        CHECK(client(scratch.write(name, "// " + name + "\n"))->wait() == 0);
        return counter("compiles_ok") > 0;
      },
      seconds(20)));
}
#endif

TEST_CASE_FIXTURE(
    Fixture,
    "a client whose request waits for a disk or a writer delays no other client, and gets its "
    "reply in the end") {
  const auto daemon = start();
  auto writer = FileLock::acquire(scratch / "store/v6/writer.lock", FileLock::Mode::exclusive,
                                  milliseconds(10'000));
  REQUIRE(writer);
  const auto blob = seal_object(encode(StoreBlob{"triton", "key", SharedBytes("bytes")}));
  REQUIRE(blob);
  const RawClient waiting(socket);
  waiting.frame(DaemonOp::put_blob, 1, {}, blob->get());
  waiting.frame(DaemonOp::ping, 2, "after it");
  const RawClient other(socket);
  other.frame(DaemonOp::ping, 1, "now");
  CHECK(other.answer() == DaemonOp::pong);
  writer->release();
  CHECK(waiting.outcome() ==
        DaemonOp::done);  // not an error: the other client was answered during the wait
  CHECK(waiting.answer() == DaemonOp::pong);
}

TEST_CASE_FIXTURE(Fixture,
                  "an idle daemon does not wake up for a second, and has less than 20 MiB") {
  const auto daemon = start();
  CHECK(client(source(""))->wait() == 0);
  const auto now = state();
  REQUIRE(now);
  const auto switches = [&] { return in_proc_status(now->process, "voluntary_ctxt_switches"); };
  const auto sleeps = [&] {
    const long before = switches();
    std::this_thread::sleep_for(seconds(1));
    return switches() == before;
  };
  CHECK(becomes_true(sleeps, seconds(10)));  // once it has handled the end of its last client
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their memory is not its
  CHECK(in_proc_status(now->process, "VmRSS") < 20 * 1024);
#endif
}
