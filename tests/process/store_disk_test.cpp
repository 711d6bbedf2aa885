// Disks that are full, read-only, broken or without locks.
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "support/store_processes.hpp"

namespace cukiln::testing {
namespace {

void shell(const std::string& command) {
  REQUIRE_MESSAGE(std::system(command.c_str()) == 0, command);
}

/// Runs a shell script in which $D is a small file system of its own and $W the worker. False where
/// an unprivileged process may not mount one.
bool in_small_file_system(const std::string& folder, int mebibytes, const std::string& script,
                          std::vector<std::string>* lines) {
  if (std::system("unshare -rm true 2>/dev/null") != 0) {
    return false;
  }
  const std::string mount = folder + "/small";
  shell("mkdir -p '" + mount + "'");
  Child child({"/usr/bin/unshare", "-rm", "/bin/sh", "-c",
               "mount -t tmpfs -o size=" + std::to_string(mebibytes) + "m tmpfs '" + mount +
                   "' || exit 99; D='" + mount +
                   "/s'; W='" CUKILN_TEST_BINARY_DIR "/store_worker'; " + script});
  child.go();
  *lines = child.lines();
  return child.wait() != 99;
}

TEST_CASE("row 5: on a full disk old entries make room and the new one is kept") {
  const ScratchFolder folder;
  std::vector<std::string> lines;
  if (!in_small_file_system(folder.path(), 6,
                            "$W $D put count=600 bytes=20000 reserve=1000000 log; "
                            "$W $D get first=590 count=10",
                            &lines)) {
    MESSAGE("skipped: this process may not mount a file system");
    return;
  }
  CHECK(count_lines(lines, " error") == 0);
  CHECK(acknowledged(lines).size() == 600);
  CHECK(count_lines(lines, "no space for the store") > 0);
  CHECK(count_lines(lines, "hit") == 10);
  CHECK(count_lines(lines, "begins anew") == 0);
}

TEST_CASE("row 6: a store cannot be made on a full disk, and kernels stay in memory") {
  const ScratchFolder folder;
  std::vector<std::string> lines;
  if (!in_small_file_system(folder.path(), 1,
                            "head -c 2000000 /dev/zero > ${D%/s}/filler 2>/dev/null; "
                            "$W $D put count=2",
                            &lines)) {
    MESSAGE("skipped: this process may not mount a file system");
    return;
  }
  REQUIRE(lines.size() >= 3);
  CHECK(starts_with(lines[0], "bypass"));
  CHECK(count_lines(lines, "not_stored") == 2);
}

TEST_CASE("row 7: a disk that others filled is collected with the help of the reserve") {
  const ScratchFolder folder;
  std::vector<std::string> lines;
  if (!in_small_file_system(folder.path(), 6,
                            "$W $D put count=100 bytes=20000 reserve=1000000; "
                            "head -c 9000000 /dev/zero > ${D%/s}/filler 2>/dev/null; "
                            "$W $D gc max=500000 reserve=1000000 log; "
                            "$W $D put first=200 count=5 bytes=20000 reserve=1000000; "
                            "$W $D get first=200 count=5",
                            &lines)) {
    MESSAGE("skipped: this process may not mount a file system");
    return;
  }
  CHECK(count_lines(lines, "done") == 1);
  CHECK(count_lines(lines, "gc error") == 0);
  CHECK(count_lines(lines, "hit") == 5);
}

TEST_CASE("row 8: a limit on file sizes kills nobody, and what was stored stays") {
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

TEST_CASE("rows 5 and 8: no space, or no quota, at any byte leaves a healthy store") {
  if (kSanitized) {
    return;  // a sanitizer has to be loaded first
  }
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
        // What was stored may have been evicted in the attempt to make room; what is there is
        // right.
        CHECK(count_intact(folder / "s", kept, 20'000) <= kept.size());
      }
      CHECK(count_lines(run_worker(folder / "s", "put", {"first=50", "count=1"}), " stored") == 1);
    }
  }
}

TEST_CASE("row 9: a disk that cannot be read is a tier that failed, not a crash") {
  if (kSanitized) {
    return;
  }
  const ScratchFolder folder;
  run_worker(folder / "s", "put", {"count=10", "checkpoint=1"});
  const auto lines = run_worker(folder / "s", "get", {"count=10"}, faults("read", "store.db", EIO));
  CHECK(count_lines(lines, "end") == 1);
  CHECK(count_lines(lines, "hit") + count_lines(lines, "wrong") == 0);
  CHECK(count_intact(folder / "s", {0, 9}, 20'000) == 2);
}

TEST_CASE("row 9: a failed fsync loses nothing that the WAL holds") {
  if (kSanitized) {
    return;
  }
  const ScratchFolder folder;
  run_worker(folder / "s", "put", {"count=3"});
  const auto lines = run_worker(folder / "s", "put", {"first=10", "count=10", "checkpoint=1"},
                                faults("sync", "store.db", EIO));
  CHECK(count_lines(lines, "end") == 1);
  const auto kept = acknowledged(lines);
  CHECK(count_intact(folder / "s", kept, 20'000) == kept.size());
  CHECK(count_intact(folder / "s", {0, 1, 2}, 20'000) == 3);
}

TEST_CASE("row 9: a new store that does not reach the disk is not begun") {
  if (kSanitized) {
    return;
  }
  const ScratchFolder folder;
  const auto lines = run_worker(folder / "s", "put", {"count=1"}, faults("sync", "store.db", EIO));
  CHECK(starts_with(lines.front(), "bypass"));
  CHECK(count_lines(run_worker(folder / "s", "put", {"count=1"}), "bypass") == 0);
}

TEST_CASE("row 33: a file system without record locks is refused at once") {
  if (kSanitized) {
    return;
  }
  const ScratchFolder folder;
  run_worker(folder / "s", "put", {"count=1"});
  const auto before = std::chrono::steady_clock::now();
  const auto lines =
      run_worker(folder / "s", "get", {"count=1"}, faults("lock", folder.path(), ENOLCK));
  CHECK(starts_with(lines.front(), "bypass"));
  CHECK(lines.front().find("no record locks") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(20));
}

/// Root can write everywhere: then the worker becomes nobody, and the store is given to it.
std::vector<std::string> as_ordinary_user(const ScratchFolder& folder,
                                          std::vector<std::string> options) {
  if (::geteuid() == 0) {
    shell("chmod 755 '" + folder.path() + "' && chown -R 65534:65534 '" + (folder / "s") + "'");
    options.push_back("user=65534");
  }
  return options;
}

bool worker_can_be_run_by_others() {
  struct stat status {};
  return ::geteuid() != 0 ||
         std::system("setpriv --reuid 65534 --regid 65534 --clear-groups -- " CUKILN_TEST_BINARY_DIR
                     "/store_worker x 2>/dev/null; test $? -eq 2") == 0 ||
         ::stat(CUKILN_TEST_BINARY_DIR "/store_worker", &status) != 0;
}

TEST_CASE("row 10: a sealed directory is read; without its -wal and -shm it is done without") {
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

  const std::string generation = directory + "/v1/gen-0001";
  shell("cd '" + generation + "' && chmod u+w . && rm store.db-wal store.db-shm && chmod u-w .");
  lines = run_worker(directory, "get", as_ordinary_user(folder, {"count=3", "log"}));
  CHECK(count_lines(lines, "bypass") == 1);
  CHECK(count_lines(lines, "log ") == 1);
  CHECK(count_lines(lines, "miss") == 3);
  shell("chmod -R u+w '" + directory + "'");  // so that it can be removed
}

TEST_CASE("row 11: a directory made read-only under a live user is still read") {
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
