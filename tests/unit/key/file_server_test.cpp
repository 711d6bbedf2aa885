#include "key/file_server.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hasher.hpp"
#include "support/scratch.hpp"

using namespace cukiln;
using cukiln::testing::ScratchFolder;
using What = FileServer::Mismatch::What;

namespace {

struct FakeClock final : Clock {
  std::int64_t now =
      4'000'000'000'000'000'000;  // far after every file's stamp: records are believed
  std::int64_t now_ns() const noexcept override { return now; }
};

struct Fixture {
  ScratchFolder scratch;
  StatCache stats;
  FakeClock clock;
  FileServer server() {
    return FileServer({{"/cukiln/inc/0", {scratch / "first"}},
                       {"/cukiln/inc/1", {scratch / "second", scratch / "third"}}},
                      &stats, clock);
  }
  DependencySet set_of(const std::string& path, const std::string& text) {
    DependencySet set;
    set.add_file(path, hash_of(text));
    return set;
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "a virtual path is served from its root; the first folder of a union wins") {
  scratch.write("first/a.cuh", "A");
  scratch.write("third/a.cuh", "third");
  auto files = server();
  CHECK(files.serve("/cukiln/inc/0/a.cuh").bytes.view() == "A");
  CHECK(files.serve("/cukiln/inc/1/a.cuh").bytes.view() == "third");
  scratch.write("second/a.cuh", "second");
  CHECK(files.serve("/cukiln/inc/1/a.cuh").bytes.view() == "third");  // one compile, one answer
  CHECK(server().serve("/cukiln/inc/1/a.cuh").bytes.view() == "second");
  CHECK(files.serve("/cukiln/inc/0").kind == FileAnswer::Kind::folder);
  CHECK(files.serve("/cukiln/inc/2/a.cuh").kind == FileAnswer::Kind::absent);
}

TEST_CASE_FIXTURE(Fixture,
                  "only the prefix of a path is replaced: .. and links stay the system's matter") {
  scratch.write("shared.cuh", "shared");
  scratch.write("first/x", "");
  CHECK(server().serve("/cukiln/inc/0/../shared.cuh").bytes.view() == "shared");
}

TEST_CASE_FIXTURE(Fixture, "touching a file keeps the set true; other bytes make it false") {
  const std::string path = scratch.write("first/a.cuh", "one");
  const DependencySet set = set_of("/cukiln/inc/0/a.cuh", "one");
  CHECK(server().check(set).what == What::none);
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), nullptr, 0) == 0);
  CHECK(server().check(set).what == What::none);
  scratch.write("first/a.cuh", "two");
  const auto mismatch = server().check(set);
  CHECK(mismatch.what == What::changed);
  CHECK(mismatch.now == hash_of("two"));
}

TEST_CASE_FIXTURE(Fixture, "same size and same mtime with other bytes is noticed") {
  const std::string path = scratch.write("first/a.cuh", "one");
  const timespec old_time[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), old_time, 0) == 0);
  const DependencySet set = set_of("/cukiln/inc/0/a.cuh", "one");
  CHECK(server().check(set).what == What::none);
  scratch.write("first/a.cuh", "two");
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), old_time, 0) == 0);
  CHECK(server().check(set).what == What::changed);
}

TEST_CASE_FIXTURE(
    Fixture, "row 32: a record as young as the file is not believed; an older one is, unread") {
  const std::string path = scratch.write("first/a.cuh", "one");
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  const FileStamp stamp = stamp_of(status);
  stats.put({path, stamp, hash_of("stale"), {}, stamp.mtime_ns + 1'000'000});
  CHECK(server().check(set_of("/cukiln/inc/0/a.cuh", "one")).what == What::none);
  stats.put({path, stamp, hash_of("believed"), {}, stamp.ctime_ns + 5'000'000'000});
  CHECK(server().check(set_of("/cukiln/inc/0/a.cuh", "believed")).what == What::none);
}

TEST_CASE_FIXTURE(Fixture, "a header that vanishes or appears makes the set false") {
  const std::string path = scratch.write("first/a.cuh", "one");
  DependencySet set = set_of("/cukiln/inc/0/a.cuh", "one");
  set.add_folder("/cukiln/inc/0");
  set.add_absent("/cukiln/inc/1/a.cuh");
  CHECK(server().check(set).what == What::none);
  scratch.write("third/a.cuh", "");
  auto mismatch = server().check(set);
  CHECK(mismatch.what == What::appeared);
  CHECK(mismatch.path == "/cukiln/inc/1/a.cuh");
  REQUIRE(::unlink(path.c_str()) == 0);
  CHECK(server().check(set).what == What::vanished);
  CHECK(server().check_all(set).size() == 2);
}

TEST_CASE_FIXTURE(Fixture,
                  "row 44: a FIFO or an oversized header is an error that says so, at once") {
  scratch.write("first/x", "");
  REQUIRE(::mkfifo((scratch / "first/fifo.cuh").c_str(), 0600) == 0);
  auto files = server();
  const FileAnswer& answer = files.serve("/cukiln/inc/0/fifo.cuh");
  CHECK(answer.kind == FileAnswer::Kind::error);
  CHECK(answer.message.find("regular file") != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "a file in memory comes before the disk") {
  scratch.write("first/a.cuh", "disk");
  auto files = server();
  files.add_memory_file("/cukiln/inc/0/a.cuh", SharedBytes("memory"));
  CHECK(files.serve("/cukiln/inc/0/a.cuh").bytes.view() == "memory");
  CHECK(files.check(set_of("/cukiln/inc/0/a.cuh", "memory")).what == What::none);
}

TEST_CASE_FIXTURE(Fixture, "a set holds for files in memory, whatever is on disk and never read") {
  const std::string path = scratch.write("first/a.cuh", "disk");
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  const FileStamp stamp = stamp_of(status);
  stats.put({path, stamp, hash_of("disk"), {}, stamp.ctime_ns + 5'000'000'000});
  const auto in_memory = [&] {
    FileServer files = server();
    files.add_memory_file("/cukiln/inc/0/a.cuh", SharedBytes("memory"));
    files.add_memory_file("/cukiln/inc/1/b.cuh", SharedBytes("memory"));
    return files;
  };
  CHECK(in_memory().check(set_of("/cukiln/inc/0/a.cuh", "memory")).what == What::none);
  CHECK(in_memory().check(set_of("/cukiln/inc/0/a.cuh", "disk")).what == What::changed);
  DependencySet without;
  without.add_absent("/cukiln/inc/1/b.cuh");
  CHECK(server().check(without).what == What::none);
  CHECK(in_memory().check(without).what == What::appeared);
  DependencySet folder;
  folder.add_folder("/cukiln/inc/1/b.cuh");
  CHECK(in_memory().check(folder).what == What::vanished);  // a file is no folder
}

TEST_CASE_FIXTURE(Fixture, "a log shows the user's own paths") {
  scratch.write("first/a.cuh", "");
  const auto files = server();
  CHECK(files.with_real_paths("/cukiln/inc/0/a.cuh(3): error: x\n\"/cukiln/src/k.cu\" line 1") ==
        (scratch / "first/a.cuh") + "(3): error: x\n\"k.cu\" line 1");
  CHECK(files.with_real_paths("nothing here") == "nothing here");
}
