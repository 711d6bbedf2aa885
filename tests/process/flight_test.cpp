// SPDX-License-Identifier: Apache-2.0
#include "support/build_process.hpp"

#include <chrono>
#include <map>
#include <memory>
#include <thread>
#include <vector>

using cukiln::testing::becomes_true;
using cukiln::testing::BuildProcess;
using SteadyClock = std::chrono::steady_clock;
using Fixture = cukiln::testing::FlightFixture;

TEST_CASE_FIXTURE(Fixture,
                  "fault 24: 64 processes start cold with one request: one compile, no error") {
  const std::string path = source("// fake: sleep 300");
  std::vector<std::unique_ptr<BuildProcess>> processes;
  for (int i = 0; i < 64; ++i) {
    processes.push_back(std::make_unique<BuildProcess>(scratch, path, i));
  }
  std::map<std::string, int> outcomes;
  for (const auto& process : processes) {
    CHECK(process->wait() == 0);
    const std::string line = process->output();
    ++outcomes[line.substr(0, line.find(' '))];
  }
  CHECK(compiles() == 1);
  CHECK(outcomes["compiled"] == 1);
  CHECK(outcomes["hit"] == 63);
}

TEST_CASE_FIXTURE(Fixture, "fault 1: an owner killed in mid-compile leaves no entry and no lock") {
  const std::string path = source("// fake: sleep 1500");
  BuildProcess owner(scratch, path, 0);
  REQUIRE(becomes_true([&] { return compiles() == 1; }, std::chrono::seconds(20)));
  owner.kill(SIGKILL);
  owner.wait();
  const auto start = SteadyClock::now();
  BuildProcess next(scratch, path, 1);
  CHECK(next.wait() == 0);
  CHECK(next.output().rfind("compiled ", 0) == 0);
  CHECK(compiles() == 2);
  CHECK(SteadyClock::now() - start < std::chrono::seconds(30));
}

TEST_CASE_FIXTURE(Fixture,
                  "fault 1b: an owner that had forked is killed: its child blocks nobody") {
  const std::string path = source("// fake: sleep 2500");
  BuildProcess owner(scratch, path, 0, {"fork"});
  REQUIRE(becomes_true([&] { return compiles() == 1; }, std::chrono::seconds(20)));
  std::this_thread::sleep_for(std::chrono::milliseconds(800));  // until it has forked
  owner.kill(SIGKILL);
  owner.wait();
  const auto start = SteadyClock::now();
  BuildProcess next(scratch, path, 1);
  CHECK(next.wait() == 0);
  CHECK(next.output().rfind("compiled ", 0) == 0);
  CHECK(SteadyClock::now() - start < std::chrono::seconds(30));
}

TEST_CASE_FIXTURE(Fixture,
                  "an owner that is stopped, and owes its worker an answer, loses the flight") {
  scratch.write("tile.h", "one");
  const std::string path = source("// fake: sleep 300\n// fake: include /cukiln/src/tile.h");
  BuildProcess owner(scratch, path, 0);
  REQUIRE(becomes_true([&] { return compiles() == 1; }, std::chrono::seconds(20)));
  owner.kill(SIGSTOP);
  BuildProcess next(scratch, path, 1);
  CHECK(next.ends_within(std::chrono::seconds(30)));
  CHECK(next.output().rfind("compiled ", 0) == 0);
  owner.kill(SIGCONT);
  CHECK(owner.wait() == 0);  // and its result is as good
  CHECK(owner.output() == next.output());
}

TEST_CASE_FIXTURE(Fixture, "a process that waits for another's flight starts no worker") {
  const std::string path = source("// fake: sleep 1500");
  BuildProcess owner(scratch, path, 0);
  REQUIRE(becomes_true([&] { return compiles() == 1; }, std::chrono::seconds(20)));
  BuildProcess waiter(scratch, path, 1, {}, "/nowhere/cukiln-compile-worker");
  CHECK(owner.wait() == 0);
  CHECK(waiter.wait() == 0);
  CHECK(waiter.output().rfind("hit ", 0) == 0);
}

TEST_CASE_FIXTURE(Fixture, "a waiter says who owns the flight, since when, and for which kernel") {
  const std::string path = source("// fake: sleep 1500");
  BuildProcess owner(scratch, path, 0);
  REQUIRE(becomes_true([&] { return compiles() == 1; }, std::chrono::seconds(20)));
  BuildProcess waiter(scratch, path, 1, {"log"});
  CHECK(owner.wait() == 0);
  CHECK(waiter.wait() == 0);
  CHECK(waiter.output().rfind("hit ", 0) == 0);
  CAPTURE(waiter.log());
  CHECK(waiter.log().find("pid ") != std::string::npos);
  CHECK(waiter.log().find("since ") != std::string::npos);
  CHECK(waiter.log().find("slow") != std::string::npos);
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 43: a header edited while it compiles: the result belongs to the bytes that were read") {
  const std::string header = scratch.write("tile.h", "one");
  const std::string path = source("// fake: include /cukiln/src/tile.h\n// fake: sleep 1200");
  BuildProcess first(scratch, path, 0);
  REQUIRE(becomes_true([&] { return compiles() == 1; }, std::chrono::seconds(20)));
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  scratch.write("tile.h", "two");
  CHECK(first.wait() == 0);
  BuildProcess second(scratch, path, 1);
  CHECK(second.wait() == 0);
  CHECK(second.output().rfind("compiled ", 0) == 0);
  CHECK(second.output() != first.output());
  scratch.write("tile.h", "one");
  BuildProcess third(scratch, path, 2);
  CHECK(third.wait() == 0);
  CHECK(third.output().substr(third.output().find(' ')) ==
        first.output().substr(first.output().find(' ')));
  CHECK(third.output().rfind("hit ", 0) == 0);
}

TEST_CASE_FIXTURE(
    Fixture, "fault 49: a compiler that crashes is an error naming the kernel; nothing is stored") {
  for (const char* directive : {"// fake: segv", "// fake: abort"}) {
    BuildProcess process(scratch, source(directive), 0);
    const int status = process.wait();
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 1);
    CAPTURE(process.output());
    CHECK(process.output().rfind("failed ", 0) == 0);
    CHECK(process.output().find("slow") != std::string::npos);
  }
  BuildProcess fine(scratch, source("// fine now"), 1);
  CHECK(fine.wait() == 0);
}

TEST_CASE_FIXTURE(Fixture,
                  "fault 50: success with an empty or garbage image is an error, not an entry") {
  for (const char* directive : {"// fake: empty", "// fake: garbage", "// fake: sm 80"}) {
    CAPTURE(directive);
    BuildProcess process(scratch, source(directive), 0);
    CHECK(WEXITSTATUS(process.wait()) == 1);
    BuildProcess again(scratch, source(directive), 1);
    CHECK(WEXITSTATUS(again.wait()) == 1);
  }
  CHECK(compiles() == 6);
}

TEST_CASE_FIXTURE(Fixture,
                  "fault 80: a process that exits while a thread compiles ends without a crash") {
  for (int round = 0; round < 5; ++round) {
    BuildProcess process(scratch, source("// fake: sleep 1000"), round, {"exit-while-working"});
    const int status = process.wait();
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}
