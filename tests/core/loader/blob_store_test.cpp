// SPDX-License-Identifier: Apache-2.0
// Blobs by the public interface, over all tiers.
#include <cukiln/blob_store.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "core/store/open_sqlite_store.hpp"
#include "core/store/store_admin.hpp"

#include <cukiln/loader.hpp>

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
  CHECK((*listed)[0].size_bytes == 3);
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

BlobLease lease_of(BlobStore& blobs, std::string_view key) {
  auto blob = blobs.get_or_lease("test", key);
  REQUIRE_MESSAGE(blob.has_value(), blob.error().message());
  REQUIRE(std::holds_alternative<BlobLease>(*blob));
  return std::get<BlobLease>(*std::move(blob));
}

TEST_CASE("fault 246: of 8 threads that miss one blob one makes it") {
  const ScratchFolder folder;
  Store store = open_public(folder / "s");
  BlobStore blobs(store);
  std::atomic<int> made{0};
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto bytes = blobs.get_or_make("test", "k", [&]() -> Result<std::string> {
        ++made;
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        return std::string("made");
      });
      right += bytes && *bytes == "made" ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(made == 1);
  CHECK(right == 8);
  const auto counters = *StoreAdmin(store).counters();
  CHECK(counters.at("blob_misses") == 1);
  CHECK(counters.at("blob_hits") == 7);
}

TEST_CASE("fault 251: a thread that has a lease waits for none, its own included") {
  const ScratchFolder folder;
  Store store = open_public(folder / "s");
  BlobStore blobs(store);
  BlobLease first = lease_of(blobs, "1");
  CHECK(first.exclusive());
  BlobLease again = lease_of(blobs, "1");  // at once
  CHECK_FALSE(again.exclusive());
  std::optional<BlobLease> second;
  std::thread([&] { second = lease_of(blobs, "2"); }).join();
  CHECK(second->exclusive());
  CHECK_FALSE(lease_of(blobs, "2").exclusive());  // the other thread may wait for "1"
  CHECK(first.exclusive());
  REQUIRE(again.put("of the second"));
  CHECK(**blobs.get("test", "1") == "of the second");
  REQUIRE(first.put("of the first"));
  CHECK_FALSE(first.exclusive());
  CHECK(first.put("x").error().code() == ErrorCode::invalid_argument);
  CHECK(**blobs.get("test", "1") == "of the first");
  // Now this thread has none, and waits again, unless the other's lease is older than the limit.
  auto limit = std::chrono::milliseconds(50);
  for (; StoreAdmin(store).counters()->count("blob_waits") == 0; limit *= 2) {
    REQUIRE(limit < kBlobWait);
    CHECK_FALSE(std::get<BlobLease>(*blobs.get_or_lease("test", "2", limit)).exclusive());
  }
  CHECK(StoreAdmin(store).counters()->at("blob_waits") == 1);
}

TEST_CASE("fault 249: what fails to be made is not stored, and the next caller makes it") {
  const ScratchFolder folder;
  Store store = open_public(folder / "s");
  BlobStore blobs(store);
  const auto failed = blobs.get_or_make("test", "k", []() -> Result<std::string> {
    return Error(ErrorCode::compile_failed, "no such kernel");
  });
  CHECK(failed.error().message() == "no such kernel");
  BlobLease next = lease_of(blobs, "k");
  CHECK(next.exclusive());
  next.drop();
  CHECK_FALSE(next.exclusive());
  BlobLease moved = lease_of(blobs, "k");
  CHECK(moved.exclusive());
  moved = lease_of(blobs, "other");
  CHECK(moved.exclusive());
  CHECK(lease_of(blobs, "k").exclusive());  // it was dropped when another took its place
  REQUIRE(moved.put("m"));
  CHECK(lease_of(blobs, "k").exclusive());
}

TEST_CASE("fault 249: a lease whose bytes cannot be stored is at an end") {
  const ScratchFolder folder;
  Store store = open_public(folder / "s");
  BlobStore blobs(store);
  BlobLease lease = lease_of(blobs, "k");
  CHECK_FALSE(lease.put(std::string_view("x", kMaxBlobBytes + 1)));
  CHECK_FALSE(lease.exclusive());
  CHECK(lease_of(blobs, "k").exclusive());
  // Bytes that cannot be stored are of use to who made them.
  Store none = open_public(folder / "none", {}, true);
  BlobStore nowhere(none);
  CHECK_FALSE(lease_of(nowhere, "k").exclusive());
  CHECK(*nowhere.get_or_make("test", "k", [] { return Result<std::string>("made"); }) == "made");
}

TEST_CASE("a wait for another caller's blob is cancelled") {
  const ScratchFolder folder;
  Store store = open_public(folder / "s");
  BlobStore blobs(store);
  BlobLease held = lease_of(blobs, "k");
  const CancelToken token;
  std::optional<Error> error;
  std::thread waits([&] {
    auto got = blobs.get_or_lease("test", "k", kBlobWait, token);
    error = got ? std::optional<Error>() : got.error();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  token.cancel();
  waits.join();
  REQUIRE(error);
  CHECK(error->code() == ErrorCode::timeout);
  CHECK(held.exclusive());
}

TEST_CASE("fault 244: a forked child has no lease, and does not wait for its parent's") {
  const ScratchFolder folder;
  Store store = open_public(folder / "s");
  BlobStore blobs(store);
  BlobLease held = lease_of(blobs, "k");
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const bool is_exclusive = held.exclusive();
    held.drop();
    auto blob = blobs.get_or_lease("test", "k", std::chrono::milliseconds(0));
    const auto* const lease = blob ? std::get_if<BlobLease>(&*blob) : nullptr;
    ::_exit(!is_exclusive && lease != nullptr && !lease->exclusive() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(held.exclusive());
  REQUIRE(held.put("of the parent"));
  CHECK(**blobs.get("test", "k") == "of the parent");
}

TEST_CASE("fault 302: a blob stays for a loader as it was when it was first asked for") {
  const ScratchFolder folder;
  Store store = open_public(folder / "s");
  BlobStore blobs(store);
  std::string log;
  LoaderOptions options;
  options.log = [&](LogLevel, std::string_view text) { log += std::string(text) + "\n"; };
  int checks = 0;
  const auto not_bad = [&](std::string_view bytes) -> Result<void> {
    ++checks;
    return bytes == "bad" ? Result<void>(Error(ErrorCode::invalid_argument, "it is bad"))
                          : Result<void>();
  };
  auto loader = *KernelLoader::create(store, options);
  REQUIRE(blobs.put("k", "good", "1"));
  REQUIRE(blobs.put("k", "damaged", "bad"));
  for (const char* const later : {"2", "3"}) {
    CHECK(**loader.fixed_blob("k", "good", not_bad) == "1");
    CHECK_FALSE(*loader.fixed_blob("k", "damaged", not_bad));
    CHECK_FALSE(*loader.fixed_blob("k", "none", not_bad));
    for (const char* const key : {"good", "damaged", "none"}) {
      REQUIRE(blobs.put("k", key, later));
    }
  }
  CHECK(checks == 2);
  CHECK(log.find("ignored the blob damaged of kind k: it is bad; 'cukiln show ") == 0);
  CHECK(log.find("ignored", 1) == std::string::npos);
  CHECK(loader.fixed_blob("a kind", "good", not_bad).error().code() == ErrorCode::invalid_argument);
  auto next = *KernelLoader::create(store, options);
  CHECK(**next.fixed_blob("k", "damaged", not_bad) == "3");
}

}  // namespace
}  // namespace cukiln::testing
