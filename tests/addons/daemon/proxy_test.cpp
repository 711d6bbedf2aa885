// SPDX-License-Identifier: Apache-2.0
// Clients of a daemon whose replies have one flipped bit.

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <functional>
#include <thread>

#include "addons/daemon/protocol/sealed_file.hpp"
#include "addons/daemon/protocol/unix_socket.hpp"
#include "core/base/serial.hpp"
#include "support/daemon_process.hpp"

using namespace cukiln;
using cukiln::testing::becomes_true;
using cukiln::testing::Child;
using cukiln::testing::first_word;
using wire::DaemonOp;

namespace {

/// Forwards between clients and a daemon, and flips one bit of each frame of one kind that the
/// daemon sends: behind the header of 16 bytes, or in the attachment.
class FlippingProxy {
 public:
  static constexpr int kNothing = -1;
  static constexpr int kGreeting = 0;
  std::atomic<int> kind{kNothing};  ///< a DaemonOp
  std::atomic<bool> in_attachment{false};
  std::atomic<std::size_t> bit{0};  ///< modulo the bits that there are
  std::atomic<int> flipped{0};

  FlippingProxy(const std::string& path, std::string daemon) : daemon_(std::move(daemon)) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    const auto address = wire::unix_address(path);
    REQUIRE(address);
    socket_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address->address),
                   address->size) == 0);
    REQUIRE(::listen(socket_.get(), 16) == 0);
    accepting_ = std::thread([this] { accept_all(); });
  }
  ~FlippingProxy() {
    stop_ = true;
    ::shutdown(socket_.get(), SHUT_RDWR);
    accepting_.join();
    for (std::thread& connection : connections_) connection.join();
  }

 private:
  void accept_all() {
    for (;;) {
      UniqueFd client(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client) return;
      connections_.emplace_back([this, fd = std::move(client)] { serve(fd.get()); });
    }
  }

  void serve(int client) {
    const auto address = wire::unix_address(daemon_);
    const UniqueFd daemon(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(daemon.get(), reinterpret_cast<const sockaddr*>(&address->address),
                  address->size) != 0) {
      return;
    }
    std::string said;  // received from the daemon, not forwarded yet
    std::deque<UniqueFd> attachments;
    bool greeted = false;
    std::string buffer(1 << 16, '\0');
    while (!stop_) {
      pollfd polled[2] = {{client, POLLIN, 0}, {daemon.get(), POLLIN, 0}};
      if (::poll(polled, 2, 100) <= 0) continue;
      if (polled[0].revents != 0) {
        std::vector<UniqueFd> attached;
        const ssize_t got = wire::receive_some(client, buffer.data(), buffer.size(), attached);
        if (got <= 0) return;
        if (!send_all(daemon.get(), ByteView(buffer).substr(0, static_cast<std::size_t>(got)),
                      attached.empty() ? -1 : attached.front().get())) {
          return;
        }
      }
      if (polled[1].revents != 0) {
        std::vector<UniqueFd> attached;
        const ssize_t got =
            wire::receive_some(daemon.get(), buffer.data(), buffer.size(), attached);
        if (got <= 0) return;
        said.append(buffer.data(), static_cast<std::size_t>(got));
        std::move(attached.begin(), attached.end(), std::back_inserter(attachments));
        if (!pass_on(client, said, attachments, greeted)) return;
      }
    }
  }

  bool pass_on(int client, std::string& said, std::deque<UniqueFd>& attachments, bool& greeted) {
    for (;;) {
      std::size_t size = wire::kGreetingBytes;
      int op = kGreeting;
      bool attached = false;
      if (greeted) {
        if (said.size() < wire::kDaemonHeaderBytes) return true;
        SerialReader header(said);
        size = wire::kDaemonHeaderBytes + header.u32();
        const std::uint32_t op_and_flags = header.u32();
        op = static_cast<int>(op_and_flags & 0xffff);
        attached = op_and_flags >> 16 != 0;
      }
      if (said.size() < size || (attached && attachments.empty())) return true;
      std::string frame = said.substr(0, size);
      said.erase(0, size);
      greeted = true;
      if (op == kind && !in_attachment && size > wire::kDaemonHeaderBytes) {
        flip_in(frame, wire::kDaemonHeaderBytes);
      }
      UniqueFd attachment;
      if (attached) {
        attachment = std::move(attachments.front());
        attachments.pop_front();
        if (op == kind && in_attachment) {
          std::string bytes(wire::map_sealed_file(attachment.get(), 1 << 20)->view());
          flip_in(bytes, 0);
          attachment = *wire::make_sealed_file({bytes});
        }
      }
      if (!send_all(client, frame, attachment.get())) return false;
    }
  }

  void flip_in(std::string& bytes, std::size_t from) {
    const std::size_t at = bit % ((bytes.size() - from) * 8);
    bytes[from + at / 8] = static_cast<char>(bytes[from + at / 8] ^ 1 << at % 8);
    ++flipped;
  }

  static bool send_all(int to, ByteView bytes, int attachment) {
    while (!bytes.empty()) {
      const ssize_t sent = wire::send_some(to, {bytes}, attachment);
      if (sent > 0) {
        bytes.remove_prefix(static_cast<std::size_t>(sent));
        attachment = -1;
        continue;
      }
      pollfd polled{to, POLLOUT, 0};
      if (errno != EAGAIN || ::poll(&polled, 1, 10'000) <= 0) return false;
    }
    return true;
  }

  const std::string daemon_;
  UniqueFd socket_;
  std::atomic<bool> stop_{false};
  std::thread accepting_;
  std::deque<std::thread> connections_;  // of accepting_, until it has ended
};

struct Fixture : cukiln::testing::DaemonFixture {
  std::unique_ptr<Child> daemon;
  std::unique_ptr<FlippingProxy> proxy;

  Fixture() {
    const std::string front = socket;
    socket = scratch / "behind/cukilnd.sock";
    std::filesystem::create_directories(scratch / "behind");
    std::filesystem::permissions(scratch / "behind", std::filesystem::perms::owner_all);
    daemon = start();
    proxy = std::make_unique<FlippingProxy>(front, socket);
  }

  std::string module(int number, const std::string& directives = {}) const {
    scratch.write("tile.h", "tile\n");
    return scratch.write("k" + std::to_string(number) + ".cu",
                         "// fake: include /cukiln/src/tile.h\n" + directives +
                             "__global__ void k" + std::to_string(number) + "() {}\n");
  }

  struct Outcome {
    int status = -1;
    std::string word, key, counts;
    bool fell_back() const { return counts != "declined 0 failed 0\n"; }
  };
  Outcome run(const std::string& path, const std::string& store) {
    auto process = client(path, {"counts"}, store);
    Outcome outcome;
    outcome.status = process->wait();
    const std::string text = process->output();
    const std::size_t end = text.find('\n');
    outcome.word = first_word(text);
    outcome.key = first_word(text.substr(std::min(outcome.word.size() + 1, text.size())));
    outcome.counts = end < text.size() ? text.substr(end + 1) : std::string();
    return outcome;
  }

  /// Runs a client with a flipped bit. Repeated with another module if the client compiled locally,
  /// without a greeting in time.
  Outcome run_confused(DaemonOp op, std::size_t bit, std::string& path,
                       const std::function<std::string()>& next_module,
                       const std::function<std::string()>& store) {
    Outcome outcome;
    proxy->flipped = 0;
    for (int attempt = 0; attempt < 10 && proxy->flipped == 0; ++attempt) {
      path = next_module();
      const std::string in = store();
      proxy->bit = bit;
      proxy->kind = static_cast<int>(op);
      outcome = run(path, in);
      proxy->kind = FlippingProxy::kNothing;
    }
    CHECK(proxy->flipped > 0);
    return outcome;
  }
};

constexpr auto kGreeting = static_cast<DaemonOp>(FlippingProxy::kGreeting);

}  // namespace

