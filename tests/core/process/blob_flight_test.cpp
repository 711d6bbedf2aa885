// SPDX-License-Identifier: Apache-2.0
// Several processes miss one blob. One produces it, however that ends.
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>

#include "support/store_processes.hpp"
#include "support/wait.hpp"

namespace cukiln::testing {
namespace {

/// What a worker says after it has opened the store.
std::string first_word(Child& child) {
  std::string line = child.line();
  return line == "open" ? child.line() : line;
}

std::size_t lock_files(const ScratchFolder& folder) {
  std::size_t count = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder / "s/v6/flights")) {
    count += file.path().filename() == "toolchain.lock" ? 0 : 1;
  }
  return count;
}

std::vector<Child> start_producers(const ScratchFolder& folder, int count,
                                   const std::vector<std::string>& options) {
  std::vector<Child> children;
  for (int i = 0; i < count; ++i) {
    children.push_back(start_worker(folder / "s", "produce", options));
  }
  return children;
}

/// How long a process says that it waited before it produces beside another one, -1 if it does not.
int waited_ms(Child& child) {
  const std::string line = child.line(), prefix = "produces after ";
  return line.starts_with(prefix) ? std::stoi(line.substr(prefix.size())) : -1;
}

/// Whether another process that asks is still waiting after a while.
bool still_waits(Child& child) {
  CHECK(child.line() == "open");
  return child.line(std::chrono::milliseconds(200)).empty();
}

TEST_CASE("fault 246: of 24 processes that miss one blob one produces it") {
  const ScratchFolder folder;
  auto children = start_producers(folder, 24, {"barrier", "hold=300"});
  for (Child& child : children) {
    child.go();
  }
  std::map<std::string, int> said;
  for (Child& child : children) {
    ++said[first_word(child)];
    child.lines();
    CHECK(child.wait() == 0);
  }
  CHECK(said["produces alone"] == 1);
  CHECK(said["hit produced"] == 23);
  CHECK(lock_files(folder) == 0);
}

TEST_CASE("fault 247: a process killed while it produces a blob: one of those that wait goes on") {
  const ScratchFolder folder;
  Child owner = start_worker(folder / "s", "produce", {"end=never"});
  REQUIRE(first_word(owner) == "produces alone");
  auto waiting = start_producers(folder, 4, {"hold=200"});
  for (Child& child : waiting) {
    CHECK(still_waits(child));
  }
  owner.signal(SIGKILL);
  std::map<std::string, int> said;
  for (Child& child : waiting) {
    ++said[child.line()];
    child.lines();
  }
  CHECK(said["produces alone"] == 1);
  CHECK(said["hit produced"] == 3);
}

TEST_CASE("fault 247: the child of a killed process keeps no other process waiting for a blob") {
  const ScratchFolder folder;
  Child owner = start_worker(folder / "s", "produce", {"end=never", "fork"});
  REQUIRE(first_word(owner) == "produces alone");
  Child next = start_worker(folder / "s", "produce");
  CHECK(still_waits(next));
  owner.signal(SIGKILL);
  CHECK(next.line() == "produces alone");
}

TEST_CASE("fault 248: a process that is stopped, or never puts, delays others for the limit only") {
  const ScratchFolder folder;
  Child owner = start_worker(folder / "s", "produce", {"end=never"});
  REQUIRE(first_word(owner) == "produces alone");
  owner.signal(SIGSTOP);
  Child waits = start_worker(folder / "s", "produce", {"limit=4000", "end=drop"});
  CHECK(waits.line() == "open");
  const int limit_ms = waited_ms(waits);
  CHECK(limit_ms > 0);
  // The limit counts from the beginning of the lease: it is over for those who come now.
  Child comes_late = start_worker(folder / "s", "produce", {"limit=4000"});
  CHECK(comes_late.line() == "open");
  const int late_ms = waited_ms(comes_late);
  CHECK(late_ms >= 0);
  CHECK(late_ms < limit_ms);
  CHECK(comes_late.line() == "stored");
  owner.signal(SIGCONT);
}

TEST_CASE("fault 249: those that wait for one that gives up do not wait for each other") {
  const ScratchFolder folder;
  Child owner = start_worker(folder / "s", "produce", {"held", "end=drop"});
  REQUIRE(first_word(owner) == "produces alone");
  auto waiting = start_producers(folder, 4, {"end=never"});
  for (Child& child : waiting) {
    CHECK(still_waits(child));
  }
  owner.go();
  for (Child& child : waiting) {
    CHECK(waited_ms(child) >= 0);  // all: each of the others never ends
  }
  Child later = start_worker(folder / "s", "produce");
  CHECK(first_word(later) == "produces alone");
  CHECK(later.line() == "stored");
  CHECK(lock_files(folder) == 0);
}

TEST_CASE("fault 250: where locks do not work a blob is produced all the same") {
  if (kSanitized) {
    return;
  }
  const ScratchFolder folder;
  run_worker(folder / "s", "open");
  Child owner = start_worker(folder / "s", "produce", {"end=never"});
  REQUIRE(first_word(owner) == "produces alone");
  Child other = start_worker(folder / "s", "produce", {}, faults("flock", "/flights/", ENOLCK));
  CHECK(other.line() == "open");
  CHECK(waited_ms(other) >= 0);
  CHECK(other.line() == "stored");
  Child third = start_worker(folder / "s", "produce");
  CHECK(first_word(third) == "hit produced");
}

}  // namespace
}  // namespace cukiln::testing
