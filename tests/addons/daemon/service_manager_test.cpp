// SPDX-License-Identifier: Apache-2.0
// cukilnd under a service manager: socket activation and state notifications. The test plays the
// manager.

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "support/daemon_process.hpp"
#include "support/raw_client.hpp"

using namespace cukiln;
using cukiln::testing::becomes_true;
using cukiln::testing::Child;
using cukiln::testing::first_word;
using cukiln::testing::RawClient;
using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

UniqueFd bound(const std::string& path, int type) {
  const auto address = wire::unix_address(path);
  REQUIRE(address);
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address->address), address->size) ==
          0);
  return fd;
}

UniqueFd listening(const std::string& path, int type = SOCK_STREAM) {
  UniqueFd fd = bound(path, type);
  REQUIRE(::listen(fd.get(), 16) == 0);
  return fd;
}

UniqueFd listening_tcp() {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  REQUIRE(::listen(fd.get(), 16) == 0);
  return fd;
}

/// Receives a service's notifications.
class NotifySocket {
 public:
  /// `name`: a path, or `@` and a name in the abstract namespace.
  explicit NotifySocket(const std::string& name)
      : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    REQUIRE(name.size() < sizeof to.sun_path);
    name.copy(to.sun_path, name.size());
    if (name.front() == '@') {
      to.sun_path[0] = '\0';
    }
    REQUIRE(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&to),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())) == 0);
  }
  /// The next message; empty: none came in time.
  std::string next(milliseconds limit = seconds(20)) const {
    pollfd polled{socket_.get(), POLLIN, 0};
    char text[4096];
    if (::poll(&polled, 1, static_cast<int>(limit.count())) <= 0) {
      return {};
    }
    const ssize_t size = ::recv(socket_.get(), text, sizeof text, 0);
    return std::string(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  }
  /// The next one that begins so, as next().
  std::string next_of(const std::string& begin) const {
    for (;;) {
      std::string text = next();
      if (text.empty() || text.rfind(begin, 0) == 0) {
        return text;
      }
    }
  }

 private:
  UniqueFd socket_;
};

struct Fixture : cukiln::testing::DaemonFixture {
  /// cukilnd as a service manager starts it; what it logs is its output. `pid`: whom LISTEN_PID
  /// names.
  std::unique_ptr<Child> activate(const std::vector<int>& descriptors,
                                  std::vector<std::string> environment,
                                  const std::string& pid = "$$") const {
    environment.push_back("XDG_RUNTIME_DIR=" + runtime);
    environment.push_back("XDG_CONFIG_HOME=" + scratch / "config");
    environment.push_back("CUKILN_NVRTC_LIBRARY=" + cukiln::testing::bin() + "/libnvrtc_fake.so");
    return std::make_unique<Child>(
        std::vector<std::string>{"/bin/sh", "-c",
                                 "export LISTEN_PID=" + pid + "; exec \"$0\" \"$@\" 2>&1",
                                 cukiln::testing::bin() + "/cukilnd", "--store", scratch / "store"},
        environment, descriptors);
  }
  bool serves() const {
    return becomes_true([this] { return state().has_value(); }, seconds(20));
  }
};

}  // namespace

