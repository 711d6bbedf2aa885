// SPDX-License-Identifier: Apache-2.0
// The order of the tiers, and tiers that fail.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/store/open_sqlite_store.hpp"
#include "core/store/store_admin.hpp"
#include "core/store/tiered_store.hpp"

#include <cukiln/store.hpp>

namespace cukiln::testing {
namespace {

TieredStore::Options tiers_at(const std::string& directory, const std::string& system = {}) {
  TieredStore::Options options;
  options.store.directory = directory;
  options.store.system_directory = system;
  options.disk.reserve_bytes = 1 << 20;
  return options;
}

std::unique_ptr<TieredStore> open_tiers(TieredStore::Options options) {
  auto store = TieredStore::open(std::move(options));
  REQUIRE_MESSAGE(store.has_value(), store.error().message());
  return *std::move(store);
}

/// Makes a store that all users can read.
void make_system_store(const std::string& directory, std::uint64_t first, std::uint64_t count) {
  put_numbers(*open_store_at(directory), first, count);
  REQUIRE(std::system(("chmod -R a+rX '" + directory + "'").c_str()) == 0);
}

TEST_CASE("a put goes to memory and disk, and is a hit after the store was opened again") {
  const ScratchFolder folder;
  {
    const auto store = open_tiers(tiers_at(folder / "s"));
    CHECK(*store->put(make_entry(1)) == PutOutcome::stored);
    CHECK(store->disk()->stats().entries == 1);
  }
  const auto store = open_tiers(tiers_at(folder / "s"));
  CHECK(count_hits(*store, 1, 1) == 1);
  CHECK(store->disk()->stats().hits == 1);
  CHECK(count_hits(*store, 1, 1) == 1);
  CHECK(store->disk()->stats().hits == 1);  // the second came from memory
  CHECK(store->stats().hits == 2);
}

TEST_CASE("a hit in memory shares the image and counts as a use on disk") {
  const ScratchFolder folder;
  {
    const auto store = open_tiers(tiers_at(folder / "s"));
    CHECK(*store->put(make_entry(1)) == PutOutcome::stored);
    const auto first = store->get(make_entry(1).key);
    const auto second = store->get(make_entry(1).key);
    CHECK((**first).cubin.image.data() == (**second).cubin.image.data());
  }
  CHECK(open_tiers(tiers_at(folder / "s"))->list()->front().hits == 2);
}

TEST_CASE("hits of the system store are cached in memory, never on the user's disk") {
  const ScratchFolder folder;
  make_system_store(folder / "system", 0, 3);
  const auto store = open_tiers(tiers_at(folder / "s", folder / "system"));
  REQUIRE(store->system() != nullptr);
  CHECK(store->system()->read_only());
  CHECK(count_hits(*store, 0, 3) == 3);
  CHECK(store->disk()->stats().entries == 0);
  CHECK(store->list()->size() == 3);
  CHECK(*store->put(make_entry(5)) == PutOutcome::stored);
  CHECK(store->system()->stats().entries == 3);
  CHECK(*store->source_text(make_entry(2).key) == make_entry(2).source_text);
  const StoreEntry entry = make_entry(1);
  CHECK(store->list_sets(entry.request, entry.request_canonical)->size() == 1);
}

TEST_CASE(
    "fault 356: damage in a system store is passed over, and the user's store keeps the result") {
  for (const char* damage : {"UPDATE object SET check128=randomblob(16) WHERE id=2",
                             "UPDATE request SET check128=randomblob(16) WHERE id=2"}) {
    CAPTURE(damage);
    const ScratchFolder folder;
    {
      const auto store = open_store_at(folder / "system");
      put_numbers(*store, 0, 3);
      REQUIRE(store->session().write(std::chrono::seconds(2),
                                     [&](SqliteHandle& db) { return db.execute(damage); }));
    }
    REQUIRE(std::system(("chmod -R a+rX '" + (folder / "system") + "'").c_str()) == 0);
    LogRecorder log;
    TieredStore::Options options = tiers_at(folder / "s", folder / "system");
    options.store.log = log.sink();
    {
      const auto store = open_tiers(options);
      REQUIRE(store->system() != nullptr);
      for (int round = 0; round < 2; ++round) {
        CHECK_FALSE(finds(*store, make_entry(1)));
      }
      CHECK(log.contains("of the system store is passed over"));
      CHECK(finds(*store, make_entry(0)));
      CHECK(finds(*store, make_entry(2)));
      CHECK(*store->put(make_entry(1)) == PutOutcome::stored);
      CHECK(store->disk()->stats().entries == 1);
      CHECK(store->system()->stats().entries == 3);
    }
    const std::size_t warnings = log.warnings();
    CHECK(finds(*open_tiers(options), make_entry(1)));
    CHECK(log.warnings() == warnings);
  }
}

/// Shows all files as those of one user, who runs the test.
struct OwnedBy final : HostFacts {
  explicit OwnedBy(uid_t user) : owner(user) {}
  int status(const std::string& path, struct stat* out) const override {
    const int failed = HostFacts::status(path, out);
    out->st_uid = owner;
    return failed;
  }
  uid_t user() const override { return owner; }
  uid_t owner;
};

TEST_CASE("fault 407: headers of CUDA are trusted by what a tier knows of an entry's compile") {
  const std::string key = "fleet:" + std::string(43, 'A') + "=";
  StoreEntry own = make_entry(1);
  StoreEntry imported = make_entry(2);
  imported.origin = Origin::imported;
  imported.signer = key;
  StoreEntry vouched = make_entry(3);
  vouched.origin = Origin::imported;
  vouched.signer = std::string(kOwnToolkit) + " " + key;
  const ScratchFolder folder;
  const auto trusted = [&](TieredStore::Options options) {
    std::string text;
    for (const bool again : {false, true}) {  // at first from the tier, then from memory
      const auto store = open_tiers(options);
      for (int use = again ? 0 : 1; use < 2; ++use) {
        text.clear();
        for (const StoreEntry& entry : {own, imported, vouched}) {
          CHECK(finds(*store, entry));
          text += finds(*store, entry, false) ? "+" : "-";
        }
      }
    }
    return text;
  };
  {
    const auto store = open_tiers(tiers_at(folder / "own"));
    for (const StoreEntry& entry : {own, imported, vouched}) {
      CHECK(*store->put(entry) == PutOutcome::stored);
    }
  }
  CHECK(trusted(tiers_at(folder / "own")) == "+-+");
  REQUIRE(std::system(("cp -r '" + folder / "own" + "' '" + folder / "system" +
                       "' && chmod -R go=rX '" + folder / "system" + "'")
                          .c_str()) == 0);
  TieredStore::Options options = tiers_at(folder / "empty", folder / "system");
  const OwnedBy no_root(12345);
  options.disk.facts = &no_root;
  CHECK(trusted(options) == "--+");  // where the store came from is not known
  const OwnedBy of_root(0);
  options.disk.facts = &of_root;
  CHECK(trusted(options) == "+++");
}

TEST_CASE("fault 407: an entry that is vouched for replaces one that is not") {
  const std::string key = "fleet:" + std::string(43, 'A') + "=";
  const ScratchFolder folder;
  StoreEntry entry = make_entry(1);
  entry.origin = Origin::remote;
  entry.signer = key;
  CHECK(*open_tiers(tiers_at(folder / "s"))->put(entry) == PutOutcome::stored);
  entry.signer = std::string(kOwnToolkit) + " " + key;
  CHECK(*open_tiers(tiers_at(folder / "s"))->put(entry) == PutOutcome::stored);
  entry.signer = key;
  CHECK(*open_tiers(tiers_at(folder / "s"))->put(entry) == PutOutcome::already_there);
  const auto store = open_tiers(tiers_at(folder / "s"));
  CHECK(finds(*store, entry, false));
  CHECK(store->list()->size() == 1);
}

TEST_CASE("the sets of a request are listed from every tier, each once") {
  const ScratchFolder folder;
  make_system_store(folder / "system", 0, 1);
  const auto store = open_tiers(tiers_at(folder / "s", folder / "system"));
  CHECK(store->put(make_entry(0, {20'000, 1})).has_value());
  CHECK(store->get(make_entry(0).key)->has_value());
  const StoreEntry any = make_entry(0);
  CHECK(store->list_sets(any.request, any.request_canonical)->size() == 2);
}

TEST_CASE("fault 35: a system store that others can write is not used") {
  const ScratchFolder folder;
  make_system_store(folder / "system", 0, 3);
  REQUIRE(std::system(("chmod -R o+w '" + (folder / "system") + "'").c_str()) == 0);
  LogRecorder log;
  TieredStore::Options options = tiers_at(folder / "s", folder / "system");
  options.store.log = [logger = log.logger()](LogLevel, std::string_view text) {
    logger.warn("{}", text);
  };
  const auto store = open_tiers(options);
  CHECK(store->system() == nullptr);
  CHECK(count_hits(*store, 0, 3) == 0);
  CHECK(log.contains("the system store is not used"));
  CHECK(log.contains("chmod go-w"));
}

TEST_CASE("a directory that cannot be trusted makes the store memory-only, with one warning") {
  const ScratchFolder folder;
  REQUIRE(::mkdir((folder / "s").c_str(), 0700) == 0);
  REQUIRE(::chmod((folder / "s").c_str(), 0777) == 0);
  LogRecorder log;
  TieredStore::Options options = tiers_at(folder / "s");
  options.store.log = [logger = log.logger()](LogLevel, std::string_view text) {
    logger.warn("{}", text);
  };
  const auto store = open_tiers(options);
  CHECK(store->bypass_reason().find("chmod 700") != std::string::npos);
  CHECK(log.count() == 1);
  CHECK(store->lock_folder().empty());
  CHECK(*store->put(make_entry(1)) == PutOutcome::not_stored);
  CHECK(count_hits(*store, 1, 1) == 1);
  CHECK(StoreAdmin(*store).verify(false).error().message().find("chmod 700") != std::string::npos);
  CHECK(log.count() == 1);
  store->count("compiles");
  CHECK((*store->counters())["compiles"] == 1);
}

// fault 26
/// A disk on which something is in the way for a time.
struct ObstructedFacts final : HostFacts {
  int status(const std::string& path, struct stat* out) const override {
    ++queries;
    const int failed = HostFacts::status(path, out);
    if (is_obstructed) {
      out->st_uid += 1;
    }
    return failed;
  }
  bool is_obstructed = true;
  mutable int queries = 0;
};

TEST_CASE("fault 349: a store that could not be opened is opened by a later put") {
  const ScratchFolder folder;
  ObstructedFacts facts;
  LogRecorder log;
  TieredStore::Options options = tiers_at(folder / "s");
  options.disk.facts = &facts;
  options.store.log = log.sink();
  options.reopen_after = std::chrono::milliseconds(0);
  const auto store = open_tiers(options);
  CHECK_FALSE(store->bypass_reason().empty());
  CHECK(*store->put(make_entry(1)) == PutOutcome::not_stored);
  const StoreBlob blob = make_blob("tests", "key", "bytes");
  CHECK_FALSE(store->put(blob));
  facts.is_obstructed = false;
  CHECK(*store->put(make_entry(2)) == PutOutcome::stored);
  CHECK(store->bypass_reason().empty());
  CHECK(store->put(blob));
  CHECK(count_hits(*store, 1, 2) == 2);
  CHECK(count_hits(*open_store_at(folder / "s"), 1, 2) == 1);
  CHECK(log.warnings() == 1);
  CHECK(log.contains("kernels are kept on disk again"));

  facts.is_obstructed = true;
  options.reopen_after = std::chrono::hours(1);
  const auto patient = open_tiers(options);
  const int queries = facts.queries;
  CHECK(*patient->put(make_entry(3)) == PutOutcome::not_stored);
  CHECK(facts.queries == queries);
}

TEST_CASE("fault 349: a store that was read-only when it was opened is written once it is not") {
  const ScratchFolder folder;
  put_numbers(*open_store_at(folder / "s"), 1, 1);
  REQUIRE(::chmod((folder / "s").c_str(), 0500) == 0);
  TieredStore::Options options = tiers_at(folder / "s");
  options.reopen_after = std::chrono::milliseconds(0);
  const auto store = open_tiers(options);
  SqliteStore* const read_only = store->disk();
  CHECK(*store->put(make_entry(2)) == PutOutcome::not_stored);
  CHECK(store->disk() == read_only);
  REQUIRE(::chmod((folder / "s").c_str(), 0700) == 0);
  CHECK(*store->put(make_entry(3)) == PutOutcome::stored);
  CHECK_FALSE(store->read_only());
  CHECK(count_hits(*store, 1, 1) == 1);
  CHECK(read_only->list()->size() == 2);  // who has it goes on
}

TEST_CASE("a stuck writer is waited for once, then the circuit breaker is open") {
  const ScratchFolder folder;
  TieredStore::Options options = tiers_at(folder / "s");
  options.disk.write_wait = std::chrono::milliseconds(3000);
  const auto store = open_tiers(options);
  CHECK(store->put(make_entry(0)).has_value());
  const auto stuck = FileLock::acquire(folder / "s/v6/writer.lock", FileLock::Mode::exclusive,
                                       std::chrono::milliseconds(100));
  REQUIRE(stuck);
  CHECK(store->put(make_entry(1)).error().code() == ErrorCode::timeout);
  CHECK(store->stats().errors == 1);
  CHECK(store->put(make_entry(2)).error().code() == ErrorCode::timeout);
  CHECK(store->stats().errors == 1);     // the disk's tier was not tried
  CHECK(count_hits(*store, 0, 3) == 3);  // all served, the last two from memory
}

// fault 5
TEST_CASE("entries that cannot be stored give one warning, and one reason") {
  const ScratchFolder folder;
  LogRecorder log;
  TieredStore::Options options = tiers_at(folder / "s");
  options.disk.write_wait = std::chrono::milliseconds(20);
  options.store.log = log.sink();
  const auto store = open_tiers(options);
  const auto stuck = FileLock::acquire(folder / "s/v6/writer.lock", FileLock::Mode::exclusive,
                                       std::chrono::milliseconds(100));
  REQUIRE(stuck);
  const std::string reason = store->put(make_entry(0)).error().message();
  CHECK(reason.find("writer.lock") != std::string::npos);
  for (std::uint64_t i = 1; i < 36; ++i) {
    const auto outcome = store->put(make_entry(i));
    REQUIRE_FALSE(outcome);
    CHECK(outcome.error().message() == reason);
  }
  CHECK(log.warnings() == 1);
  CHECK(log.contains("kernel_0 is not stored: " + reason));
}

TEST_CASE("warnings about failed puts are rare, and count the failures between them") {
  PutFailures failures;
  CHECK_FALSE(failures.last());
  const PutFailures::Time start{};
  CHECK(*failures.add(Error(ErrorCode::io, "first"), start) == 0);
  for (int i = 0; i < 35; ++i) {
    CHECK_FALSE(failures.add(Error(ErrorCode::io, "second"), start + std::chrono::seconds(i)));
  }
  CHECK(failures.last()->message() == "second");
  CHECK(*failures.add(Error(ErrorCode::io, "third"), start + PutFailures::kInterval) == 35);
  CHECK_FALSE(failures.add(Error(ErrorCode::io, "fourth"), start + PutFailures::kInterval));
}

TEST_CASE("fault 282: a blob is not used once a key that signed it is revoked or gets a scope") {
  const ScratchFolder folder;
  const std::string stolen = "stolen:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
  const std::string scoped = "scoped:BAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
  const auto put = [](TieredStore& tiers, const char* key, const std::string& signer) {
    const auto stored = tiers.put(make_blob("triton", key, key, signer));
    REQUIRE_MESSAGE(stored.has_value(), stored.error().message());
  };
  const auto get = [](TieredStore& store, const char* key) {
    const BlobName name = *BlobName::make("triton", key);
    const auto found = *store.get(name);
    CHECK(store.contains(name) == found.has_value());
    return found ? std::string(found->bytes) : "none";
  };
  {
    const auto store = open_tiers(tiers_at(folder / "s"));
    put(*store, "own", "");
    put(*store, "stolen", stolen + " " + scoped);
    put(*store, "scoped", scoped);
    put(*store, "unsigned", "unsigned");
    for (const char* key : {"own", "stolen", "scoped", "unsigned"}) {
      CHECK(get(*store, key) == key);
    }
    CHECK(store->list_blobs("")->at(1).signer == stolen + " " + scoped);
  }
  TieredStore::Options options = tiers_at(folder / "s");
  options.store.revoked_keys = {stolen};
  options.store.scoped_keys = {scoped + " modules=triton"};
  const auto store = open_tiers(options);
  CHECK(get(*store, "own") == "own");
  CHECK(get(*store, "unsigned") == "unsigned");
  CHECK(get(*store, "stolen") == "none");
  CHECK(get(*store, "scoped") == "none");
  // What is made here again takes its place; what comes from elsewhere does too.
  put(*store, "scoped", "");
  CHECK(get(*store, "scoped") == "scoped");
  StoreAdmin admin(*store);
  CHECK(*admin.put(make_blob("triton", "stolen", "anew", "unsigned")) == PutOutcome::stored);
  CHECK(get(*store, "stolen") == "anew");
  CHECK(*admin.put(make_blob("triton", "own", "other", "unsigned")) == PutOutcome::already_there);
  CHECK(get(*store, "own") == "own");
  CHECK_FALSE(admin.put(make_blob("a kind", "own", "")));
  put(*store, "stolen", stolen);
  CHECK(*admin.remove_revoked() == 1);
  CHECK(store->list_blobs("")->size() == 3);
}

TEST_CASE("the same directory twice is one tier") {
  const ScratchFolder folder;
  const auto store = open_tiers(tiers_at(folder / "s", folder / "s"));
  CHECK(store->disk() != nullptr);
  CHECK(store->system() == nullptr);
}

TEST_CASE("the lock folder is in the user's store") {
  const ScratchFolder folder;
  const auto store = open_tiers(tiers_at(folder / "s"));
  CHECK(store->lock_folder() == folder / "s/v6/flights");
  CHECK(mode_of(folder / "s/v6/flights") == 0700);
}

TEST_CASE("facts have the values that doctor shows") {
  const ScratchFolder folder;
  const auto store = open_tiers(tiers_at(folder / "s"));
  CHECK(store->put(make_entry(1)).has_value());
  const StoreFacts facts = StoreAdmin(*store).facts();
  CHECK(facts.directory == folder / "s/v6");
  CHECK(facts.generation == "gen-0001");
  CHECK(facts.schema == 1);
  CHECK(facts.entries == 1);
  CHECK(facts.bytes > 20'000);
  CHECK_FALSE(facts.sqlite_version.empty());
}

}  // namespace
}  // namespace cukiln::testing
