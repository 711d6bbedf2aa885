// SPDX-License-Identifier: Apache-2.0
#include "core/base/file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <climits>

#include "core/base/hasher.hpp"
#include "support/scratch.hpp"

using namespace cukiln;
using cukiln::testing::ScratchFolder;

TEST_CASE("a file's bytes are read unchanged: NUL, CRLF, BOM, invalid UTF-8, no final newline") {
  const ScratchFolder scratch;
  const std::string text("\xef\xbb\xbf a\r\n\0\xff\xfe b", 12);
  const auto content = read_file(scratch.write("odd", text));
  REQUIRE(content);
  CHECK(content->bytes.view() == text);
  CHECK(content->stamp.size == text.size());
}

TEST_CASE("an absent file is not_found and names its path") {
  const ScratchFolder scratch;
  const auto content = read_file(scratch / "absent");
  REQUIRE_FALSE(content);
  CHECK(content.error().code() == ErrorCode::not_found);
  CHECK(content.error().message().find("absent") != std::string::npos);
}

TEST_CASE("fault 44: a FIFO, a folder and a device are refused without blocking") {
  const ScratchFolder scratch;
  const std::string fifo = scratch / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  for (const std::string& path : {fifo, scratch.path(), std::string("/dev/zero")}) {
    const auto content = read_file(path);
    REQUIRE_FALSE(content);
    CHECK(content.error().code() == ErrorCode::invalid_argument);
  }
}

TEST_CASE("fault 38: a file over the limit is refused before it is read") {
  const ScratchFolder scratch;
  const std::string path = scratch.write("large", "");
  REQUIRE(::truncate(path.c_str(), (64 << 20) + 1) == 0);
  const auto content = read_file(path);
  REQUIRE_FALSE(content);
  CHECK(content.error().code() == ErrorCode::invalid_argument);
  CHECK(content.error().message().find("67108865") != std::string::npos);
}

TEST_CASE("fault 150: a file that grows over the limit while it is read is refused") {
  // A file of /proc has size 0 for stat and its text for read, as a file that grew in between.
  const auto whole = read_file("/proc/version");
  REQUIRE(whole);
  REQUIRE(whole->stamp.size == 0);
  const std::size_t size = whole->bytes.size();
  REQUIRE(size > 2);
  const auto exact = read_file("/proc/version", size);
  REQUIRE(exact);
  CHECK(exact->bytes.view() == whole->bytes.view());
  for (const std::size_t limit : {std::size_t{0}, std::size_t{1}, size - 1}) {
    CAPTURE(limit);
    const auto content = read_file("/proc/version", limit);
    REQUIRE_FALSE(content);
    CHECK(content.error().code() == ErrorCode::invalid_argument);
    CHECK(content.error().message().find("grew over the limit") != std::string::npos);
  }
}

TEST_CASE("an atomic write replaces the whole file, mode 0600, and leaves nothing else") {
  const ScratchFolder scratch;
  const std::string path = scratch.write("f", "old and longer");
  REQUIRE(write_file_atomically(path, "new"));
  CHECK(testing::read_all(path) == "new");
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  CHECK(std::distance(std::filesystem::directory_iterator(scratch.path()), {}) == 1);
  CHECK_FALSE(write_file_atomically(scratch / "no/such/folder", "x"));
}

TEST_CASE("the folder of a path is its parent, or the root") {
  CHECK(folder_of("/usr/lib/libnvrtc.so") == "/usr/lib");
  CHECK(folder_of("build/bin") == "build");
  for (const char* path : {"/vmlinuz", "/", "name", ""}) {
    CAPTURE(path);
    CHECK(folder_of(path) == "/");
  }
}

TEST_CASE("is_within holds for a folder and paths below it, not for paths with the same prefix") {
  CHECK(is_within("/cukiln/inc", "/cukiln/inc"));
  CHECK(is_within("/cukiln/inc/0/a.h", "/cukiln/inc"));
  CHECK_FALSE(is_within("/cukiln/include/a.h", "/cukiln/inc"));
  CHECK_FALSE(is_within("/cukiln", "/cukiln/inc"));
}

TEST_CASE("a file hashed in chunks has the digest of all its bytes") {
  const ScratchFolder scratch;
  for (const std::size_t size : {0, 1, 239, 240, 241, 262'143, 262'144, 262'145, 1'000'000}) {
    CAPTURE(size);
    std::string bytes(size, 'x');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 >> 3);
    const auto hashed = hash_file(scratch.write("f", bytes), 1 << 20);
    REQUIRE(hashed);
    CHECK(hashed->digest == hash_of(bytes));
    CHECK(hashed->stamp == read_file(scratch / "f")->stamp);
  }
  CHECK(hash_file(scratch / "absent", 1).error().code() == ErrorCode::not_found);
  CHECK(hash_file(scratch.path(), 1).error().code() == ErrorCode::invalid_argument);
  CHECK(hash_file(scratch / "f", 999'999).error().code() == ErrorCode::invalid_argument);
}

TEST_CASE("fault 364: a file's name may be as long as the file system lets it be") {
  const ScratchFolder scratch;
  const std::string path = scratch / std::string(NAME_MAX, 'f');
  for (const char* text : {"new", "newer"}) {
    REQUIRE(write_output(path, text));
    CHECK(read_file(path)->bytes.view() == text);
    REQUIRE(write_file_atomically(path, text));
    CHECK(read_file(path)->bytes.view() == text);
  }
}