TEST_CASE_FIXTURE(
    Fixture,
    "a socket of the service manager is served and not removed; connections that wait are "
    "served by the next daemon") {
  std::filesystem::create_directory(scratch / "elsewhere");
  socket = scratch / "elsewhere/given.sock";
  const UniqueFd given = listening(socket);
  for (int i = 0; i < 2; ++i) {
    const RawClient early(socket, false);
    CHECK(early.connected());
    auto daemon = activate({given.get()}, {"LISTEN_FDS=1"});
    REQUIRE(serves());
    CHECK(state()->socket == socket);
    early.frame(wire::DaemonOp::hello, 0,
                wire::DaemonHello{wire::kDaemonProtocol, 1, "early"}.encode());
    early.frame(wire::DaemonOp::ping, 5, "?");
    CHECK(early.greeting());
    CHECK(early.answer() == wire::DaemonOp::pong);
    CHECK(std::filesystem::exists(scratch / "elsewhere/cukilnd.lock"));
    daemon->signal(SIGTERM);
    CHECK(daemon->wait() == 0);
    CHECK(std::filesystem::exists(socket));
    CHECK_FALSE(std::filesystem::exists(runtime + "/cukiln"));
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "the names of passed sockets tell the IPC socket from the admin socket") {
  const UniqueFd data = listening(scratch / "data.sock");
  const UniqueFd operations = listening(scratch / "operations.sock");
  socket = scratch / "data.sock";
  const auto daemon =
      activate({operations.get(), data.get()}, {"LISTEN_FDS=2", "LISTEN_FDNAMES=ops:data"});
  REQUIRE(serves());
  const RawClient web(scratch / "operations.sock", false);
  web.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CHECK(web.text(15) == "HTTP/1.1 200 OK");
  CHECK_FALSE(std::filesystem::exists(scratch / "ops.sock"));
}

TEST_CASE_FIXTURE(Fixture, "descriptors that were passed to another process are not used") {
  const UniqueFd given = listening(scratch / "given.sock");
  const auto daemon = activate({given.get()}, {"LISTEN_FDS=1"}, "1");
  CHECK(serves());
  const RawClient client(scratch / "given.sock", false);
  CHECK_FALSE(client.hung_up(milliseconds(300)));
}

TEST_CASE_FIXTURE(
    Fixture,
    "a passed descriptor that cannot be used is reported, and the daemon opens its own socket") {
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd tcp = listening_tcp();
  const UniqueFd packets = listening(scratch / "packets", SOCK_SEQPACKET);
  const UniqueFd datagrams = bound(scratch / "datagrams", SOCK_DGRAM);
  const UniqueFd silent = bound(scratch / "silent", SOCK_STREAM);
  const UniqueFd first = listening(scratch / "first");
  const UniqueFd second = listening(scratch / "second");
  const struct {
    const char* what;
    std::vector<int> descriptors;
    std::string count;
    std::string said;
    std::string served;
  } table[] = {
      {"no socket", {null.get()}, "1", "descriptor 3 (unnamed) ", {}},
      {"TCP", {tcp.get()}, "1", "descriptor 3 (unnamed) ", {}},
      {"another type", {packets.get()}, "1", "descriptor 3 (unnamed) ", {}},
      {"datagrams", {datagrams.get()}, "1", "descriptor 3 (unnamed) ", {}},
      {"not listening", {silent.get()}, "1", "descriptor 3 (unnamed) ", {}},
      {"fewer than counted", {first.get()}, "2", "descriptor 4 (unnamed) ", scratch / "first"},
      {"one too many",
       {first.get(), second.get()},
       "2",
       "another one has this role",
       scratch / "first"},
      {"no number", {first.get()}, "1x", "LISTEN_FDS=1x", {}},
      {"none", {first.get()}, "0", "LISTEN_FDS=0", {}},
      {"far too many", {first.get()}, "17", "LISTEN_FDS=17", {}},
      {"less than none", {first.get()}, "-1", "LISTEN_FDS=-1", {}},
  };
  const std::string own = socket;
  for (const auto& row : table) {
    CAPTURE(row.what);
    socket = row.served.empty() ? own : row.served;
    const auto daemon = activate(row.descriptors, {"LISTEN_FDS=" + row.count});
    const std::string said = daemon->line();
    CAPTURE(said);
    CHECK(said.find(row.said) != std::string::npos);
    CHECK(serves());
    daemon->signal(SIGTERM);
    CHECK(daemon->wait() == 0);
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "the service manager is notified when the daemon is ready and when it stops") {
  for (const std::string& name : {scratch / "notify", "@cukiln-test-" + scratch.path()}) {
    CAPTURE(name);
    const NotifySocket manager(name);
    const auto daemon = start({}, {"NOTIFY_SOCKET=" + name});
    CHECK(manager.next() == "READY=1\nSTATUS=Serving at " + socket);
    CHECK(std::filesystem::exists(runtime + "/cukiln/ops.sock"));
    daemon->signal(SIGTERM);
    CHECK(manager.next().rfind("STOPPING=1\nSTATUS=", 0) == 0);
    CHECK(daemon->wait() == 0);
    CHECK(manager.next(milliseconds(0)).empty());
  }
}

TEST_CASE_FIXTURE(Fixture, "a missing service manager has no effect") {
  for (const std::string& name :
       {scratch / "nowhere", std::string("@"), std::string("relative"), std::string(200, '/')}) {
    CAPTURE(name);
    const auto daemon = start({}, {"NOTIFY_SOCKET=" + name, "WATCHDOG_USEC=20000"});
    daemon->signal(SIGTERM);
    CHECK(daemon->wait() == 0);
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "the watchdog is notified at half its interval, also while the daemon drains") {
  const NotifySocket manager(scratch / "notify");
  const auto began = SteadyClock::now();
  const auto daemon =
      start({}, {"NOTIFY_SOCKET=" + scratch / "notify", "WATCHDOG_USEC=2000000", "WATCHDOG_PID="});
  CHECK(manager.next_of("WATCHDOG=1") == "WATCHDOG=1");
  milliseconds shortest = seconds(20);  // others use this machine too
  auto last = SteadyClock::now();
  for (int i = 0; i < 3; ++i) {
    CHECK(manager.next_of("WATCHDOG=1") == "WATCHDOG=1");
    const auto now = SteadyClock::now();
    shortest = std::min(shortest, std::chrono::duration_cast<milliseconds>(now - last));
    last = now;
  }
  CHECK(last - began >= milliseconds(3000));  // no more often than that
  CHECK(shortest < milliseconds(2000));       // within the interval, by a daemon that runs

  const auto running = compiling_client(source("// fake: sleep 4500"));
  daemon->signal(SIGTERM);
  CHECK(manager.next_of("STOPPING=1") != "");
  CHECK(manager.next_of("WATCHDOG=1") == "WATCHDOG=1");
  CHECK(running->wait() == 0);
  CHECK(daemon->wait() == 0);
}

TEST_CASE_FIXTURE(Fixture, "a watchdog that is meant for another process is not notified") {
  const NotifySocket manager(scratch / "notify");
  const auto daemon =
      start({}, {"NOTIFY_SOCKET=" + scratch / "notify", "WATCHDOG_USEC=100000", "WATCHDOG_PID=1"});
  CHECK(manager.next().rfind("READY=1", 0) == 0);
  CHECK(manager.next(milliseconds(400)).empty());
}
