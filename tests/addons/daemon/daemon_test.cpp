// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "core/store/tiered_store.hpp"
#include "support/daemon_process.hpp"

using cukiln::testing::becomes_true;
using cukiln::testing::BuildProcess;
using cukiln::testing::Child;
using cukiln::testing::first_word;
using Fixture = cukiln::testing::DaemonFixture;
using SteadyClock = std::chrono::steady_clock;
using std::chrono::seconds;

namespace {

/// The daemon's own store, of a host that compiles by the daemon only: one without a greeting in
/// time would not count.
cukiln::Result<cukiln::Store> open_store(const Fixture& fixture) {
  cukiln::StoreOptions options;
  options.directory = fixture.scratch / "store";
  options.system_directory.clear();
  options.daemon = cukiln::DaemonUse::require;
  options.daemon_socket = fixture.socket;
  return cukiln::Store::open(options);
}

cukiln::Result<cukiln::KernelLoader> make_loader(cukiln::Store& store) {
  cukiln::LoaderOptions options;
  options.nvrtc_library = cukiln::testing::bin() + "/libnvrtc_fake.so";
  options.worker = cukiln::testing::bin() + "/cukiln-compile-worker";
  return cukiln::KernelLoader::create(store, options);
}

cukiln::ModuleSpec spec_of(const std::string& path) {
  cukiln::ModuleSpec spec;
  spec.sources = {cukiln::SourceFile{path}};
  spec.targets = {{90, 'a'}};
  return spec;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "of 64 processes with one cold request the daemon compiles once, and one of them "
                  "gets the result as compiled") {
  const auto daemon = start();
  const std::string path = source("// fake: sleep 300");
  std::vector<std::unique_ptr<BuildProcess>> processes;
  for (int i = 0; i < 64; ++i) {
    processes.push_back(client(path));
  }
  std::map<std::string, int> outcomes;
  for (const auto& process : processes) {
    CHECK(process->wait() == 0);
    ++outcomes[first_word(process->output())];
  }
  CHECK(compiles() == 1);
  CHECK(outcomes["compiled"] == 1);
  CHECK(outcomes["hit"] == 63);
  CHECK(counter("connections_accepted") >
        0);  // a client without a greeting within 50 ms compiles locally
}

TEST_CASE_FIXTURE(Fixture,
                  "an entry of a daemon with another store is stored in the client's store too") {
  auto daemon = start();
  const std::string path = source("");
  CHECK(client(path, {}, "other")->wait() == 0);
  CHECK(counter("compiles_ok") == 1);
  daemon->signal(SIGTERM);
  CHECK(daemon->wait() == 0);
  auto later = client(path, {}, "other");
  CHECK(later->wait() == 0);
  CHECK(first_word(later->output()) == "hit");
  CHECK(compiles() == 1);
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 353: a process that may start no other compiles in the daemon, and without "
    "one the error says so") {
  const std::string path = source("");
  auto alone = client(path, {"no-processes"});
  CHECK(alone->wait() != 0);
  CHECK(
      alone->output().find("clone: Operation not permitted (1); expected a process that may start "
                           "others. For one that may not, start cukilnd") != std::string::npos);
  probe_nvrtc();  // such a process cannot
  const auto daemon = start();
  auto host = client(path, {"no-processes"});
  host->wait();
  CAPTURE(host->output());
  CHECK(first_word(host->output()) == "compiled");
  CHECK(compiles() == 1);
  CHECK(counter("compiles_ok") == 1);
  auto later = client(path, {"no-processes"});
  later->wait();
  CHECK(first_word(later->output()) == "hit");
}

TEST_CASE_FIXTURE(Fixture, "a client of another store hits the daemon's entry") {
  const auto daemon = start();
  const std::string path = source("");
  CHECK(client(path)->wait() == 0);
  auto other = client(path, {"require-daemon"}, "other");
  CHECK(other->wait() == 0);
  CHECK(first_word(other->output()) == "hit");
  CHECK(compiles() == 1);
  CHECK(counter("entries_sent") == 1);
}

TEST_CASE_FIXTURE(Fixture,
                  "a client of another store gets the entry of the one recorded set that holds") {
  const auto daemon = start();
  const std::string path = source("// fake: include /cukiln/src/tile.h");
  const auto outcome = [&](const std::string& store) {
    auto process = client(path, {"require-daemon"}, store);
    CHECK(process->wait() == 0);
    return first_word(process->output());
  };
  scratch.write("tile.h", "one");
  CHECK(outcome("store") == "compiled");
  CHECK(outcome("other") == "hit");
  CHECK(counter("entries_sent") == 1);
  scratch.write("tile.h", "version two");
  CHECK(outcome("other") == "compiled");  // the entry of the one set was sent, and does not hold
  const std::uint64_t sent = counter("entries_sent");
  CHECK(outcome("another") == "hit");  // the daemon asked which of two sets holds
  scratch.write("tile.h", "one");
  CHECK(outcome("another") == "hit");
  scratch.write("tile.h", "the third one");
  CHECK(outcome("another") == "compiled");
  CHECK(counter("entries_sent") == sent + 2);
  CHECK(compiles() == 3);
}

TEST_CASE_FIXTURE(Fixture,
                  "a miss has one lookup before the lock and one under it, and the daemon of the "
                  "same store is asked for the compile only") {
  const auto daemon = start();
  const std::string path = source("// fake: include /cukiln/src/tile.h");
  auto store = open_store(*this);
  REQUIRE(store);
  auto loader = make_loader(*store);
  REQUIRE(loader);
  const cukiln::ModuleSpec spec = spec_of(path);
  for (std::uint64_t misses : {1, 2}) {  // never seen; an edited header
    scratch.write("tile.h", "version " + std::to_string(misses));
    const auto reports = loader->compile(spec);
    REQUIRE(reports);
    CHECK(reports->front().outcome == cukiln::Outcome::compiled);
    CHECK(loader->stats().misses == misses);
    CHECK(cukiln::TieredStore::of(*store).stats().misses == 2 * misses);
    CHECK(counter("compile_requests") == misses);
  }
  CHECK(counter("lookup_requests") == 0);
}

TEST_CASE_FIXTURE(Fixture,
                  "fault 358: the hits of a running process are counted once it is sealed") {
  const auto daemon = start();
  const std::string path = source("");
  CHECK(client(path)->wait() == 0);
  auto store = open_store(*this);
  REQUIRE(store);
  auto loader = make_loader(*store);
  REQUIRE(loader);
  const cukiln::ModuleSpec spec = spec_of(path);
  const auto reports = loader->compile(spec);
  REQUIRE(reports);
  CHECK(reports->front().outcome == cukiln::Outcome::hit);
  const auto hits = [&] {
    const auto counters = cukiln::TieredStore::of(*store).counters();
    return counters && counters->contains("hits") ? counters->at("hits") : 0;
  };
  CHECK(hits() == 0);
  loader->seal();
  CHECK(becomes_true([&] { return hits() == 1; }, seconds(20)));  // written by the daemon
  CHECK(counter("connections_accepted") > 0);
}

TEST_CASE_FIXTURE(Fixture,
                  "headers come from the client: each of two gets the result of its own files") {
  const auto daemon = start();
  scratch.write("a/tile.h", "one");
  scratch.write("b/tile.h", "two");
  const std::string text = "// fake: count " + count_file +
                           "\n// fake: include /cukiln/src/tile.h\n// fake: sleep 400\n";
  const std::string a = scratch.write("a/k.cu", text);
  const std::string b = scratch.write("b/k.cu", text);
  auto first = client(a);
  REQUIRE(becomes_true([&] { return compiles() == 1; }, seconds(20)));
  auto second = client(b);  // waits for the first, whose dependency set does not hold for its files
  auto third = client(a);
  CHECK(first->wait() == 0);
  CHECK(second->wait() == 0);
  CHECK(third->wait() == 0);
  CHECK(first_word(first->output()) == "compiled");
  CHECK(first_word(second->output()) == "compiled");
  CHECK(first_word(third->output()) == "hit");
  CHECK(first->output().substr(9) != second->output().substr(9));
  CHECK(compiles() == 2);
}

TEST_CASE_FIXTURE(Fixture, "a client's header that spells __TIME__ is compiled each time") {
  const auto daemon = start();
  scratch.write("tile.h", "const char* when = __TI\\\nME__;\n");
  const std::string path = source("// fake: include /cukiln/src/tile.h");
  for (int i = 0; i < 2; ++i) {
    auto process = client(path);
    CHECK(process->wait() == 0);
    CHECK(first_word(process->output()) == "compiled");
  }
  CHECK(counter("compiles_ok") == 2);
}

TEST_CASE_FIXTURE(Fixture, "an error names the client's own files") {
  const auto daemon = start();
  const std::string path = source("// fake: error /cukiln/src/slow.cu(1): error: no");
  auto failing = client(path);
  CHECK(failing->wait() != 0);
  CAPTURE(failing->output());
  CHECK(failing->output().find("slow does not compile") != std::string::npos);
  CHECK(failing->output().find("/cukiln/") == std::string::npos);
  CHECK(counter("compiles_failed") == 1);
}

// fault 378
TEST_CASE_FIXTURE(
    Fixture, "a joined compile that failed decides nothing: each client compiles its own files") {
  const auto daemon = start();
  const std::string text = "// fake: count " + count_file +
                           "\n// fake: sleep 800\n// fake: include /cukiln/src/tile.h\n";
  scratch.write("b/tile.h", "two");
  scratch.write("a/tile.h", "one");
  std::filesystem::resize_file(scratch / "a/tile.h", std::uintmax_t{8} << 30);  // unreadable
  auto first = client(scratch.write("a/k.cu", text));
  REQUIRE(becomes_true([&] { return compiles() == 1; }, seconds(20)));
  auto second = client(scratch.write("b/k.cu", text), {"counts"});
  REQUIRE(becomes_true([&] { return counter("coalesced") == 1; }, seconds(10)));
  CHECK(first->wait() != 0);
  CAPTURE(second->output());
  CHECK(second->wait() == 0);
  CHECK(first_word(second->output()) == "compiled");
  CHECK(second->output().find("declined 0") == std::string::npos);  // counted
}

TEST_CASE_FIXTURE(Fixture, "a compile whose questions are answered finishes without its client") {
  const auto daemon = start();
  const std::string path = source("// fake: sleep 700");
  auto first = compiling_client(path);
  first->kill(SIGKILL);
  first->wait();
  CHECK(becomes_true([&] { return counter("orphans_finished") == 1; }, seconds(10)));
  auto next = client(path);
  CHECK(next->wait() == 0);
  CHECK(first_word(next->output()) == "hit");
  CHECK(compiles() == 1);
}

TEST_CASE_FIXTURE(
    Fixture, "a compile whose client leaves before the last answer restarts for the next client") {
  const auto daemon = start();
  scratch.write("tile.h", "one");
  const std::string path = source("// fake: sleep 2000\n// fake: include /cukiln/src/tile.h");
  auto first = compiling_client(path);
  auto second = client(path);
  REQUIRE(becomes_true([&] { return counter("coalesced") == 1; }, seconds(10)));
  first->kill(SIGKILL);
  first->wait();
  CHECK(second->wait() == 0);
  CHECK(first_word(second->output()) == "compiled");
  CHECK(compiles() == 2);
  CHECK(counter("restarted") == 1);
}

TEST_CASE_FIXTURE(Fixture, "fault 4: when the daemon is killed its waiters compile once") {
  auto daemon = start();
  const std::string path = source("// fake: sleep 600");
  std::vector<std::unique_ptr<BuildProcess>> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.push_back(client(path));
  }
  REQUIRE(becomes_true([&] { return counter("coalesced") == 3 && compiles() == 1; }, seconds(20)));
  daemon->signal(SIGKILL);
  daemon->wait();
  std::map<std::string, int> outcomes;
  for (const auto& waiter : waiters) {
    CHECK(waiter->wait() == 0);
    ++outcomes[first_word(waiter->output())];
  }
  CHECK(outcomes["compiled"] == 1);
  CHECK(outcomes["hit"] == 3);
  CHECK(compiles() == 2);
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 49: the crash of a compiler is the client's error and is remembered, and the "
    "daemon continues") {
  const auto daemon = start();
  const std::string path = source("// fake: segv");
  for (int i = 0; i < 2; ++i) {
    auto failing = client(path);
    CHECK(failing->wait() != 0);
    CHECK(failing->output().find("crashed") != std::string::npos);
  }
  CHECK(compiles() >= 3);  // the daemon's, and each client's own: a crash may not be due to a file
  CHECK(becomes_true(      // for a second, then for two, …
      [&] { return client(path)->wait() != 0 && counter("remembered_failures") > 0; },
      seconds(30)));
  CHECK(client(scratch.write("fine.cu", "// fine\n"))->wait() == 0);
}

