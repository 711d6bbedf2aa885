// SPDX-License-Identifier: Apache-2.0
#include "core/base/kept_fd.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "support/scratch.hpp"

using namespace cukiln;
using testing::ScratchFolder;

namespace {

UniqueFd open_file(const std::string& path) { return UniqueFd(::open(path.c_str(), O_RDWR)); }

ino_t inode_at(int fd) {
  struct stat status {};
  REQUIRE(::fstat(fd, &status) == 0);
  return status.st_ino;
}

/// "FDSize: 64", of this process.
std::string table_size() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line) && line.rfind("FDSize:", 0) != 0) {
  }
  return line;
}

/// Puts a file of the host at a number, as a host that closed ours and opened its own.
void take_number(int number, const std::string& path) {
  const UniqueFd own = open_file(path);
  REQUIRE(::dup2(own.get(), number) == number);
}

}  // namespace

TEST_CASE("a kept descriptor is the same file, above the numbers of the host's files") {
  const ScratchFolder folder;
  UniqueFd opened = open_file(folder.write("ours", "text"));
  const ino_t inode = inode_at(opened.get());
  const int low = opened.get();
  const KeptFd kept{std::move(opened)};
  CHECK(inode_at(kept.get()) == inode);
  CHECK(::fcntl(low, F_GETFD) == -1);
  CHECK(kept.get() >= 32);
  CHECK(::fcntl(kept.get(), F_GETFD) == FD_CLOEXEC);
}

TEST_CASE("to keep a descriptor, the kernel's table of descriptors need not grow") {
  const ScratchFolder folder;
  const std::string before = table_size();
  const KeptFd kept{open_file(folder.write("ours", "text"))};
  CHECK(table_size() == before);
}

TEST_CASE("fault 362: a host's file with the number of a kept descriptor is not used and stays") {
  const ScratchFolder folder;
  const std::string theirs = folder.write("theirs", "text");
  KeptFd kept{open_file(folder.write("ours", "text"))};
  const int number = kept.get();
  REQUIRE(number >= 0);
  take_number(number, theirs);
  CHECK(kept.get() == -1);
  CHECK(is_lost(number));
  // Its number is not given to another while the owner may use it.
  const KeptFd another{open_file(theirs)};
  CHECK(another.get() >= 0);
  CHECK(another.get() != number);
  kept.reset();
  CHECK(::fcntl(number, F_GETFD) != -1);
  CHECK_FALSE(is_lost(number));
  ::close(number);
}

TEST_CASE("a kept descriptor that the host closed is lost, and its number can be kept again") {
  const ScratchFolder folder;
  const std::string path = folder.write("ours", "text");
  KeptFd kept{open_file(path)};
  const int number = kept.get();
  ::close(number);
  CHECK(kept.get() == -1);
  {
    const KeptFd another{open_file(path)};
    CHECK(another.get() != number);
  }
  kept.reset();
  CHECK(KeptFd(open_file(path)).get() == number);
}

TEST_CASE("keeping a second descriptor of a file leaves this process's record locks on it") {
  const ScratchFolder folder;
  const std::string path = folder.write("ours", "text");
  const int first = keep_locked_descriptor(open_file(path).release());
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_len = 1;
  REQUIRE(::fcntl(first, F_SETLK, &range) == 0);
  const int second = keep_locked_descriptor(open_file(path).release());
  struct flock seen {};
  seen.l_type = F_WRLCK;
  seen.l_whence = SEEK_SET;
  seen.l_len = 1;
  REQUIRE(::fcntl(second, F_OFD_GETLK, &seen) == 0);
  CHECK(seen.l_type == F_WRLCK);
  CHECK(close_kept(second));
  CHECK(close_kept(first));
  CHECK_FALSE(close_kept(first));
}
