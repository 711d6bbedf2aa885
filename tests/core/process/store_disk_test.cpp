// SPDX-License-Identifier: Apache-2.0
// Disks that are full, read-only, broken or without locks.
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "support/paths.hpp"
#include "support/store_processes.hpp"

namespace cukiln::testing {
namespace {

void shell(const std::string& command) {
  REQUIRE_MESSAGE(std::system(command.c_str()) == 0, command);
}

/// Runs a shell script in which $D is a small file system of its own and $W the worker. False, and
/// says so, where an unprivileged process may not mount one.
bool in_small_file_system(int mebibytes, const std::string& script,
                          std::vector<std::string>& lines) {
  const ScratchFolder folder;
  const std::string mount = folder / "small";
  Child child(
      {"/bin/sh", "-c",
       "mkdir '" + mount +
           "' && unshare -rm true 2>/dev/null && exec unshare -rm /bin/sh -c \"$0\"; exit 99",
       "mount -t tmpfs -o size=" + std::to_string(mebibytes) + "m tmpfs '" + mount +
           "' || exit 99; D='" + mount + "/s'; W='" + testing::bin() + "/store_worker'; " +
           script});
  child.go();
  lines = child.lines();
  const bool is_mounted = child.wait() != 99;
  if (!is_mounted) {
    MESSAGE("skipped: this process may not mount a file system");
  }
  return is_mounted;
}

TEST_CASE("fault 5: on a full disk old entries make room and the new one is kept") {
  std::vector<std::string> lines;
  if (!in_small_file_system(6,
                            "$W $D put count=600 bytes=20000 reserve=1000000 log; "
                            "$W $D get first=590 count=10",
                            lines))
    return;
  CHECK(count_lines(lines, " error") == 0);
  CHECK(acknowledged(lines).size() == 600);
  CHECK(count_lines(lines, "no space for the store") > 0);
  CHECK(count_lines(lines, "hit") == 10);
  CHECK(count_lines(lines, "starts a new, empty generation") == 0);
}

TEST_CASE("fault 5: on a full disk old entries and blobs make room for blobs") {
  std::vector<std::string> lines;
  if (!in_small_file_system(6,
                            "$W $D put count=50 bytes=20000 reserve=1000000; "
                            "$W $D blob kind=k count=600 bytes=20000 reserve=1000000 log; "
                            "sleep 2; "  // the order of last use is one of seconds
                            "$W $D put first=100 count=10 bytes=20000 reserve=1000000; "
                            "$W $D get first=100 count=10; "
                            "$W $D get first=0 count=50",
                            lines))
    return;
  CHECK(count_lines(lines, " error") == 0);
  CHECK(count_lines(lines, "stored") >= 660);
  CHECK(count_lines(lines, "no space for the store") > 0);
  CHECK(count_lines(lines, "hit") == 10);
  CHECK(count_lines(lines, "starts a new, empty generation") == 0);
}

TEST_CASE(
    "fault 5: a store that is smaller than the reserve loses no more than a new entry needs") {
  std::vector<std::string> lines;
  if (!in_small_file_system(6,
                            "$W $D put count=10 bytes=20000 reserve=1000000; "
                            "head -c 9000000 /dev/zero > ${D%/s}/filler 2>/dev/null; "
                            "$W $D put first=100 count=1 bytes=20000 reserve=1000000 log; "
                            "$W $D get first=0 count=10; $W $D get first=100 count=1",
                            lines))
    return;
  CHECK(count_lines(lines, "no space for the store") > 0);
  CHECK(count_lines(lines, "hit") >= 6);
}

TEST_CASE("fault 6: a store cannot be made on a full disk, and kernels stay in memory") {
  std::vector<std::string> lines;
  if (!in_small_file_system(1,
                            "head -c 2000000 /dev/zero > ${D%/s}/filler 2>/dev/null; "
                            "$W $D put count=2",
                            lines))
    return;
  REQUIRE(lines.size() >= 3);
  CHECK(starts_with(lines[0], "bypass"));
  CHECK(count_lines(lines, "not_stored") == 2);
}

TEST_CASE("fault 5: entries for which a full disk has no room give one warning with advice" *
          doctest::skip(kSanitized)) {
  const ScratchFolder folder;
  run_worker(folder / "s", "put", {"count=1"});
  const auto lines = run_worker(folder / "s", "put", {"first=1", "count=36", "reserve=0", "log"},
                                faults("write", "store.db", ENOSPC, 40'000));
  CHECK(count_lines(lines, " error io ") == 36);
  CHECK(count_lines(lines, "is not stored: no space for the store in") == 1);
  CHECK(count_lines(lines, "free some disk space, or choose another directory") >= 1);
  CHECK(count_lines(lines, "log warn") == 1);
}

TEST_CASE("fault 7: a disk that others filled is collected with the help of the reserve") {
  std::vector<std::string> lines;
  if (!in_small_file_system(6,
                            "$W $D put count=100 bytes=20000 reserve=1000000; "
                            "head -c 9000000 /dev/zero > ${D%/s}/filler 2>/dev/null; "
                            "$W $D gc max=500000 reserve=1000000 log; "
                            "$W $D put first=200 count=5 bytes=20000 reserve=1000000; "
                            "$W $D get first=200 count=5",
                            lines))
    return;
  CHECK(count_lines(lines, "done") == 1);
  CHECK(count_lines(lines, "gc error") == 0);
  CHECK(count_lines(lines, "hit") == 5);
}

TEST_CASE("fault 88: rm works on a disk that others filled, and the reserve is there again") {
  std::vector<std::string> lines;
  if (!in_small_file_system(6,
                            "R=reserve=1000000; F=${D%/s}/filler; "
                            "$W $D put count=100 bytes=20000 $R; "
                            "head -c 9000000 /dev/zero > $F 2>/dev/null; "
                            "$W $D rm first=5 bytes=20000 $R; "
                            "head -c 9000000 /dev/zero > $F.2 2>/dev/null; "
                            "$W $D rm $R; "
                            "stat -c 'reserve %s' $D/*/reserve.bin; "
                            "$W $D put first=200 count=5 bytes=20000 $R",
                            lines))
    return;
  CHECK(count_lines(lines, "removed 1") == 1);
  CHECK(count_lines(lines, "removed 99") == 1);
  CHECK(count_lines(lines, "rm error") == 0);
  CHECK(count_lines(lines, "reserve 1000000") == 1);
  CHECK(acknowledged(lines).size() == 105);
}

/// Uses a store three times after other files took the disk space of its WAL index. $RUN runs the
/// worker, $S prints its exit status.
const char* const kWithoutRoomForWalIndex =
    "D0=${D%/s}; S='echo rc $?'; "
    "fill() { sync -f $D0; head -c 99000000 /dev/zero > $D0/filler.$1 2>/dev/null; }; "
    "empty_index() { truncate -s 3 $D/*/gen-*/store.db-shm; fill $1; }; "
    "$W $D put count=20 $R; $W $D put first=20 count=1 $R; "  // the last one is in the WAL alone
    "fill 1; "
    "empty_index 2; $RUN $W $D get count=3 log $R; eval $S; "
    "empty_index 3; $RUN $W $D get count=3 log $R; eval $S; "
    "empty_index 4; $RUN $W $D rm $R; eval $S; "
    "rm $D0/filler.*; $W $D get count=3 $R; eval $S";

TEST_CASE("fault 85: a WAL index with no room on the disk means memory only, and ends no process" *
          doctest::skip(kSanitized)) {
  for (const char* holes : {"holes", "old_holes"}) {
    CAPTURE(holes);
    // A file system with small blocks is one where growing a file by a byte a page leaves holes.
    const std::string run = "env LD_PRELOAD=" + testing::bin() +
                            "/libfaulty_calls.so FAULT_MATCH=store.db-shm FAULT_CALL=" + holes;
    std::vector<std::string> lines;
    if (!in_small_file_system(6, "R=reserve=0; RUN='" + run + "'; " + kWithoutRoomForWalIndex,
                              lines))
      return;
    CHECK(count_lines(lines, "rc 0") == 4);
    CHECK(count_lines(lines, "log warn kernels are kept in memory only") == 2);
    CHECK(count_lines(lines, "miss") == 6);
    CHECK(count_lines(lines, "rm error") == 1);
    CHECK(count_lines(lines, "hit") == 3);  // there is room again
  }
}

TEST_CASE("fault 85: the reserve has room for the WAL index") {
  std::vector<std::string> lines;
  if (!in_small_file_system(6, std::string("R=reserve=1000000; RUN=; ") + kWithoutRoomForWalIndex,
                            lines))
    return;
  CHECK(count_lines(lines, "rc 0") == 4);
  CHECK(count_lines(lines, "hit") == 6);
  CHECK(count_lines(lines, "removed 21") == 1);
}

TEST_CASE("fault 85: a full ext4 with blocks of 1 KiB ends no process") {
  const ScratchFolder folder;
  const std::string image = folder / "image";
  if (::geteuid() != 0 || std::system("losetup -f >/dev/null 2>&1") != 0) {
    MESSAGE("skipped: only root may mount an image, where there are loop devices");
    return;
  }
  shell("mke2fs -qF -t ext4 -b 1024 '" + image + "' 16m > /dev/null && mkdir '" +
        (folder / "mount") + "'");
  Child child({"/usr/bin/unshare", "-m", "/bin/sh", "-c",
               "mount -o loop '" + image + "' '" + (folder / "mount") + "' || exit 99; cd '" +
                   (folder / "mount") + "'; W='" + testing::bin() +
                   "/store_worker'; R=; D=$PWD/s; S='echo rc $?'; "
                   "$W $D put count=30 $R > /dev/null; "
                   "dd if=/dev/zero of=filler bs=1k 2>/dev/null; "
                   "$W $D get count=3; eval $S; $W $D get count=3; eval $S; "
                   "$W $D put first=50 count=1; eval $S; $W $D gc max=1000; eval $S"});
  child.go();
  const auto lines = child.lines();
  REQUIRE(child.wait() == 0);
  CHECK(count_lines(lines, "rc 0") == 4);
  CHECK(count_lines(lines, "hit") == 6);
}

TEST_CASE("fault 8: a limit on file sizes ends no process, and stored entries stay") {
  const ScratchFolder folder;
  const auto lines =
      run_worker(folder / "s", "put", {"count=200", "file_limit=1500000", "reserve=0", "log"});
  CHECK(count_lines(lines, "end") == 1);
  CHECK(count_lines(lines, "no space for the store") > 0);
  const auto kept = acknowledged(lines);
  CHECK(kept.size() > 40);
  count_intact(folder / "s", kept, 20'000);
  const auto unlimited = run_worker(folder / "s", "put", {"first=300", "count=50"});
  CHECK(count_lines(unlimited, " stored") == 50);
}

TEST_CASE("fault 5, fault 8: no space, or no quota, at any byte leaves a healthy store" *
          doctest::skip(kSanitized)) {
  for (const int error : {ENOSPC, EDQUOT}) {
    for (const std::uint64_t bytes : {0u, 30'000u, 100'000u, 300'000u, 301'000u, 600'000u}) {
      CAPTURE(error);
      CAPTURE(bytes);
      const ScratchFolder folder;
      const auto lines = run_worker(folder / "s", "put", {"count=30", "checkpoint=100000"},
                                    faults("write", "store.db", error, bytes));
      CHECK(count_lines(lines, "end") == 1);
      const auto kept = acknowledged(lines);
      CHECK(kept.size() < 30);
      if (starts_with(lines.front(), "open")) {
        // Stored entries may have been evicted in the attempt to make room.
        CHECK(count_intact(folder / "s", kept, 20'000) <= kept.size());
      }
      CHECK(count_lines(run_worker(folder / "s", "put", {"first=50", "count=1"}), " stored") == 1);
    }
  }
}

TEST_CASE("fault 9: a disk that cannot be read is a failed tier and not a crash" *
          doctest::skip(kSanitized)) {
  const ScratchFolder folder;
  run_worker(folder / "s", "put", {"count=10", "checkpoint=1"});
  const auto lines = run_worker(folder / "s", "get", {"count=10"}, faults("read", "store.db", EIO));
  CHECK(count_lines(lines, "end") == 1);
  CHECK(count_lines(lines, "hit") + count_lines(lines, "wrong") == 0);
  CHECK(count_intact(folder / "s", {0, 9}, 20'000) == 2);
}

// fault 343
TEST_CASE("reads that fail behind the first page of the database give up no generation" *
          doctest::skip(kSanitized)) {
  const ScratchFolder folder;
  run_worker(folder / "s", "put", {"count=10", "checkpoint=1"});
  const auto failing = faults("read", "store.db", EIO, 4096);
  for (const char* command : {"get", "put", "gc", "rm"}) {
    CAPTURE(command);
    const auto lines = run_worker(folder / "s", command, {"count=10", "log"}, failing);
    CHECK(count_lines(lines, "starts a new, empty generation") == 0);
    CHECK(count_lines(lines, "hit") + count_lines(lines, "wrong") == 0);
  }
  CHECK(read_all(folder / "s/v6/CURRENT") == "gen-0001\n");
  CHECK(count_intact(folder / "s", {0, 4, 9}, 20'000) == 3);
}

// fault 343
TEST_CASE("reads that fail within a put leave the entry whole or absent, and the store in use" *
          doctest::skip(kSanitized)) {
  const ScratchFolder folder;
  run_worker(folder / "s", "put", {"count=10", "checkpoint=1"});
  for (int read = 1; read <= 16; ++read) {
    for (int later = 1; later <= 16; ++later) {
      CAPTURE(read);
      CAPTURE(later);
      const std::string first = "first=" + std::to_string(32 * read + 2 * later);
      const auto lines = run_worker(folder / "s", "put", {first, "count=2", "checkpoint=1", "log"},
                                    faults("two_reads", "store.db", EIO, 1000 * read + later));
      CHECK(count_lines(lines, "starts a new, empty generation") == 0);
      CHECK(count_lines(lines, "damaged") == 0);
    }
  }
  CHECK(read_all(folder / "s/v6/CURRENT") == "gen-0001\n");
}

TEST_CASE("fault 9: a failed fsync loses nothing that the WAL holds" * doctest::skip(kSanitized)) {
  const ScratchFolder folder;
  run_worker(folder / "s", "put", {"count=3"});
  const auto lines = run_worker(folder / "s", "put", {"first=10", "count=10", "checkpoint=1"},
                                faults("sync", "store.db", EIO));
  CHECK(count_lines(lines, "end") == 1);
  const auto kept = acknowledged(lines);
  CHECK(count_intact(folder / "s", kept, 20'000) == kept.size());
  CHECK(count_intact(folder / "s", {0, 1, 2}, 20'000) == 3);
}

TEST_CASE("fault 9: a new store that cannot be synced to the disk is not used" *
          doctest::skip(kSanitized)) {
  const ScratchFolder folder;
  const auto lines = run_worker(folder / "s", "put", {"count=1"}, faults("sync", "store.db", EIO));
  CHECK(starts_with(lines.front(), "bypass"));
  CHECK(count_lines(run_worker(folder / "s", "put", {"count=1"}), "bypass") == 0);
}

TEST_CASE("fault 33: a file system without record locks is refused immediately" *
          doctest::skip(kSanitized)) {
  const ScratchFolder folder;
  run_worker(folder / "s", "put", {"count=1"});
  const auto lines =
      run_worker(folder / "s", "get", {"count=1"}, faults("lock", folder.path(), ENOLCK));
  CHECK(starts_with(lines.front(), "bypass"));
  CHECK(lines.front().find("no record locks") != std::string::npos);
}

/// Root can write everywhere, so the worker then runs as the user nobody, who owns the store.
std::vector<std::string> as_ordinary_user(const ScratchFolder& folder,
                                          std::vector<std::string> options) {
  if (::geteuid() == 0) {
    shell("chmod 755 '" + folder.path() + "' && chown -R 65534:65534 '" + (folder / "s") + "'");
    options.push_back("user=65534");
  }
  return options;
}

bool worker_can_be_run_by_others() {
  const std::string worker = testing::bin() + "/store_worker";
  struct stat status {};
  return ::geteuid() != 0 ||
         std::system(("setpriv --reuid 65534 --regid 65534 --clear-groups -- " + worker +
                      " x 2>/dev/null; test $? -eq 2")
                         .c_str()) == 0 ||
         ::stat(worker.c_str(), &status) != 0;
}

TEST_CASE("fault 10: a sealed directory is read; without its -wal and -shm it is not used") {
  if (!worker_can_be_run_by_others()) {
    MESSAGE("skipped: another user cannot run the worker");
    return;
  }
  const ScratchFolder folder;
  run_worker(folder / "s", "put", {"count=3"});
  const std::string directory = folder / "s";
  shell("find '" + directory + "' -type d -exec chmod 555 {} + && find '" + directory +
        "' -type f -exec chmod 444 {} +");
  auto lines = run_worker(directory, "get", as_ordinary_user(folder, {"count=3"}));
  CHECK(lines.front() == "open");
  CHECK(count_lines(lines, "hit") == 3);
  lines = run_worker(directory, "put", as_ordinary_user(folder, {"first=10", "count=2"}));
  CHECK(count_lines(lines, "not_stored") == 2);

  const std::string generation = directory + "/v6/gen-0001";
  shell("cd '" + generation + "' && chmod u+w . && rm store.db-wal store.db-shm && chmod u-w .");
  lines = run_worker(directory, "get", as_ordinary_user(folder, {"count=3", "log"}));
  CHECK(count_lines(lines, "bypass") == 1);
  CHECK(count_lines(lines, "log ") == 1);
  CHECK(count_lines(lines, "miss") == 3);
  shell("chmod -R u+w '" + directory + "'");  // so that it can be removed
}

TEST_CASE("fault 11: a directory made read-only while a process has it open is still read") {
  if (!worker_can_be_run_by_others()) {
    MESSAGE("skipped: another user cannot run the worker");
    return;
  }
  const ScratchFolder folder;
  run_worker(folder / "s", "put", {"count=3", "checkpoint=100000000"});
  Child user = start_worker(folder / "s", "hold");
  CHECK(user.line() == "open");
  CHECK(user.line() == "locked");
  shell("find '" + (folder / "s") + "' -type d -exec chmod 555 {} +");
  const auto lines = run_worker(folder / "s", "get", as_ordinary_user(folder, {"count=3"}));
  CHECK(lines.front() == "open");
  CHECK(count_lines(lines, "hit") == 3);
  shell("chmod -R u+w '" + (folder / "s") + "'");
}

TEST_CASE("a system store that root wrote is read by other users") {
  if (!worker_can_be_run_by_others()) {
    MESSAGE("skipped: another user cannot run the worker");
    return;
  }
  const ScratchFolder folder;
  run_worker(folder / "system", "put", {"count=3"});
  shell("chmod -R a+rX '" + (folder / "system") + "' && mkdir -m 700 '" + (folder / "s") + "'");
  const auto lines =
      run_worker(folder / "s", "system",
                 as_ordinary_user(folder, {"count=3", "system=" + (folder / "system")}));
  CHECK(lines.front() == "open");
  CHECK(count_lines(lines, "hit") == 3);
}

}  // namespace
}  // namespace cukiln::testing
