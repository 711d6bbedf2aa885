// SPDX-License-Identifier: Apache-2.0
// Stores of other versions of the schema, and other copies of the library.
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/hasher.hpp"
#include "core/store/open_sqlite_store.hpp"

namespace cukiln::testing {
namespace {

/// A version after this one: one more column, which this version's statements do not name.
StoreSchema next_schema() {
  StoreSchema schema;
  schema.version = 2;
  schema.steps = {"ALTER TABLE object ADD COLUMN mood TEXT; CREATE TABLE extra(a INTEGER) STRICT"};
  return schema;
}

SqliteStoreOptions with_schema(const std::string& directory, const StoreSchema& schema) {
  SqliteStoreOptions options = options_at(directory);
  options.schema = schema;
  return options;
}

std::int64_t version_of(SqliteStore& store) { return *store.session().schema_version(); }

TEST_CASE("fault 20: a newer store that this version may read and write is used unchanged") {
  const ScratchFolder folder;
  put_numbers(*open_store_at(with_schema(folder / "s", next_schema())), 0, 3);
  const auto store = open_store_at(folder / "s");
  CHECK(version_of(*store) == 2);
  CHECK(count_hits(*store, 0, 3) == 3);
  put_numbers(*store, 3, 3);
  CHECK(version_of(*open_store_at(folder / "s")) == 2);  // never migrated down
}

TEST_CASE("fault 20: a newer store that this version may only read is read") {
  const ScratchFolder folder;
  StoreSchema next = next_schema();
  next.min_writer = 2;
  put_numbers(*open_store_at(with_schema(folder / "s", next)), 0, 3);
  const auto store = open_store_at(folder / "s");
  CHECK(store->read_only());
  CHECK(count_hits(*store, 0, 3) == 3);
  CHECK(*store->put(make_entry(9)) == PutOutcome::not_stored);
  CHECK(store->remove(ObjectName::of(make_entry(0).key)).error().code() == ErrorCode::io);
}

TEST_CASE("fault 20: a newer store that this version may not read is refused and not changed") {
  const ScratchFolder folder;
  StoreSchema next = next_schema();
  next.min_reader = next.min_writer = 2;
  put_numbers(*open_store_at(with_schema(folder / "s", next)), 0, 3);
  const auto refused = SqliteStore::open(options_at(folder / "s"));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::incompatible);
  CHECK(refused.error().message().find("newer cukiln") != std::string::npos);
  CHECK_FALSE(exists(folder / "s/v6/gen-0002"));
  CHECK(count_hits(*open_store_at(with_schema(folder / "s", next)), 0, 3) == 3);
}

/// Changes a store as another program would.
void execute(SqliteStore& store, const char* sql) {
  REQUIRE(store.session().write(std::chrono::seconds(2),
                                [&](SqliteHandle& db) { return db.execute(sql); }));
}

// fault 87
TEST_CASE("wrong rows of meta are named by verify, and repaired by it") {
  for (const char* damage :
       {"UPDATE meta SET v=2 WHERE k='min_reader'", "UPDATE meta SET v='1' WHERE k='min_writer'",
        "UPDATE meta SET k='min_reades' WHERE k='min_reader'", "DELETE FROM meta",
        "UPDATE meta SET v='no uuid' WHERE k='store_uuid'", "INSERT INTO meta VALUES('mood', 1)"}) {
    CAPTURE(damage);
    const ScratchFolder folder;
    put_numbers(*open_store_at(folder / "s"), 0, 1);
    const auto store = open_store_at(folder / "s");
    CHECK(store->verify(false)->damaged == 0);
    execute(*store, damage);
    const auto found = store->verify(false);
    CHECK(found->damaged > 0);
    CHECK(found->findings.front().what.find("of meta is") != std::string::npos);
    const auto repaired = store->verify(true);
    CHECK(repaired->repaired == repaired->damaged);
    CHECK(store->verify(false)->damaged == 0);
    CHECK(count_hits(*store, 0, 1) == 1);
  }
}

// fault 87
TEST_CASE("a newer store whose rows of meta are impossible is not read by an older version") {
  const ScratchFolder folder;
  const auto next = open_store_at(with_schema(folder / "s", next_schema()));
  put_numbers(*next, 0, 1);
  CHECK(open_store_at(folder / "s")->verify(false)->damaged == 0);
  for (const char* damage :
       {"UPDATE meta SET v=65537 WHERE k='min_reader'", "UPDATE meta SET v=0 WHERE k='min_reader'",
        "UPDATE meta SET v='x' WHERE k='min_reader'"}) {
    CAPTURE(damage);
    execute(*next, damage);
    const auto refused = SqliteStore::open(options_at(folder / "s"));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == ErrorCode::incompatible);
    CHECK(next->verify(true)->repaired == 1);
    CHECK(count_hits(*open_store_at(folder / "s"), 0, 1) == 1);
  }
}

