// SPDX-License-Identifier: Apache-2.0
#include "base/file_lock.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/scratch.hpp"

using namespace cukiln;
using cukiln::testing::ScratchFolder;
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
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const int reused = ::dup(0);  // takes the number that the atfork handler closed
    lock->release();
    ::_exit(::fcntl(reused, F_GETFD) == -1 ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WEXITSTATUS(status) == 0);
  CHECK_FALSE(is_free(path));
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
