// SPDX-License-Identifier: Apache-2.0
#include "core/key/file_server.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/base/hasher.hpp"
#include "core/key/set_check.hpp"
#include "core/key/std_headers.hpp"
#include "support/mounts.hpp"
#include "support/scratch.hpp"

using namespace cukiln;
using cukiln::testing::ScratchFolder;
using cukiln::testing::shell_or_end;
using cukiln::testing::with_own_mounts;
using What = FileServer::Mismatch::What;

namespace {

struct FakeClock final : Clock {
  std::int64_t now =
      4'000'000'000'000'000'000;  // long after every file's stamp, so that records are used
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
  CHECK(files.serve("/cukiln/inc/1/a.cuh").bytes.view() == "third");  // answers are cached
  CHECK(server().serve("/cukiln/inc/1/a.cuh").bytes.view() == "second");
  CHECK(files.serve("/cukiln/inc/0").kind == FileAnswer::Kind::folder);
  CHECK(files.serve("/cukiln/inc/2/a.cuh").kind == FileAnswer::Kind::absent);
}

// fault 201
TEST_CASE_FIXTURE(Fixture, "a standard header for device code is served behind the real folders") {
  const std::string path = std::string(kToolkitRoot) + "/cstdint";
  const auto shims = [&] {
    return FileServer({{kToolkitRoot, {scratch / "toolkit", kStdFolder}}}, &stats, clock);
  };
  auto files = shims();
  const FileAnswer& served = files.serve(path);
  REQUIRE(served.kind == FileAnswer::Kind::file);
  CHECK(served.digest == hash_of(served.bytes.view()));
  CHECK(served.real_path == "/cukiln/std/cstdint");
  CHECK(files.real_path(path) == "/cukiln/std/cstdint");
  CHECK(files.serve(std::string(kToolkitRoot) + "/cstddef").identity != served.identity);
  CHECK(files.serve(kToolkitRoot).kind == FileAnswer::Kind::folder);
  CHECK(files.serve(std::string(kToolkitRoot) + "/no_such_header").kind ==
        FileAnswer::Kind::absent);
  CHECK(files.serve(std::string(kToolkitRoot) + "/sub/cstdint").kind == FileAnswer::Kind::absent);

  const DependencySet with = set_of(path, std::string(served.bytes.view()));
  CHECK(shims().check(with).what == What::none);
  FileServer without({{kToolkitRoot, {scratch / "toolkit"}}}, &stats, clock);
  CHECK(without.check(with).what == What::vanished);
  CHECK(without.serve(path).kind == FileAnswer::Kind::absent);
  DependencySet absent;
  absent.add_absent(path);
  CHECK(shims().check(absent).what == What::appeared);

  scratch.write("toolkit/cstdint", "the toolkit's");
  CHECK(shims().serve(path).bytes.view() == "the toolkit's");
  CHECK(shims().check(with).what == What::changed);
}

TEST_CASE("every standard header for device code can be looked up by its name") {
  const auto names = std_header_names();
  CHECK(names.size() > 68);
  CHECK(std::is_sorted(names.begin(), names.end()));
  std::set<std::uint64_t> inodes;
  for (const std::string_view name : names) {
    CAPTURE(std::string(name));
    const auto header = std_header(name);
    REQUIRE(header);
    CHECK(header->digest == hash_of(header->text));
    CHECK(inodes.insert(header->inode).second);
    CHECK(is_std_header(std::string(kToolkitRoot) + "/" + std::string(name)));
  }
  for (const char* name : {"", "/", "cmat", "cmathx", "/cmath", "cmath/", "/cukiln/std/cmath"}) {
    CHECK_FALSE(std_header(name));
  }
  for (const char* path : {"", "cmath", "/cukiln/toolkit", "/cukiln/toolkit/", "/cukiln/std/cmath",
                           "/cukiln/toolkit/cccl/cmath", "/cukiln/inc/0/cmath"}) {
    CHECK_FALSE(is_std_header(path));
  }
}

TEST_CASE_FIXTURE(Fixture, "no standard header is the same file as another kind of file") {
  FileServer files({{kToolkitRoot, {kStdFolder}, true}}, &stats, clock);
  DependencySet set;
  // Identities of memory files, and classes of files that count as recorded, are small numbers.
  for (std::uint32_t i = 0; i < 200; ++i) {
    const std::string name = std::to_string(i);
    files.add_memory_file("/cukiln/src/" + name, SharedBytes(name));
    set.add_file("/cukiln/src/" + name, hash_of(name), 2 * i);
    set.add_file("/cukiln/toolkit/recorded/" + name, hash_of(name), 2 * i + 1);
  }
  for (const std::string_view name : std_header_names()) {
    set.add_file(std::string(kToolkitRoot) + "/" + std::string(name), std_header(name)->digest);
  }
  CHECK(files.check_all(set).empty());
}

TEST_CASE_FIXTURE(Fixture,
                  "only the prefix of a path is replaced; .. and links are left to the system") {
  scratch.write("shared.cuh", "shared");
  scratch.write("first/x", "");
  CHECK(server().serve("/cukiln/inc/0/../shared.cuh").bytes.view() == "shared");
}

TEST_CASE_FIXTURE(
    Fixture, "a set still holds after a file is touched, and no longer after its bytes change") {
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

TEST_CASE_FIXTURE(Fixture, "changed bytes with the same size and mtime are noticed") {
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
    Fixture,
    "fault 32: a stat record as young as the file is not used; a later one spares reading it") {
  const std::string path = scratch.write("first/a.cuh", "one");
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  const FileStamp stamp = stamp_of(status);
  stats.put({path, stamp, hash_of("stale"), {}, stamp.mtime_ns + 1'000'000});
  CHECK(server().check(set_of("/cukiln/inc/0/a.cuh", "one")).what == What::none);
  stats.put({path, stamp, hash_of("recorded"), {}, stamp.ctime_ns + 5'000'000'000});
  CHECK(server().check(set_of("/cukiln/inc/0/a.cuh", "recorded")).what == What::none);
}

// fault 107
TEST_CASE_FIXTURE(Fixture, "texts with the same checksum have different keys") {
  // In XXH3, bytes 384 to 511 compensate for the changed first byte.
  const std::string own(1200, 'a');
  std::string forged = own;
  forged[0] = 'b';
  REQUIRE(
      bytes_of_hex("b8084674db1fe11fe03590e60fd292233c2852bbee7cf8fe88d0658b91f0a2b6"
                   "7164489701ea77293819ef466efe07cea8fa763fa8bab503f9dcbbc7d3880505"
                   "192736ba813a264ca66aa69591c300cbc08035b21b532ea374defeb3a20df94e"
                   "eb8b87b3a9deacd842b11220e39c343f8e0ddc28c70b4f1d6b875e15cdb45931",
                   reinterpret_cast<std::uint8_t*>(forged.data() + 384), 128));
  REQUIRE(checksum_of(own) == checksum_of(forged));

  scratch.write("first/a.cuh", forged);
  CHECK(server().check(set_of("/cukiln/inc/0/a.cuh", forged)).what == What::none);
  CHECK(server().check(set_of("/cukiln/inc/0/a.cuh", own)).what == What::changed);
  const auto request_of = [](const std::string& text) {
    CompileRequest request;
    request.sources.emplace_back("/cukiln/src/k.cu", SharedBytes(text));
    return CompileRequest::digest_of(request.canonical());
  };
  CHECK(request_of(own) != request_of(forged));
  CHECK(cache_key_of("request", set_of("/cukiln/inc/0/a.cuh", own).canonical()) !=
        cache_key_of("request", set_of("/cukiln/inc/0/a.cuh", forged).canonical()));
}

TEST_CASE_FIXTURE(Fixture, "fault 94: the clock of a record is read before the file is opened") {
  // A clock that writes the file when it is read.
  struct WritingClock final : Clock {
    const ScratchFolder& scratch;
    explicit WritingClock(const ScratchFolder& folder) : scratch(folder) {}
    std::int64_t now_ns() const noexcept override {
      scratch.write("first/a.cuh", "two");
      return 4'000'000'000'000'000'000;
    }
  } const writing(scratch);
  scratch.write("first/a.cuh", "one");
  FileServer files({{"/cukiln/inc/0", {scratch / "first"}}}, &stats, writing);
  CHECK(files.serve("/cukiln/inc/0/a.cuh").bytes.view() == "two");
  const auto records = stats.take_new();
  REQUIRE(records.size() == 1);
  CHECK(records[0].digest == hash_of("two"));
}

// fault 93
TEST_CASE_FIXTURE(Fixture,
                  "stamps are used only on file systems where they tell versions of a file apart") {
  const std::string path = scratch.write("first/a.cuh", "one");
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  const FileStamp stamp = stamp_of(status);
  const auto is_used = [&](StatCache::Reliable reliable) {
    StatCache cache(reliable);
    cache.put({path, stamp, hash_of("recorded"), {}, stamp.ctime_ns + 5'000'000'000});
    FileServer files({{"/cukiln/inc/0", {scratch / "first"}}}, &cache, clock);
    const bool recorded = files.check(set_of("/cukiln/inc/0/a.cuh", "recorded")).what == What::none;
    CHECK(recorded == cache.find(path, stamp).has_value());
    CHECK(recorded != (files.check(set_of("/cukiln/inc/0/a.cuh", "one")).what == What::none));
    return recorded;
  };
  CHECK(is_used([](const std::string&) { return true; }));
  CHECK_FALSE(is_used([](const std::string&) { return false; }));
}

// fault 340
TEST_CASE_FIXTURE(Fixture, "another file system at the place of one whose stamps were reliable") {
  const std::string result = with_own_mounts([&] {
    // Overlays and tmpfs take their device numbers from one set: the tmpfs has the overlay's.
    shell_or_end("cd '" + scratch.path() +
                 "' && mkdir disk first && mke2fs -qF -t ext4 image 8m >/dev/null && "
                 "mount -o loop image disk && mkdir disk/lower disk/upper disk/work && "
                 "echo one >disk/lower/a.cuh && mount -t overlay overlay -o lowerdir=$PWD/disk/"
                 "lower,upperdir=$PWD/disk/upper,workdir=$PWD/disk/work first");
    const auto is_record_used = [&] {
      const std::string path = scratch / "first/a.cuh";
      stats.put({path, status_of(path)->stamp, hash_of("recorded"), {}, clock.now});
      return server().check(set_of("/cukiln/inc/0/a.cuh", "recorded")).what == What::none;
    };
    const auto device = [&] { return status_of(scratch / "first")->stamp.device; };
    const std::uint64_t device_of_overlay = device();
    const std::string before = is_record_used() ? "used, " : "not used, ";
    shell_or_end("cd '" + scratch.path() +
                 "' && umount first && mount -t tmpfs tmpfs first && echo two >first/a.cuh");
    if (status_of(scratch / "first")->mount == 0 || device() != device_of_overlay) {
      return std::string("another device number");
    }
    return before + (is_record_used() ? "used" : "not used");
  });
  if (result.empty() || result == "another device number") {
    MESSAGE("skipped: ", result.empty() ? "this process may not mount an image" : result);
    return;
  }
  CHECK(result == "used, not used");
}

// fault 42
TEST_CASE_FIXTURE(Fixture, "a set no longer holds after a header vanishes or appears") {
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
                  "fault 44: a header that is a FIFO is reported as an error without blocking") {
  scratch.write("first/x", "");
  REQUIRE(::mkfifo((scratch / "first/fifo.cuh").c_str(), 0600) == 0);
  auto files = server();
  const FileAnswer& answer = files.serve("/cukiln/inc/0/fifo.cuh");
  CHECK(answer.kind == FileAnswer::Kind::error);
  CHECK(answer.message.find("regular file") != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "a header appears below a folder that was absent in an earlier check") {
  scratch.write("first/here.cuh", "here");
  DependencySet set;
  for (int i = 0; i < 40; ++i) {
    const std::string number = std::to_string(i);
    set.add_absent("/cukiln/inc/0/cuda/std/" + std::to_string(i % 3) + "/" + number + ".h");
    set.add_absent("/cukiln/inc/0/cuda" + number + ".h");  // beside it
  }
  set.add_file("/cukiln/inc/0/here.cuh", hash_of("here"));
  auto files = server();
  CHECK(files.check(set).what == What::none);
  scratch.write("first/cuda39.h", "beside");
  CHECK(files.check(set).path == "/cukiln/inc/0/cuda39.h");
  std::filesystem::remove(scratch / "first/cuda39.h");
  scratch.write("first/cuda/std/0/39.h", "below");
  CHECK(files.check(set).path == "/cukiln/inc/0/cuda/std/0/39.h");
  CHECK(files.check_all(set).size() == 1);
}

TEST_CASE_FIXTURE(Fixture, "a memory file takes precedence over the disk") {
  scratch.write("first/a.cuh", "disk");
  auto files = server();
  files.add_memory_file("/cukiln/inc/0/a.cuh", SharedBytes("memory"));
  CHECK(files.serve("/cukiln/inc/0/a.cuh").bytes.view() == "memory");
  CHECK(files.check(set_of("/cukiln/inc/0/a.cuh", "memory")).what == What::none);
}

TEST_CASE_FIXTURE(Fixture,
                  "a set is checked against memory files and not against the disk below them") {
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
  CHECK(in_memory().check(folder).what == What::vanished);  // it is a file now
}

TEST_CASE_FIXTURE(Fixture, "a lookup does not reuse the labels of an earlier one") {
  scratch.write("first/a.cuh", "one");
  REQUIRE(server().check(set_of("/cukiln/inc/0/a.cuh", "one")).what == What::none);
  auto files = server();  // reads no file: the stat cache has its digest
  CHECK(FileCheck(files).label("/cukiln/inc/0/a.cuh") ==
        SetTree::label_of(Observation::Kind::file, hash_of("one")));
  scratch.write("first/a.cuh", "other");
  CHECK_FALSE(FileCheck(files).holds(set_of("/cukiln/inc/0/a.cuh", "one"), true));
}

TEST_CASE_FIXTURE(Fixture,
                  "a root without a toolkit counts as recorded, the user's files never do") {
  scratch.write("first/a.cuh", "one");
  const std::vector<VirtualRoot> roots = {{"/cukiln/inc/0", {scratch / "first"}},
                                          {"/cukiln/toolkit", {}, true}};
  FileServer files(roots, &stats, clock);
  DependencySet set = set_of("/cukiln/inc/0/a.cuh", "one");  // identity 0
  set.add_absent("/cukiln/inc/0/cuda_fp16.h");
  set.add_file("/cukiln/toolkit/cuda_fp16.h", hash_of("CUDA's"));
  set.add_file("/cukiln/toolkit/linked.h", hash_of("CUDA's"), 1);  // the same file
  set.add_folder("/cukiln/toolkit/cccl");
  set.add_absent("/cukiln/toolkit/cccl/cuda_fp16.h");
  CHECK(files.check(set).what == What::none);
  CHECK(files.check_all(set).empty());
  CHECK_FALSE(FileCheck(files).label("/cukiln/toolkit/cuda_fp16.h").has_value());
  CHECK_FALSE(files.is_as_recorded("/cukiln/toolkits/a.h"));
  CHECK(server().check(set).path == "/cukiln/toolkit/cuda_fp16.h");  // where they are checked

  SUBCASE("a file of the user changes") {
    scratch.write("first/a.cuh", "other");
    CHECK(FileServer(roots, &stats, clock).check(set).path == "/cukiln/inc/0/a.cuh");
  }
  SUBCASE("a file of the user appears before the toolkit's") {
    scratch.write("first/cuda_fp16.h", "the user's");
    const auto found = FileServer(roots, &stats, clock).check(set);
    CHECK(found.what == What::appeared);
    CHECK(found.path == "/cukiln/inc/0/cuda_fp16.h");
  }
  SUBCASE("a file of the user was the same file as one of the toolkit's") {
    scratch.write("first/link.cuh", "CUDA's");
    set.add_file("/cukiln/inc/0/link.cuh", hash_of("CUDA's"), 1);
    CHECK(files.check(set).what == What::relinked);
  }
  SUBCASE("fault 201: standard headers of cukiln's own do not count, served or not") {
    const std::string path = "/cukiln/toolkit/cstdint";
    const DependencySet same = set_of(path, std::string(std_header("cstdint")->text));
    DependencySet absent;
    absent.add_absent(path);
    const FileServer shims({roots[0], {kToolkitRoot, {kStdFolder}, true}}, &stats, clock);
    const auto check = [](FileServer server, const DependencySet& recorded) {
      return server.check(recorded).what;
    };
    CHECK(check(shims, set) == What::none);
    CHECK(check(shims, same) == What::none);
    CHECK(check(shims, set_of(path, "of another version")) == What::changed);
    CHECK(check(shims, absent) == What::appeared);
    CHECK(check(files, same) == What::vanished);
    CHECK(check(files, absent) == What::none);
    for (FileServer server : {shims, files}) {
      CHECK_FALSE(server.is_as_recorded(path));
      CHECK(FileCheck(server).label(path).has_value());
      CHECK(server.is_as_recorded("/cukiln/toolkit/cccl/cstdint"));
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "virtual paths in a log become the user's own") {
  scratch.write("first/a.cuh", "");
  const auto files = server();
  CHECK(files.with_real_paths("/cukiln/inc/0/a.cuh(3): error: x\n\"/cukiln/src/k.cu\" line 1") ==
        (scratch / "first/a.cuh") + "(3): error: x\n\"k.cu\" line 1");
  CHECK(files.with_real_paths("nothing here") == "nothing here");
}
