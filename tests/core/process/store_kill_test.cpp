// SPDX-License-Identifier: Apache-2.0
// Several processes use one store, and some are killed or stopped. The store must then have every
// entry that a worker reported as stored, and return nothing but what was put.
#include <fcntl.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <random>
#include <thread>

#include "core/base/file.hpp"
#include "support/store_processes.hpp"

namespace cukiln::testing {
namespace {

constexpr std::size_t kBytes = 4000;

void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

/// Starts three writers in each round and kills them at random times. Returns the number of entries
/// checked.
std::size_t kill_writers(const std::string& directory, int rounds, int checkpoint_bytes) {
  std::mt19937 random(static_cast<unsigned>(checkpoint_bytes));
  std::vector<std::uint64_t> numbers;
  int opened = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Child> writers;
    for (int writer = 0; writer < 3; ++writer) {
      writers.push_back(start_worker(
          directory, "put",
          {"first=" + std::to_string(1'000'000 * (round * 3 + writer + 1)),
           "bytes=" + std::to_string(kBytes), "checkpoint=" + std::to_string(checkpoint_bytes)}));
    }
    // After a kill the WAL is replayed. On a busy disk a writer may time out in that; the others
    // continue.
    const std::string first_line = writers.front().line();
    CAPTURE(first_line);
    REQUIRE_FALSE(first_line.empty());
    opened += starts_with(first_line, "open") ? 1 : 0;
    sleep_ms(20 + static_cast<int>(random() % 120));
    for (const Child& writer : writers) {
      writer.signal(SIGKILL);
    }
    for (Child& writer : writers) {
      const auto acked = acknowledged(writer.lines());
      numbers.insert(numbers.end(), acked.begin(), acked.end());
      CHECK(writer.wait() == -SIGKILL);
    }
  }
  CHECK(opened > rounds / 2);
  CHECK(count_intact(directory, numbers, kBytes) == numbers.size());
  return numbers.size();
}

TEST_CASE("fault 2: kill -9 of writers loses nothing that was acknowledged") {
  const ScratchFolder folder;
  CHECK(kill_writers(folder / "s", 20, 4 << 20) > 0);
}

TEST_CASE(
    "fault 3: kill -9 of writers that checkpoint at every put loses nothing that was "
    "acknowledged") {
  const ScratchFolder folder;
  CHECK(kill_writers(folder / "s", 20, 1) > 0);
}

TEST_CASE("fault 2: kill -9 while a store is created leaves one that opens") {
  const ScratchFolder folder;
  std::mt19937 random(1);
  for (int round = 0; round < 15; ++round) {
    const std::string directory = folder / ("s" + std::to_string(round % 5));
    Child child = start_worker(directory, "put", {"count=1"});
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
    child.signal(SIGKILL);
    child.wait();
  }
  for (int i = 0; i < 5; ++i) {
    const auto lines =
        run_worker(folder / ("s" + std::to_string(i)), "put", {"first=10", "count=2"});
    CHECK(count_lines(lines, "stored") == 2);
  }
}

TEST_CASE("fault 24: 64 processes that start cold put every entry once, without an error") {
  const ScratchFolder folder;
  std::vector<Child> all;
  for (int i = 0; i < 64; ++i) {
    all.push_back(
        start_worker(folder / "s", "put", {"barrier", "count=3", "bytes=20000", "wait=20000"}));
  }
  for (Child& one : all) {
    one.go();
  }
  std::size_t stored = 0, there = 0, errors = 0;
  for (Child& one : all) {
    const auto lines = one.lines();
    CHECK_MESSAGE(lines.front() == "open", lines.front());
    stored += count_lines(lines, " stored");
    there += count_lines(lines, " already_there");
    errors += count_lines(lines, " error");
    CHECK(one.wait() == 0);
  }
  CHECK(stored == 3);
  CHECK(there == 64 * 3 - 3);
  CHECK(errors == 0);
  CHECK(count_intact(folder / "s", {0, 1, 2}, 20'000) == 3);
  CHECK_FALSE(exists(folder / "s/v6/gen-0002"));
}

TEST_CASE("fault 25: 64 concurrent writers never see a busy database") {
  const ScratchFolder folder;
  std::vector<Child> all;
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < 64; ++i) {
    all.push_back(start_worker(
        folder / "s", "put",
        {"barrier", "first=" + std::to_string(100 * i), "count=4", "bytes=4000", "wait=120000"}));
    for (std::uint64_t n = 0; n < 4; ++n) {
      numbers.push_back(100 * i + n);
    }
  }
  for (Child& one : all) {
    one.go();
  }
  for (Child& one : all) {
    CHECK(count_lines(one.lines(), " stored") == 4);
  }
  CHECK(count_intact(folder / "s", numbers, 4000) == numbers.size());
}

TEST_CASE("fault 26: a writer stopped with the lock blocks no reader, and other writers time out") {
  const ScratchFolder folder;
  run_worker(folder / "s", "put", {"count=3"});
  Child holder = start_worker(folder / "s", "hold");
  CHECK(holder.line() == "open");
  CHECK(holder.line() == "locked");
  holder.signal(SIGSTOP);

  const auto reads = run_worker(folder / "s", "get", {"count=3"});
  CHECK(count_lines(reads, "hit") == 3);
  const auto writes = run_worker(folder / "s", "put", {"first=10", "count=3", "wait=200"});
  CHECK(count_lines(writes, "error timeout") == 3);

  holder.signal(SIGKILL);
  holder.wait();
  CHECK(count_lines(run_worker(folder / "s", "put", {"first=10", "count=3"}), " stored") == 3);
}

/// Locks a byte of a store's WAL index as a process that was stopped would.
UniqueFd lock_wal_index_byte(const std::string& store, off_t byte) {
  UniqueFd file(::open((store + "/v6/gen-0001/store.db-shm").c_str(), O_RDWR | O_CLOEXEC));
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = byte;
  range.l_len = 1;
  REQUIRE(::fcntl(file.get(), F_SETLK, &range) == 0);
  return file;
}

TEST_CASE("fault 26: a process stopped while it moves a read mark delays no reader for long") {
  const ScratchFolder folder;
  run_worker(folder / "s", "put", {"count=3"});
  Child other = start_worker(folder / "s", "hold", {"first=10", "count=1"});
  CHECK(other.line() == "open");
  CHECK(other.line() == "put 10 stored");  // it keeps the WAL, and the index, as they are now
  run_worker(folder / "s", "open");        // moves the first mark to the end of the WAL
  const UniqueFd moved = lock_wal_index_byte(folder / "s", 124);  // the mark that readers share

  const auto reads = run_worker(folder / "s", "get", {"count=3"});
  INFO("the reader said: ", fmt::format("{}", fmt::join(reads, "; ")));
  CHECK(count_lines(reads, "bypass") == 1);
  // SQLite's own ten seconds end with "locking protocol".
  CHECK(count_lines(reads, "database is locked") == 1);
  CHECK(count_lines(reads, "miss") == 3);
}

TEST_CASE("fault 26: writers stopped at any point block no reader") {
  const ScratchFolder folder;
  run_worker(folder / "s", "put", {"count=3"});
  std::mt19937 random(3);
  int delayed = 0;
  for (int round = 0; round < 8; ++round) {
    Child writer = start_worker(
        folder / "s", "put", {"first=" + std::to_string(1000 * (round + 1)), "checkpoint=65536"});
    CHECK(writer.line() == "open");
    sleep_ms(static_cast<int>(random() % 60));
    writer.signal(SIGSTOP);
    const auto reads = run_worker(folder / "s", "get", {"count=3", "wait=100"});
    INFO("the reader said: ", fmt::format("{}", fmt::join(reads, "; ")));
    // A writer moves a read mark for some microseconds in each transaction.
    const bool was_moving_a_mark = count_lines(reads, "database is locked") == 1;
    CHECK(count_lines(reads, was_moving_a_mark ? "miss" : "hit") == 3);
    delayed += was_moving_a_mark ? 1 : 0;
    writer.signal(SIGKILL);
  }
  CHECK(delayed <= 1);
  CHECK(count_intact(folder / "s", {0, 1, 2}, 20'000) == 3);
}

TEST_CASE("fault 76: the next collection completes one that was killed") {
  const ScratchFolder folder;
  std::vector<std::uint64_t> numbers(400);
  for (std::uint64_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = i;
  }
  run_worker(folder / "s", "put", {"count=400", "bytes=20000"});
  std::mt19937 random(4);
  for (int round = 0; round < 6; ++round) {
    Child collector = start_worker(folder / "s", "gc", {"max=1000000"});
    CHECK(collector.line() == "open");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 15'000));
    collector.signal(SIGKILL);
    collector.wait();
    count_intact(folder / "s", numbers, 20'000);
  }
  const auto lines = run_worker(folder / "s", "gc", {"max=1000000"});
  CHECK(count_lines(lines, "done") == 1);
  const std::size_t left = count_intact(folder / "s", numbers, 20'000);
  CHECK(left > 20);
  CHECK(left < 60);
}

}  // namespace
}  // namespace cukiln::testing
