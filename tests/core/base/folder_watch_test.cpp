// SPDX-License-Identifier: Apache-2.0
#include "core/base/folder_watch.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "support/scratch.hpp"

using cukiln::FolderWatch;
using cukiln::testing::ScratchFolder;
using Subjects = FolderWatch::Subjects;
namespace fs = std::filesystem;

namespace {

int no_watch_left(int, const char*, std::uint32_t) {
  errno = ENOSPC;
  return -1;
}

struct Fixture {
  ScratchFolder folder;
  FolderWatch watch{{}};
  const std::string header = folder.write("inc/tile.h", "one");

  /// What inotify has reported by now: it does so before the change's system call returns.
  Subjects changes() { return watch.take_changes(); }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "a saved file is reported for its subjects, however an editor saves it") {
  watch.set(7, {header});
  watch.set(8, {header, folder / "inc/other.h"});
  watch.set(9, {folder / "inc/other.h"});
  CHECK(watch.stats().folders == 1);
  CHECK(changes().empty());
  SUBCASE("in place") { folder.write("inc/tile.h", "two more"); }
  SUBCASE("by renaming another file") {
    fs::rename(folder.write("inc/.tile.h.swp", "two"), header);
  }
  SUBCASE("by unlinking and creating") {
    fs::remove(header);
    folder.write("inc/tile.h", "one");
  }
  SUBCASE("it is removed") { fs::remove(header); }
  CHECK(changes() == Subjects{7, 8});
  CHECK(watch.stats().events > 0);
  CHECK(changes().empty());
}

TEST_CASE_FIXTURE(Fixture, "a file of no subject, or an unchanged one, is not reported") {
  watch.set(7, {header});
  folder.write("inc/unrelated.h", "x");
  fs::rename(folder / "inc/unrelated.h", folder / "inc/again.h");
  std::ofstream(header, std::ios::app);  // opened to write, and nothing written
  CHECK(changes().empty());
  folder.write("inc/tile.h", "two more");
  CHECK(changes() == Subjects{7});
  watch.drop(7);
  CHECK(watch.stats().folders == 0);
  CHECK(watch.empty());
  folder.write("inc/tile.h", "three more");
  CHECK(changes().empty());
  CHECK(watch.check_all().empty());
}

TEST_CASE_FIXTURE(Fixture, "a file that appears is reported, also in a folder that appears") {
  const std::string absent = folder / "first/deep/tile.h";
  watch.set(7, {header, absent});
  fs::create_directory(folder / "first");
  CHECK(changes() == Subjects{7});
  watch.set(7, {header, absent});  // as the owner of the watch does after a change
  fs::create_directory(folder / "first/deep");
  CHECK(changes() == Subjects{7});
  watch.set(7, {header, absent});
  folder.write("first/deep/tile.h", "x");
  CHECK(changes() == Subjects{7});
}

TEST_CASE_FIXTURE(Fixture,
                  "fault 46: a folder that was renamed or removed is reported, and watched again") {
  watch.set(7, {header});
  SUBCASE("another one comes in its place") {
    fs::rename(folder / "inc", folder / "old");
    folder.write("inc/tile.h", "two");
  }
  SUBCASE("it was removed") {
    fs::remove_all(folder / "inc");
    CHECK(changes() == Subjects{7});
    watch.set(7, {header});
    folder.write("inc/tile.h", "two");
  }
  CHECK(changes() == Subjects{7});
  watch.set(7, {header});
  changes();
  folder.write("inc/tile.h", "three more");
  CHECK(changes() == Subjects{7});
  CHECK(watch.check_all().empty());
}

TEST_CASE_FIXTURE(Fixture, "fault 46: a renamed parent folder is found by the next check") {
  const std::string deep = folder.write("project/src/tile.h", "one");
  watch.set(7, {deep});
  fs::rename(folder / "project", folder / "project.old");
  folder.write("project/src/tile.h", "two");
  CHECK(changes().empty());  // nothing happened to the watched folder, nor in it
  CHECK(watch.check_all() == Subjects{7});
  watch.set(7, {deep});
  folder.write("project/src/tile.h", "three more");
  CHECK(changes() == Subjects{7});
  CHECK(watch.check_all().empty());
}

TEST_CASE_FIXTURE(Fixture, "a link's target is watched too") {
  const std::string target = folder.write("elsewhere/tile.h", "one");
  fs::create_symlink(target, folder / "inc/link.h");
  watch.set(7, {folder / "inc/link.h"});
  folder.write("elsewhere/tile.h", "two more");
  CHECK(changes() == Subjects{7});
}

TEST_CASE_FIXTURE(Fixture, "two paths to one folder share a watch, and both are reported") {
  fs::create_directory_symlink(folder / "inc", folder / "inc2");
  watch.set(7, {header});
  watch.set(8, {folder / "inc2/tile.h"});
  CHECK(watch.stats().folders == 1);
  folder.write("inc/tile.h", "two more");
  CHECK(changes() == Subjects{7, 8});
  watch.drop(7);
  folder.write("inc/tile.h", "three more still");
  CHECK(changes() == Subjects{8});
}

TEST_CASE_FIXTURE(
    Fixture, "fault 46: without a free watch files are checked periodically, and that is counted") {
  FolderWatch::Options options;
  SUBCASE("the kernel's limit") { options.add_watch = &no_watch_left; }
  SUBCASE("our own") { options.max_folders = 0; }
  FolderWatch blind(options);
  blind.set(7, {header});
  CHECK(blind.stats().folders == 0);
  CHECK(blind.stats().limited == 1);
  CHECK(blind.check_all().empty());
  folder.write("inc/tile.h", "two more");
  CHECK(blind.take_changes().empty());
  CHECK(blind.check_all() == Subjects{7});
  CHECK(blind.check_all().empty());
  blind.drop(7);
  CHECK(blind.stats().limited == 0);
}

TEST_CASE_FIXTURE(Fixture, "files above the limit are skipped and counted") {
  FolderWatch::Options options;
  options.max_files = 1;
  FolderWatch small(options);
  small.set(7, {header, folder / "inc/b.h"});
  CHECK(small.stats().limited == 1);
  folder.write("inc/tile.h", "two more");
  CHECK(small.take_changes() == Subjects{7});
}

TEST_CASE_FIXTURE(Fixture, "fault 46: when the kernel drops events every file is checked") {
  watch.set(7, {header});
  long room = 16384;
  std::ifstream("/proc/sys/fs/inotify/max_queued_events") >> room;
  if (room > 200'000) {
    MESSAGE("skipped: a queue of " << room << " events takes long to fill");
    return;
  }
  const std::string other = folder / "inc/other.h";
  for (long i = 0; i < room; i += 3) {  // created, closed, removed
    ::close(::open(other.c_str(), O_WRONLY | O_CREAT, 0600));
    fs::remove(other);
  }
  folder.write("inc/tile.h", "two more");  // not reported
  CHECK(changes() == Subjects{7});
  CHECK(watch.stats().overflows == 1);
  CHECK(watch.stats().events == 0);
}