TEST_CASE("fault 21: an older store is migrated with all its entries") {
  const ScratchFolder folder;
  put_numbers(*open_store_at(folder / "s"), 0, 3);
  const auto store = open_store_at(with_schema(folder / "s", next_schema()));
  CHECK(version_of(*store) == 2);
  CHECK(count_hits(*store, 0, 3) == 3);
  put_numbers(*store, 3, 1);
  REQUIRE(store->session().read(
      [](SqliteHandle& db) { return db.number("SELECT count(mood) FROM object"); }));
}

TEST_CASE("fault 21: a migration that fails changes nothing") {
  const ScratchFolder folder;
  put_numbers(*open_store_at(folder / "s"), 0, 3);
  StoreSchema broken = next_schema();
  broken.steps = {"ALTER TABLE object ADD COLUMN mood TEXT; INSERT INTO object(name) VALUES(NULL)"};
  CHECK_FALSE(SqliteStore::open(with_schema(folder / "s", broken)).has_value());
  const auto store = open_store_at(folder / "s");
  CHECK(version_of(*store) == 1);
  CHECK(count_hits(*store, 0, 3) == 3);
}

TEST_CASE("fault 22: two versions use one store concurrently") {
  const ScratchFolder folder;
  const auto old_version = open_store_at(folder / "s");
  put_numbers(*old_version, 0, 2);
  const auto new_version = open_store_at(with_schema(folder / "s", next_schema()));
  put_numbers(*new_version, 2, 2);
  put_numbers(*old_version, 4, 2);
  CHECK(count_hits(*old_version, 0, 6) == 6);
  CHECK(count_hits(*new_version, 0, 6) == 6);
}

TEST_CASE(
    "fault 23: a store that another copy of the library has open in this process is refused") {
  const ScratchFolder folder;
  put_numbers(*open_store_at(folder / "s"), 0, 1);
  const auto* const drawn = reinterpret_cast<const char*>(::getauxval(AT_RANDOM));
  const auto random = static_cast<std::int64_t>(hash64({drawn, 16}) & 0xfffff);
  const std::int64_t process = (random << 22 | ::getpid()) << 20;
  const std::int64_t copies = 1 << 20;
  const std::string path = folder / "s/v6/gen-0001/inuse.lock";
  const UniqueFd other(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const auto lock = [&](short type, std::int64_t from, std::int64_t count) {
    struct flock range {};
    range.l_type = type;
    range.l_whence = SEEK_SET;
    range.l_start = from;
    range.l_len = count;
    REQUIRE(::fcntl(other.get(), F_OFD_SETLK, &range) == 0);
  };
  // One byte is this copy's. Those below and above it are other copies', those beyond other
  // processes'.
  const auto refused_beside = [&](std::int64_t byte) {
    lock(F_RDLCK, process + byte, 1);
    const auto opened = SqliteStore::open(options_at(folder / "s"));
    lock(F_UNLCK, 0, 0);
    if (!opened) {
      CHECK(opened.error().code() == ErrorCode::incompatible);
      CHECK(opened.error().message().find("another copy") != std::string::npos);
    }
    return !opened;
  };
  CHECK(refused_beside(0) + refused_beside(1) >= 1);
  CHECK(refused_beside(copies - 2) + refused_beside(copies - 1) >= 1);
  CHECK_FALSE(refused_beside(-1));
  CHECK_FALSE(refused_beside(copies));
  const auto shared = open_store_at(folder / "s");
  CHECK(SqliteStore::open(options_at(folder / "s")).has_value());
}

// fault 97
TEST_CASE("a collection removes the leftovers of killed processes") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  const std::string flights = *store->directory().folder("flights");
  const std::string old_flight = flights + "/" + std::string(64, 'a') + ".lock";
  const std::string new_flight = flights + "/" + std::string(64, 'b') + ".lock";
  const std::string held_flight = flights + "/" + std::string(64, 'c') + ".lock";
  const std::string foreign = flights + "/" + std::string(63, 'd') + ".lock";
  for (const std::string& file : {old_flight, new_flight, held_flight, foreign}) {
    write_all(file, "");
  }
  REQUIRE(std::system(("touch -d '2 minutes ago' " + old_flight + " " + held_flight + " " + foreign)
                          .c_str()) == 0);
  const UniqueFd holder(::open(held_flight.c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(::flock(holder.get(), LOCK_EX | LOCK_NB) == 0);
  write_all(folder / "s/v6/CURRENT.a1B2c3", "gen-00");
  REQUIRE(store->collect({}));
  CHECK_FALSE(exists(old_flight));
  CHECK(exists(new_flight));
  CHECK(exists(held_flight));
  CHECK(exists(foreign));
  CHECK_FALSE(exists(folder / "s/v6/CURRENT.a1B2c3"));
}

}  // namespace
}  // namespace cukiln::testing