// fault 91
TEST_CASE_FIXTURE(
    Fixture,
    "a flipped bit in a frame of the daemon causes a counted fallback at most, and no wrong "
    "result") {
  struct Kind {
    std::string name;
    DaemonOp op;
    std::size_t step, bits;  ///< every step-th bit, up to so many
    const char* directives;
  };
  const Kind kinds[] = {
      {"greeting", kGreeting, 29, 290, ""},
      {"question", DaemonOp::question, 11, 150, ""},
      {"progress", DaemonOp::progress, 9, 40, "// fake: sleep 600\n"},
      {"entry", DaemonOp::object, 3, 32, ""},
  };
  int number = 0;
  for (const Kind& kind : kinds) {
    int tried = 0, counted = 0;
    for (std::size_t bit = 0; bit < kind.bits; bit += kind.step, ++tried) {
      CAPTURE(kind.name);
      CAPTURE(bit);
      std::string path;
      const Outcome strange = run_confused(
          kind.op, bit, path, [&] { return module(number++, kind.directives); },
          [] { return std::string("store"); });
      CAPTURE(strange.key);
      CHECK(strange.status == 0);
      CHECK((strange.word == "compiled" || strange.word == "hit"));
      counted += strange.fell_back() ? 1 : 0;
      // The key identifies request and files; a client without the proxy gets the same.
      CHECK(run(path, "alone").key == strange.key);
    }
    MESSAGE(kind.name << ": " << counted << " of " << tried << " fell back");
    if (kind.op == DaemonOp::question) {
      CHECK(counted == tried);  // no other question has the flipped path
    }
  }
}

// fault 91
TEST_CASE_FIXTURE(Fixture, "a flipped bit in the daemon's dependency sets causes a miss at most") {
  int number = 0;
  for (std::size_t bit = 3; bit < 1000; bit += 97) {
    CAPTURE(bit);
    std::string path;
    const Outcome strange = run_confused(
        DaemonOp::question, bit, path,
        [&] {
          const std::string made = module(number++);
          run(made, "store");
          scratch.write("tile.h", "another tile\n");
          run(made, "store");  // the daemon has two sets now, and asks which holds
          return module(number - 1);
        },
        [&] { return "other-" + std::to_string(number); });
    CAPTURE(strange.key);
    CHECK(strange.status == 0);
    CHECK((strange.word == "compiled" || strange.word == "hit"));
    CHECK(run(path, "store").key == strange.key);
  }
}

// fault 91
TEST_CASE_FIXTURE(
    Fixture, "a flipped bit in an entry of the daemon causes a fallback, and no cubin is used") {
  bool is_stored_before = false;
  SUBCASE("compiled for this client") {}
  SUBCASE("compiled before") { is_stored_before = true; }
  CAPTURE(is_stored_before);
  proxy->in_attachment = true;
  int number = 0;
  for (std::size_t bit = 5; bit < 30 * 1531; bit += 1531) {
    CAPTURE(bit);
    std::string path, store;
    const Outcome strange = run_confused(
        DaemonOp::object, bit, path,
        [&] {
          const std::string made = module(number++);
          if (is_stored_before) {
            run(made, "store");
          }
          return made;
        },
        [&] { return store = "other-" + std::to_string(number); });
    CHECK(strange.status == 0);
    CHECK(strange.word == "compiled");
    CHECK(strange.fell_back());
    CHECK(client_alone(path, "alone")->wait() == 0);
    CHECK(image_in(store, strange.key) == image_in("alone", strange.key));
  }
}
