// SPDX-License-Identifier: Apache-2.0
// Which directories a store uses, and which it refuses.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/store/open_sqlite_store.hpp"

namespace cukiln::testing {
namespace {

struct FakeFacts final : HostFacts {
  int status(const std::string& path, struct stat* out) const override {
    const int failed = HostFacts::status(path, out);
    if (!foreign.empty() && path == foreign) {
      out->st_uid = 12345;
    }
    return failed;
  }
  long file_system_type(const std::string&) const override { return type; }
  std::string foreign;
  long type = 0xEF53;  // ext4
};

std::string refusal(const SqliteStoreOptions& options) {
  const auto store = SqliteStore::open(options);
  REQUIRE_FALSE(store.has_value());
  return store.error().message();
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("directories are 0700 and files 0600, whatever the umask") {
  const ScratchFolder folder;
  const mode_t before = ::umask(0);
  {
    const auto store = open_store_at(folder / "a/b/s");
    put_numbers(*store, 0, 3);
    REQUIRE(store->directory().folder("flights"));
  }
  ::umask(before);
  const std::string root = folder / "a/b/s";
  for (const char* name : {"", "/v6", "/v6/gen-0001", "/v6/flights"}) {
    CAPTURE(name);
    CHECK(mode_of(root + name) == 0700);
  }
  for (const char* name :
       {"CURRENT", "writer.lock", "reserve.bin", "gen-0001/store.db", "gen-0001/store.db-wal",
        "gen-0001/store.db-shm", "gen-0001/inuse.lock"}) {
    CAPTURE(name);
    CHECK(mode_of(root + "/v6/" + name) == 0600);
  }
}

TEST_CASE("fault 35: a directory that others can write is refused, saying chmod 700") {
  const ScratchFolder folder;
  const std::string directory = folder / "s";
  for (const mode_t mode : {0777u, 0770u, 0702u}) {
    REQUIRE((::mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST));
    REQUIRE(::chmod(directory.c_str(), mode) == 0);
    const std::string message = refusal(options_at(directory));
    CHECK(contains(message, "chmod 700 " + directory));
    CHECK(mode_of(directory) == mode);  // never put right behind its owner's back
  }
}

TEST_CASE("fault 35: a store that was opened to others afterwards is refused") {
  const ScratchFolder folder;
  make_checkpointed_store(folder / "s", 1);
  struct Widened {
    const char* name;
    mode_t mode;
    const char* advice;
  };
  for (const Widened& one : {Widened{"s", 0755, "chmod 700"}, Widened{"s/v6", 0755, "chmod 700"},
                             Widened{"s/v6/gen-0001", 0777, "chmod 700"},
                             Widened{"s/v6/gen-0001/store.db", 0644, "chmod 600"},
                             Widened{"s/v6/gen-0001/store.db-wal", 0666, "chmod 600"}}) {
    CAPTURE(one.name);
    const std::string path = folder / one.name;
    const mode_t before = mode_of(path);
    REQUIRE(::chmod(path.c_str(), one.mode) == 0);
    CHECK(contains(refusal(options_at(folder / "s")), one.advice));
    REQUIRE(::chmod(path.c_str(), before) == 0);
  }
  CHECK(count_hits(*open_store_at(folder / "s"), 0, 1) == 1);
}

TEST_CASE("an empty directory that its owner made with the usual umask becomes the store's") {
  const ScratchFolder folder;
  REQUIRE(::mkdir((folder / "s").c_str(), 0755) == 0);
  REQUIRE(::chmod((folder / "s").c_str(), 0755) == 0);
  put_numbers(*open_store_at(folder / "s"), 0, 1);
  CHECK(mode_of(folder / "s") == 0700);
}

// fault 128
TEST_CASE("an empty directory that its owner made read-only stays as it is, and is reported") {
  const ScratchFolder folder;
  for (const mode_t mode : {0555u, 0500u, 0511u}) {
    CAPTURE(mode);
    const std::string directory = folder / ("s" + std::to_string(mode));
    REQUIRE(::mkdir(directory.c_str(), 0700) == 0);
    REQUIRE(::chmod(directory.c_str(), mode) == 0);
    const std::string message = refusal(options_at(directory));
    CHECK(contains(message, "contains no store"));
    CHECK(contains(message, "chmod 700 " + directory));
    CHECK(mode_of(directory) == mode);
    CHECK(::rmdir(directory.c_str()) == 0);  // and is still empty
  }
}

TEST_CASE("fault 10: a directory that its owner made read-only is only read, even by root") {
  const ScratchFolder folder;
  make_checkpointed_store(folder / "s", 2);
  REQUIRE(::chmod((folder / "s").c_str(), 0555) == 0);
  LogRecorder log;
  SqliteStoreOptions options = options_at(folder / "s");
  options.log = log.logger();
  {
    const auto store = open_store_at(options);
    CHECK(store->read_only());
    CHECK(count_hits(*store, 0, 2) == 2);
    CHECK(*store->put(make_entry(5)) == PutOutcome::not_stored);
    CHECK(log.contains("chmod 700 " + (folder / "s")));
  }
  REQUIRE(::chmod((folder / "s").c_str(), 0700) == 0);
  CHECK(count_hits(*open_store_at(folder / "s"), 0, 2) == 2);
}

TEST_CASE("fault 35: what belongs to another user is refused") {
  const ScratchFolder folder;
  make_checkpointed_store(folder / "s", 1);
  FakeFacts facts;
  SqliteStoreOptions options = options_at(folder / "s");
  options.facts = &facts;
  for (const char* name : {"s", "s/v6", "s/v6/gen-0001", "s/v6/gen-0001/store.db"}) {
    CAPTURE(name);
    facts.foreign = folder / name;
    CHECK(contains(refusal(options), "belongs to user 12345"));
  }
}

TEST_CASE("fault 34: a symbolic link in place of anything of ours is refused") {
  const ScratchFolder folder;
  make_checkpointed_store(folder / "s", 1);
  for (const char* name : {"s", "s/v6", "s/v6/gen-0001", "s/v6/gen-0001/store.db"}) {
    CAPTURE(name);
    const std::string path = folder / name;
    const std::string moved = folder / "moved";
    REQUIRE(::rename(path.c_str(), moved.c_str()) == 0);
    REQUIRE(::symlink(moved.c_str(), path.c_str()) == 0);
    CHECK(contains(refusal(options_at(folder / "s")), "symbolic link"));
    REQUIRE(::unlink(path.c_str()) == 0);
    REQUIRE(::rename(moved.c_str(), path.c_str()) == 0);
  }
  CHECK(count_hits(*open_store_at(folder / "s"), 0, 1) == 1);
}

TEST_CASE("fault 34: a symbolic link above the store is followed") {
  const ScratchFolder folder;
  REQUIRE(::mkdir((folder / "real").c_str(), 0700) == 0);
  REQUIRE(::symlink((folder / "real").c_str(), (folder / "link").c_str()) == 0);
  put_numbers(*open_store_at(folder / "link/s"), 0, 1);
  CHECK(count_hits(*open_store_at(folder / "real/s"), 0, 1) == 1);
}

TEST_CASE("a file in place of a directory is refused") {
  const ScratchFolder folder;
  write_all(folder / "s", "text");
  CHECK(contains(refusal(options_at(folder / "s")), "is not a directory"));
}

TEST_CASE("fault 33: a network file system is refused unless it is allowed") {
  const ScratchFolder folder;
  FakeFacts facts;
  SqliteStoreOptions options = options_at(folder / "s");
  options.facts = &facts;
  for (const long type : {0x6969L, 0xFF534D42L, 0x65735546L, 0x01021997L}) {
    facts.type = type;
    CHECK(contains(refusal(options), network_file_system_name(type)));
  }
  options.allow_network_file_system = true;
  CHECK(SqliteStore::open(options).has_value());
}

TEST_CASE("fault 79: foreign files are ignored and never deleted") {
  const ScratchFolder folder;
  make_checkpointed_store(folder / "s", 3);
  const std::vector<std::string> foreign = {"s/lost+found",
                                            "s/v6/.nfs0001",
                                            "s/v6/CURRENT.swp",
                                            "s/v6/gen-x",
                                            "s/v6/gen-0001/notes.txt",
                                            "s/v6/gen-0001/proc-notes",
                                            "s/v6/gen-99999999999999"};
  for (const std::string& name : foreign) {
    write_all(folder / name, "mine");
  }
  const auto store = open_store_at(folder / "s");
  CHECK(count_hits(*store, 0, 3) == 3);
  GcOptions everything;
  everything.max_bytes = 0;
  REQUIRE(store->collect(everything));
  REQUIRE(store->session().start_new_generation(Error(ErrorCode::corrupt, "for the test")));
  REQUIRE(store->collect(everything));
  for (const std::string& name : foreign) {
    CAPTURE(name);
    CHECK(read_all(folder / name) == "mine");
  }
}

TEST_CASE("a relative directory is refused") {
  CHECK(contains(refusal(options_at("cache")), "absolute"));
}

}  // namespace
}  // namespace cukiln::testing
