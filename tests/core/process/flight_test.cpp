// SPDX-License-Identifier: Apache-2.0
#include "support/build_process.hpp"

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <vector>

using cukiln::testing::becomes_true;
using cukiln::testing::BuildProcess;
using cukiln::testing::read_all;
using Fixture = cukiln::testing::FlightFixture;

namespace {

bool waits(const BuildProcess& process) {
  return process.log().find("waiting for pid") != std::string::npos;
}

}  // namespace

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

TEST_CASE_FIXTURE(Fixture, "a process that waits for another's compile starts no worker") {
  const std::string path = source(wait_go);
  BuildProcess owner(scratch, path, 0);
  REQUIRE(begins_to_compile());
  BuildProcess waiter(scratch, path, 1, {"log"}, "/nowhere/cukiln-compile-worker");
  CHECK(becomes_true([&] { return waits(waiter); }));
  go();
  CHECK(owner.wait() == 0);
  CHECK(waiter.wait() == 0);
  CHECK(waiter.output().starts_with("hit "));
}

TEST_CASE_FIXTURE(
    Fixture, "a process that waits logs which process compiles, since when, and which kernel") {
  const std::string path = source(wait_go);
  BuildProcess owner(scratch, path, 0);
  REQUIRE(begins_to_compile());
  BuildProcess waiter(scratch, path, 1, {"log"});
  CHECK(becomes_true([&] { return waits(waiter); }));
  go();
  CHECK(owner.wait() == 0);
  CHECK(waiter.wait() == 0);
  CHECK(waiter.output().starts_with("hit "));
  CAPTURE(waiter.log());
  CHECK(waiter.log().find("pid ") != std::string::npos);
  CHECK(waiter.log().find("since ") != std::string::npos);
  CHECK(waiter.log().find("slow") != std::string::npos);
}

TEST_CASE_FIXTURE(
    Fixture,
    "fault 43: a header edited while it compiles: the result belongs to the bytes that were read") {
  const std::string header = scratch.write("tile.h", "one");
  const std::string path = source("// fake: include /cukiln/src/tile.h\n// fake: count " +
                                  (scratch / "read") + "\n" + wait_go);
  BuildProcess first(scratch, path, 0);
  REQUIRE(becomes_true([&] { return !read_all(scratch / "read").empty(); }));
  scratch.write("tile.h", "two");
  go();
  CHECK(first.wait() == 0);
  BuildProcess second(scratch, path, 1);
  CHECK(second.wait() == 0);
  CHECK(second.output().starts_with("compiled "));
  CHECK(second.output() != first.output());
  scratch.write("tile.h", "one");
  BuildProcess third(scratch, path, 2);
  CHECK(third.wait() == 0);
  CHECK(third.output().substr(third.output().find(' ')) ==
        first.output().substr(first.output().find(' ')));
  CHECK(third.output().starts_with("hit "));
}

TEST_CASE_FIXTURE(
    Fixture, "fault 49: a compiler that crashes is an error naming the kernel; nothing is stored") {
  for (const char* directive : {"// fake: segv", "// fake: abort"}) {
    BuildProcess process(scratch, source(directive), 0);
    const int status = process.wait();
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 1);
    CAPTURE(process.output());
    CHECK(process.output().starts_with("failed "));
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
    std::filesystem::remove(count_file);
    BuildProcess process(scratch, source(wait_go), round, {"exit=" + count_file});
    CHECK(process.ends_within());
    CHECK(compiles() == 1);
  }
}
