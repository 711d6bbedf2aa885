// SPDX-License-Identifier: Apache-2.0
#include "core/base/file_lock.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "support/forked.hpp"
#include "support/scratch.hpp"

using namespace cukiln;
using cukiln::testing::ScratchFolder;
using cukiln::testing::status_of_child;
using std::chrono::milliseconds;

namespace {

bool is_free(const std::string& path) {
  return static_cast<bool>(FileLock::acquire(path, FileLock::Mode::exclusive, milliseconds(0)));
}

}  // namespace

TEST_CASE("a lock excludes others, times out, and is released by its destructor") {
  const ScratchFolder scratch;
  const std::string path = scratch / "lock";
  {
    const auto lock = FileLock::acquire(path, FileLock::Mode::exclusive, milliseconds(0));
    REQUIRE(lock);
    const auto second = FileLock::acquire(path, FileLock::Mode::exclusive, milliseconds(30));
    REQUIRE_FALSE(second);
    CHECK(second.error().code() == ErrorCode::timeout);
  }
  CHECK(is_free(path));
}

TEST_CASE("shared locks coexist and exclude an exclusive one") {
  const ScratchFolder scratch;
  const std::string path = scratch / "lock";
  const auto a = FileLock::acquire(path, FileLock::Mode::shared, milliseconds(0));
  const auto b = FileLock::acquire(path, FileLock::Mode::shared, milliseconds(0));
  CHECK(a);
  CHECK(b);
  CHECK_FALSE(is_free(path));
}

TEST_CASE(
    "a forked child keeps no copy: the parent's release frees the lock while the child lives") {
  const ScratchFolder scratch;
  const std::string path = scratch / "lock";
  auto lock = FileLock::acquire(path, FileLock::Mode::exclusive, milliseconds(0));
  REQUIRE(lock);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  lock->release();
  CHECK(is_free(path));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_CASE(
    "a release in a forked child neither frees the parent's lock nor closes a reused descriptor") {
  const ScratchFolder scratch;
  const std::string path = scratch / "lock";
  auto lock = FileLock::acquire(path, FileLock::Mode::exclusive, milliseconds(0));
  REQUIRE(lock);
  CHECK(status_of_child([&] {
          const int reused = ::dup(0);  // takes the number that the atfork handler closed
          lock->release();
          return ::fcntl(reused, F_GETFD) == -1 ? 1 : 0;
        }) == 0);
  CHECK_FALSE(is_free(path));
}

TEST_CASE("a lock that was handed over belongs to the copy of its descriptor alone") {
  const ScratchFolder scratch;
  const std::string path = scratch / "lock";
  auto lock = FileLock::acquire_removable(path);
  REQUIRE(lock);
  const UniqueFd copy(::dup(lock->descriptor()));
  const int number = lock->descriptor();
  lock->hand_over();
  CHECK_FALSE(lock->held());
  CHECK(::fcntl(number, F_GETFD) == -1);
  CHECK_FALSE(is_free(path));
  REQUIRE(::flock(copy.get(), LOCK_UN) == 0);
  CHECK(is_free(path));
}

TEST_CASE("a removable lock is that of the file that has the name, and its holder is not awaited") {
  const ScratchFolder scratch;
  const std::string path = scratch / "lock";
  auto lock = FileLock::acquire_removable(path);
  REQUIRE(lock);
  const auto second = FileLock::acquire_removable(path);
  REQUIRE_FALSE(second);
  CHECK(second.error().code() == ErrorCode::timeout);
  // Others that open the file before it is removed, and lock it afterwards, must open it anew.
  std::atomic<bool> done = false;
  std::atomic<int> held = 0;
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i) {
    others.emplace_back([&] {
      while (!done) {
        if (auto own = FileLock::acquire_removable(path)) {
          CHECK(own->is_at(path));
          ++held;
          own->remove_and_release(path);
        }
      }
    });
  }
  lock->remove_and_release(path);
  while (held < 2000) {
    std::this_thread::yield();
  }
  done = true;
  for (std::thread& other : others) {
    other.join();
  }
}

TEST_CASE("holder() returns the owner line, creates no file and keeps no lock") {
  const ScratchFolder scratch;
  const std::string path = scratch / "lock";
  CHECK_FALSE(FileLock::holder(path));
  CHECK_FALSE(std::filesystem::exists(path));
  scratch.write("lock", "pid 17 since then\nmore\n");
  CHECK_FALSE(FileLock::holder(path));  // the file exists, but is not locked
  {
    const auto lock = FileLock::acquire(path, FileLock::Mode::exclusive, milliseconds(0));
    CHECK(FileLock::holder(path) == "pid 17 since then");
  }
  CHECK_FALSE(FileLock::holder(path));
  CHECK(is_free(path));
}

TEST_CASE("a holder's line is read by others, and its file goes with the lock") {
  const ScratchFolder scratch;
  const std::string path = scratch / "lock";
  auto lock = FileLock::acquire(path, FileLock::Mode::exclusive, milliseconds(0));
  REQUIRE(lock);
  lock->write_line("a line that is longer");
  lock->write_line("who");
  CHECK(FileLock::holder(path) == "who");
  CHECK(lock->first_line() == "who");
  CHECK(lock->is_at(path));
  CHECK_FALSE(lock->is_at(scratch / "other"));
  lock->remove_and_release(path);
  CHECK_FALSE(lock->held());
  CHECK(::access(path.c_str(), F_OK) != 0);
  lock->write_line("nothing");
  CHECK_FALSE(lock->is_at(path));
  CHECK(lock->first_line().empty());
}

TEST_CASE("a holder whose file was replaced does not remove the other one") {
  const ScratchFolder scratch;
  const std::string path = scratch / "lock";
  auto lock = FileLock::acquire(path, FileLock::Mode::exclusive, milliseconds(0));
  REQUIRE(::unlink(path.c_str()) == 0);
  auto other = FileLock::acquire(path, FileLock::Mode::exclusive, milliseconds(0));
  REQUIRE(other);
  CHECK_FALSE(lock->is_at(path));
  lock->remove_and_release(path);
  CHECK(other->is_at(path));
}

TEST_CASE("a forked child neither writes to the parent's lock file nor removes it") {
  const ScratchFolder scratch;
  const std::string path = scratch / "lock";
  auto lock = FileLock::acquire(path, FileLock::Mode::exclusive, milliseconds(0));
  lock->write_line("parent");
  CHECK(status_of_child([&] {
          lock->write_line("child");
          const bool is_own = lock->is_at(path);
          lock->remove_and_release(path);
          return is_own ? 1 : 0;
        }) == 0);
  CHECK(FileLock::holder(path) == "parent");
}
