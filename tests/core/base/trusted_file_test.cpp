// SPDX-License-Identifier: Apache-2.0
#include "core/base/trusted_file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "support/scratch.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

constexpr TrustedOwners kOwners{1000, 990};

/// Why a file with this owner and mode is not trusted.
std::string why(uid_t owner, mode_t mode, bool private_group = false) {
  struct stat status {};
  status.st_uid = owner;
  status.st_gid = 100;
  status.st_mode = S_IFREG | mode;
  return why_not_trusted(status, kOwners, private_group);
}

/// The error of reading a trusted file; empty if it was read.
std::string refusal(const std::string& path) {
  const auto text = read_trusted_file(path, "the test's file", 100);
  if (text) {
    CHECK(*text == "text");
    return {};
  }
  CHECK(text.error().code() == ErrorCode::invalid_argument);
  return text.error().message();
}

void set_mode(const std::string& path, mode_t mode) { REQUIRE(::chmod(path.c_str(), mode) == 0); }

}  // namespace

// fault 112
TEST_CASE("a group that is another account's primary one is not private") {
  const ScratchFolder folder;
  const std::string own = "alice:x:1000:1000::/srv/alice:/bin/sh\n";
  const std::string other = "backup:x:1001:1000::/:/bin/sh\n";
  CHECK_FALSE(
      has_other_account(folder.write("own", own + "bob:x:1001:1001::/:/bin/sh\n"), 1000, 1000));
  CHECK(has_other_account(folder.write("before", other + own), 1000, 1000));
  CHECK(has_other_account(folder.write("after", own + other), 1000, 1000));
  CHECK_FALSE(has_other_account(folder / "absent", 1000, 1000));
}

// fault 112
TEST_CASE("files that only root, this user or the library's owner can have written are trusted") {
  for (const uid_t owner : {0U, 1000U, 990U}) {
    for (const mode_t mode : {0400U, 0600U, 0644U, 0755U, 0555U}) {
      CAPTURE(owner);
      CAPTURE(mode);
      CHECK(why(owner, mode).empty());
    }
  }
  CHECK(why(1001, 0400).find("belongs to user 1001, expected root, user 1000 or user 990") !=
        std::string::npos);
  CHECK(why(1001, 0600) == why(1001, 0644));
  CHECK(why(1000, 0666).find("everybody may write it (mode 0666)") != std::string::npos);
  CHECK_FALSE(why(0, 0602).empty());  // not even a file of root's
  CHECK(why(1000, 0664).find("group 100 may write it (mode 0664)") != std::string::npos);
  CHECK(why(1000, 0664, true).empty());  // a private group
  CHECK_FALSE(why(1000, 0666, true).empty());
  CHECK_FALSE(why(1001, 0664, true).empty());
}

// fault 112
TEST_CASE("a file that everybody may write is refused, with the reason and what to do") {
  const ScratchFolder folder;
  const std::string path = folder.write("list", "text");
  set_mode(path, 0644);
  CHECK(refusal(path).empty());
  set_mode(path, 0666);
  const std::string said = refusal(path);
  CHECK(said.find("the test's file " + path + " is not believed") == 0);
  CHECK(said.find("everybody may write it (mode 0666)") != std::string::npos);
  CHECK(said.find("chmod go-w " + path) != std::string::npos);
}

// fault 112
TEST_CASE("a file in a folder that everybody may write is refused, unless the folder is sticky") {
  const ScratchFolder folder;
  const std::string path = folder.write("open/list", "text");
  set_mode(folder / "open", 0777);
  CHECK(refusal(path).find("of its folder, everybody may write it (mode 0777)") !=
        std::string::npos);
  CHECK(refusal(path).find("chmod go-w " + folder / "open") != std::string::npos);
  set_mode(folder / "open", 01777);
  CHECK(refusal(path).empty());
  // The folder of the file is checked, not that of a link to it.
  set_mode(folder / "open", 0777);
  const std::string link = folder / "link";
  std::filesystem::create_symlink(path, link);
  CHECK_FALSE(refusal(link).empty());
  const std::string good = folder.write("closed/list", "text");
  std::filesystem::create_symlink(good, folder / "open/link");
  CHECK(refusal(folder / "open/link").empty());
}

// fault 112
TEST_CASE("a trusted file must not be writable by a group with other members") {
  if (::geteuid() != 0) {  // only root can create a file of another group
    return;
  }
  const ScratchFolder folder;
  const std::string path = folder.write("list", "text");
  set_mode(path, 0660);
  CHECK(refusal(path).empty());  // root's own, `root`
  REQUIRE(::chown(path.c_str(), 0, 12345) == 0);
  CHECK(refusal(path).find("group 12345 may write it") != std::string::npos);
  REQUIRE(::chown(path.c_str(), 12345, 0) == 0);
  set_mode(path, 0600);
  CHECK(refusal(path).find("belongs to user 12345") != std::string::npos);
  CHECK(refusal(path).find("chown 0 " + path) != std::string::npos);
}

// fault 113
TEST_CASE("a trusted file that is replaced after it was opened is not read") {
  const ScratchFolder folder;
  const std::string path = folder.write("program", "text");
  const auto opened = open_trusted_file(path, "the test's file", O_RDONLY);
  REQUIRE(opened);
  std::filesystem::rename(folder.write("other", "evil"), path);
  char bytes[8] = {};
  CHECK(::read(opened->get(), bytes, sizeof bytes) == 4);
  CHECK(std::string(bytes) == "text");
}

TEST_CASE("an absent, irregular or too long file is reported as such") {
  const ScratchFolder folder;
  const auto read = [](const std::string& path) {
    return read_trusted_file(path, "the test's file", 4).error();
  };
  CHECK(read(folder / "none").code() == ErrorCode::not_found);
  CHECK(read(folder.path()).message().find("is a directory") != std::string::npos);
  CHECK(read(folder.write("long", "12345")).message().find("more than 4 bytes") !=
        std::string::npos);
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK(read(folder / "pipe").message().find("expected a regular file") != std::string::npos);
}

// fault 111
TEST_CASE("the path of this library is absolute, whatever argv[0] is") {
  const auto path = path_of_this_library();
  REQUIRE(path);
  CHECK(*path == std::filesystem::read_symlink("/proc/self/exe").string());
}
