// SPDX-License-Identifier: Apache-2.0
// A process that forks while it has a store open.
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "core/store/open_sqlite_store.hpp"
#include "core/store/tiered_store.hpp"

namespace cukiln::testing {
namespace {

/// Runs `body` in a forked child. True if it returned true.
template <class Body>
bool in_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // a deadlock ends as a failure
    ::_exit(body() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool works(ObjectTier& store, std::uint64_t old_entry, std::uint64_t new_entry) {
  const auto found = store.get(make_entry(old_entry).key);
  return found && *found && store.put(make_entry(new_entry)).has_value() &&
         store.get(make_entry(new_entry).key)->has_value();
}

bool is_healthy(SqliteStore& store) {
  const auto report = store.verify(false);
  return report && report->damaged == 0;
}

TEST_CASE("fault 29: parent and child both use the store after a fork") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  put_numbers(*store, 0, 3);
  CHECK(in_child([&] { return works(*store, 0, 10); }));
  CHECK(works(*store, 1, 11));
  CHECK(count_hits(*store, 10, 2) == 2);
  CHECK(is_healthy(*store));
}

TEST_CASE("fault 29: a child inherits no open connection") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  put_numbers(*store, 0, 3);
  CHECK(in_child([&] {
    int open_databases = 0;
    for (int fd = 3; fd < 256; ++fd) {
      char link[64], path[4096];
      std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
      const ssize_t size = ::readlink(link, path, sizeof path - 1);
      if (size > 0 &&
          std::string(path, static_cast<std::size_t>(size)).find("store.db") != std::string::npos) {
        ++open_databases;
      }
    }
    return open_databases == 0;
  }));
}

TEST_CASE("fault 29: a child outlives the parent's store, and another writer") {
  const ScratchFolder folder;
  auto store = open_store_at(folder / "s");
  put_numbers(*store, 0, 3);
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    char go = 0;
    ::close(ready[1]);
    static_cast<void>(!::read(ready[0], &go, 1));
    ::_exit(works(*store, 0, 20) ? 0 : 1);
  }
  store.reset();
  put_numbers(*open_store_at(folder / "s"), 30, 3);
  ::close(ready[0]);
  ::close(ready[1]);
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  const auto again = open_store_at(folder / "s");
  CHECK(count_hits(*again, 20, 1) + count_hits(*again, 30, 3) == 4);
  CHECK(is_healthy(*again));
}

TEST_CASE("fault 29: only the parent writes the uses from before a fork, once") {
  const ScratchFolder folder;
  {
    const auto tiers = open_store_at(folder / "s");
    put_numbers(*tiers, 0, 1);
    tiers->count("compiles", 5);
    CHECK(in_child([&] { return tiers->flush(std::chrono::seconds(5)).has_value(); }));
  }
  CHECK((*open_store_at(folder / "s")->counters())["compiles"] == 5);
}

TEST_CASE(
    "fault 29: the store refuses a child of a fork without handlers, and the parent keeps it") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  put_numbers(*store, 0, 3);
  const pid_t child = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    const auto found = store->get(make_entry(0).key);
    ::_exit(!found && found.error().code() == ErrorCode::io ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(works(*store, 1, 11));
}

// GCC 12's AddressSanitizer does not prepare its allocator for a fork: while other threads
// allocate, a child may hang in SizeClassAllocator64::GetFromAllocator. The other builds run this.
#if !defined(__SANITIZE_ADDRESS__)
TEST_CASE("fault 30: forks during reads and writes of other threads never deadlock") {
  const ScratchFolder folder;
  TieredStore::Options options;
  options.store.directory = folder / "s";
  options.store.system_directory.clear();
  const auto store = *TieredStore::open(options);
  REQUIRE(store->put(make_entry(0, {2000})));
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t i = 0; !stop; ++i) {
        static_cast<void>(store->put(make_entry(1000 * thread + i % 50, {2000})));
        static_cast<void>(store->disk()->get(make_entry(0, {2000}).key));
      }
    });
  }
  int failed = 0;
  for (int round = 0; round < 20; ++round) {
    failed += in_child([&] {
      const auto found = store->disk()->get(make_entry(0, {2000}).key);
      return found && *found;
    })
                  ? 0
                  : 1;
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(failed == 0);
  CHECK(is_healthy(*store->disk()));
}
#endif

}  // namespace
}  // namespace cukiln::testing
