// SPDX-License-Identifier: Apache-2.0
#include "support/build_process.hpp"

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <vector>

using cukiln::testing::becomes_true;
using cukiln::testing::BuildProcess;
using Fixture = cukiln::testing::FlightFixture;

TEST_CASE_FIXTURE(Fixture,
                  "fault 24: 64 processes start cold with one request: one compile, no error") {
  const std::string path = source("// fake: sleep 300");  // the others start meanwhile
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
  const std::string path = source(wait_go);
  BuildProcess owner(scratch, path, 0);
  REQUIRE(begins_to_compile());
  owner.kill(SIGKILL);
  owner.wait();
  go();
  BuildProcess next(scratch, path, 1);
  CHECK(next.ends_within(std::chrono::seconds(30)));
  CHECK(next.output().starts_with("compiled "));
  CHECK(compiles() == 2);
}

TEST_CASE_FIXTURE(Fixture,
                  "fault 1b: the child of an owner that was killed blocks no other process") {
  const std::string path = source(wait_go);
  BuildProcess owner(scratch, path, 0, {"fork=" + count_file});
  REQUIRE(begins_to_compile());
  REQUIRE(becomes_true([&] { return owner.log().find("forked") != std::string::npos; }));
  owner.kill(SIGKILL);
  owner.wait();
  go();
  BuildProcess next(scratch, path, 1);
  CHECK(next.ends_within(std::chrono::seconds(30)));  // the child lives for a minute
  CHECK(next.output().starts_with("compiled "));
}

TEST_CASE_FIXTURE(Fixture,
                  "an owner that is stopped, and owes its worker an answer, loses the lock") {
  scratch.write("tile.h", "one");
  const std::string path = source(wait_go + "// fake: include /cukiln/src/tile.h");
  BuildProcess owner(scratch, path, 0);
  REQUIRE(begins_to_compile());
  owner.kill(SIGSTOP);
  go();
  BuildProcess next(scratch, path, 1);
  CHECK(next.ends_within());
  CHECK(next.output().starts_with("compiled "));
  owner.kill(SIGCONT);
  CHECK(owner.wait() == 0);  // its result is equal
  CHECK(owner.output() == next.output());
}

TEST_CASE_FIXTURE(Fixture,
                  "a process that waits for another's compile starts no worker, and logs which "
                  "process compiles, since when, and which kernel") {
  const std::string path = source(wait_go);
  BuildProcess owner(scratch, path, 0);
  REQUIRE(begins_to_compile());
  BuildProcess waiter(scratch, path, 1, {"log"}, "/nowhere/cukiln-compile-worker");
  CHECK(becomes_true([&] { return waiter.log().find("waiting for pid ") != std::string::npos; }));
  go();
  CHECK(owner.wait() == 0);
  CHECK(waiter.wait() == 0);
  CHECK(waiter.output().starts_with("hit "));
  CAPTURE(waiter.log());
  CHECK(waiter.log().find("since ") != std::string::npos);
  CHECK(waiter.log().find("slow") != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture,
                  "fault 80: a process that exits while a thread compiles ends without a crash") {
  for (int round = 0; round < 5; ++round) {
    std::filesystem::remove(count_file);
    BuildProcess process(scratch, source(wait_go), round, {"exit=" + count_file});
    CHECK(process.ends_within());
    CHECK(compiles() == 1);
  }
}
