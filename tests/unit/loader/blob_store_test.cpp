// SPDX-License-Identifier: Apache-2.0
// Blobs by the public interface, over all tiers.
#include <cukiln/blob_store.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "store/store_admin.hpp"
#include "unit/store/open_sqlite_store.hpp"

namespace cukiln::testing {
namespace {

Store open_public(const std::string& directory, const std::string& system = {},
                  bool memory_only = false) {
  StoreOptions options;
  options.directory = directory;
  options.system_directory = system;
  options.daemon = DaemonUse::off;
  options.memory_only = memory_only;
  auto store = Store::open(options);
  REQUIRE_MESSAGE(store.has_value(), store.error().message());
  return *std::move(store);
}

TEST_CASE("a blob has the bytes that were put last, in this process and the next") {
  const ScratchFolder folder;
  const std::string zero_bytes("\0a\0", 3);
  {
    Store store = open_public(folder / "s");
    BlobStore blobs(store);
    CHECK_FALSE(*blobs.get("triton", "k"));
    CHECK_FALSE(*blobs.contains("triton", "k"));
    REQUIRE(blobs.put("triton", "k", "old"));
    REQUIRE(blobs.put("triton", "k", zero_bytes));
    REQUIRE(blobs.put("triton", zero_bytes, ""));
    REQUIRE(blobs.put("inductor", "k", "another kind"));
    CHECK(*blobs.contains("triton", "k"));
  }
  Store store = open_public(folder / "s");
  BlobStore blobs(store);
  CHECK(**blobs.get("triton", "k") == zero_bytes);
  CHECK(**blobs.get("triton", zero_bytes) == "");
  CHECK(**blobs.get("inductor", "k") == "another kind");
  const auto listed = blobs.list("triton");
  REQUIRE(listed->size() == 2);
  CHECK((*listed)[0].key == "k");
  CHECK((*listed)[0].bytes == 3);
  CHECK((*listed)[1].key == zero_bytes);
  CHECK(blobs.list()->size() == 3);
  CHECK(*blobs.remove("triton", "k"));
  CHECK_FALSE(*blobs.remove("triton", "k"));
  CHECK_FALSE(*blobs.get("triton", "k"));
  CHECK(**blobs.get("inductor", "k") == "another kind");
}

TEST_CASE("fault 240: kinds, keys and sizes that no blob may have are refused, and say the limit") {
  const ScratchFolder folder;
  Store store = open_public(folder / "s");
  BlobStore blobs(store);
  const std::string mebibyte(1 << 20, 'k');
  const auto refused = [](const auto& result, const char* what) {
    REQUIRE_FALSE(result);
    CHECK(result.error().code() == ErrorCode::invalid_argument);
    CHECK_MESSAGE(result.error().message().find(what) != std::string::npos,
                  result.error().message());
  };
  refused(blobs.put("k", mebibyte, "x"), "1048576 bytes; expected 1 to 4096");
  refused(blobs.get("k", mebibyte), "1048576 bytes");
  refused(blobs.contains("k", ""), "0 bytes");
  refused(blobs.remove("", "key"), "the kind of a blob is \"\"");
  refused(blobs.list("a kind"), "a kind");
  refused(blobs.get(std::string(65, 'k'), "key"), "expected 1 to 64");
  REQUIRE(blobs.put(std::string(64, 'k'), mebibyte.substr(0, 4096), "x"));
  // No byte of it may be read: there is only one.
  refused(blobs.put("k", "key", std::string_view("x", 1u << 30)), "1073741824 bytes; at most");
}

TEST_CASE("fault 244: parent and child both use blobs after a fork") {
  const ScratchFolder folder;
  Store store = open_public(folder / "s");
  BlobStore blobs(store);
  REQUIRE(blobs.put("test", "before", "b"));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const auto found = blobs.get("test", "before");
    ::_exit(found && *found == "b" && blobs.put("test", "in the child", "c") ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(**blobs.get("test", "in the child") == "c");
  REQUIRE(blobs.put("test", "after", "a"));
  CHECK(StoreAdmin(store).verify(false)->damaged == 0);
}

TEST_CASE("blobs of the system store are read, and never changed") {
  const ScratchFolder folder;
  {
    Store store = open_public(folder / "system");
    REQUIRE(BlobStore(store).put("test", "1", "of the system"));
  }
  REQUIRE(std::system(("chmod -R a+rX '" + (folder / "system") + "'").c_str()) == 0);
  Store store = open_public(folder / "s", folder / "system");
  BlobStore blobs(store);
  CHECK(**blobs.get("test", "1") == "of the system");
  CHECK(*blobs.contains("test", "1"));
  CHECK_FALSE(*blobs.remove("test", "1"));
  REQUIRE(blobs.put("test", "1", "of the user"));
  CHECK(**blobs.get("test", "1") == "of the user");
  CHECK(blobs.list()->size() == 1);
  CHECK(*blobs.remove("test", "1"));
  CHECK(**blobs.get("test", "1") == "of the system");
  const auto counters = StoreAdmin(store).counters();
  CHECK(counters->at("blob_hits") == 3);
  CHECK(counters->at("blobs_stored") == 1);
}

TEST_CASE("fault 245: without a store on disk a blob is a miss, and a put says why") {
  const ScratchFolder folder;
  Store store = open_public(folder / "s", {}, true);
  BlobStore blobs(store);
  CHECK_FALSE(*blobs.get("test", "1"));
  CHECK_FALSE(*blobs.contains("test", "1"));
  CHECK(blobs.list()->empty());
  CHECK_FALSE(*blobs.remove("test", "1"));
  const auto refused = blobs.put("test", "1", "x");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::io);
  CHECK(refused.error().message().find("memory only") != std::string::npos);
}

}  // namespace
}  // namespace cukiln::testing