TEST_CASE_FIXTURE(Fixture, "fault 55: the socket of a dead daemon is replaced") {
  auto dead = start();
  dead->signal(SIGKILL);
  dead->wait();
  CHECK(std::filesystem::exists(socket));
  CHECK_FALSE(state());
  const auto daemon = start();
  CHECK(client(source(""))->wait() == 0);
  CHECK(counter("compiles_ok") == 1);
}

TEST_CASE_FIXTURE(Fixture, "fault 56: a second daemon reports the first and ends") {
  const auto daemon = start();
  const auto before = state();
  REQUIRE(before);
  Child second(
      {cukiln::testing::bin() + "/cukilnd", "--store", scratch / "store", "--socket", socket});
  CHECK(second.wait() == 0);
  const auto after = state();
  REQUIRE(after);
  CHECK(after->process == before->process);
}

TEST_CASE_FIXTURE(
    Fixture, "fault 57: a daemon that hangs in a compile delays its clients by one heartbeat") {
  auto daemon = start();
  const std::string path = source("// fake: sleep 1500");
  auto waiting = compiling_client(path, {"log"});
  daemon->signal(SIGSTOP);
  CHECK(waiting->wait() == 0);
  CAPTURE(waiting->log());
  CHECK(waiting->log().find("sent nothing for 2000 ms") != std::string::npos);
  CHECK(client(scratch.write("other.cu", "// other\n"))->wait() == 0);
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 57: the worker of a hung daemon releases its lock: the next client compiles "
    "before any deadline") {
  auto daemon = start();
  const std::string path = source("// fake: sleep 400");
  auto first = compiling_client(path);
  daemon->signal(SIGSTOP);
  first->kill(SIGKILL);
  first->wait();
  auto next = client(path, {"log"});
  CHECK(next->ends_within(seconds(30)));
  CHECK(first_word(next->output()) == "compiled");
  CHECK(next->log().find("waiting for pid") != std::string::npos);
  CHECK(compiles() == 2);
  daemon->signal(SIGCONT);
  CHECK(becomes_true([&] { return counter("orphans_finished") == 1; }, seconds(20)));
  auto later = client(path);
  CHECK(later->wait() == 0);
  CHECK(first_word(later->output()) == "hit");
  CHECK(compiles() == 2);
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 67: after SIGTERM running compiles finish and their clients are served, and new "
    "clients compile locally") {
  auto daemon = start({"--jobs", "2"});
  const std::string path = source("// fake: sleep 900");
  auto running = compiling_client(path);
  daemon->signal(SIGTERM);
  REQUIRE(becomes_true([&] { return !state(); }, seconds(20)));  // it rejects connections
  auto late = client(scratch.write("late.cu", "// late\n"));
  CHECK(late->wait() == 0);
  CHECK(first_word(late->output()) == "compiled");
  CHECK(running->wait() == 0);
  CHECK(first_word(running->output()) == "compiled");
  CHECK(daemon->wait() == 0);
  CHECK(compiles() == 1);
  CHECK_FALSE(std::filesystem::exists(socket));
}
