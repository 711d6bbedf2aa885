// SPDX-License-Identifier: Apache-2.0
// A store that an earlier build of this format wrote opens, and holds what was put into it; one of
// another format is ignored.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/store/sqlite_store.hpp"
#include "support/golden_entries.hpp"
#include "support/paths.hpp"

namespace cukiln::testing {
namespace {

std::string copy_of_golden(const ScratchFolder& folder) {
  std::string copy = folder / "s";
  // Git keeps no modes: a checkout under the usual umask is open to others.
  const std::string command = "mkdir '" + copy + "' && cp -r '" + testing::sources() +
                              "/cache/golden/v6' '" + copy + "' && chmod -R u+rwX,go= '" + copy +
                              "'";
  REQUIRE(std::system(command.c_str()) == 0);
  return copy;
}

TEST_CASE("the golden store holds its entries byte for byte") {
  const ScratchFolder folder;
  SqliteStoreOptions options;
  options.directory = copy_of_golden(folder);
  LogSink no_warning = [](LogLevel, std::string_view message) { FAIL_CHECK(std::string(message)); };
  options.log = Logger(no_warning);
  auto store = SqliteStore::open(options);
  REQUIRE_MESSAGE(store.has_value(), store.error().message());

  const std::vector<StoreEntry> entries = golden_entries();
  CHECK((*store)->stats().entries == entries.size());
  for (const StoreEntry& entry : entries) {
    CAPTURE(entry.labels.name);
    const auto found = (*store)->get(entry.key);
    REQUIRE(found);
    REQUIRE(found->has_value());
    CHECK(same_content(**found, entry));
    CHECK((**found).compile_us == entry.compile_us);
    CHECK((**found).created_s == FakeClock().now_s());
    CHECK(*(*store)->source_text(entry.key) == entry.source_text);
  }
  const StoreEntry& twice = entries[1];
  CHECK(finds(**store, twice));
  CHECK(finds(**store, entries[0]));
  const auto sets = (*store)->list_sets(twice.request, twice.request_canonical);
  REQUIRE(sets);
  REQUIRE(sets->size() == 2);
  CHECK(sets->front().key == twice.key);

  const StoreBlob blob = golden_blob();
  CHECK((**(*store)->get(*BlobName::make(blob.kind, blob.key))).bytes == blob.bytes);
  CHECK((*store)->peak_bytes(entries[2].request) == entries[2].peak_bytes);

  const StatRecord record = golden_stat_record();
  const auto remembered = (*store)->find_stat_record(record.path);
  REQUIRE(remembered);
  CHECK(remembered->stamp == record.stamp);
  CHECK(remembered->digest == record.digest);
  CHECK((*(*store)->counters())["compiles"] == 5);
  CHECK((*store)->verify(false)->damaged == 0);
  CHECK((*store)->session().rebuilds() == 0);
}

TEST_CASE("the golden store can be written by this version") {
  const ScratchFolder folder;
  SqliteStoreOptions options;
  options.directory = copy_of_golden(folder);
  const auto store = *SqliteStore::open(options);
  CHECK(*store->put(make_entry(77)) == PutOutcome::stored);
  CHECK(*store->put(golden_entries()[0]) == PutOutcome::already_there);
}

// fault 124
TEST_CASE("a store of another format is ignored: not read, not written, not removed") {
  for (const char* other : {"/v2", "/v5", "/v7", "/v66"}) {
    CAPTURE(other);
    const ScratchFolder folder;
    SqliteStoreOptions options;
    options.directory = copy_of_golden(folder);
    const std::string there = options.directory + other;
    std::filesystem::rename(options.directory + "/v6", there);
    const auto listing = [&] {
      std::string all;
      for (const auto& item : std::filesystem::recursive_directory_iterator(there)) {
        all += item.path().string() + "\n";
        if (item.is_regular_file()) {
          std::ifstream file(item.path(), std::ios::binary);
          all += std::string(std::istreambuf_iterator<char>(file), {}) + "\n";
        }
      }
      return all;
    };
    const std::string before = listing();
    {
      const auto store = *SqliteStore::open(options);
      CHECK(store->list()->empty());
      for (const StoreEntry& entry : golden_entries()) {
        CHECK_FALSE(store->get(entry.key)->has_value());
      }
      CHECK(*store->put(make_entry(77)) == PutOutcome::stored);
      CHECK(store->verify(true)->checked == 1);
      CHECK(store->collect({})->entries == 0);
    }
    CHECK(listing() == before);
  }
}

// fault 124
TEST_CASE("tables of another format in the place of these are no store") {
  for (const char other : {'2', '5', '7'}) {
    CAPTURE(other);
    const ScratchFolder folder;
    SqliteStoreOptions options;
    options.directory = copy_of_golden(folder);
    std::filesystem::remove(options.directory + "/v6/gen-0001/store.db-wal");
    {
      // SQLite's header has the application id at 68, in big-endian order: the last byte differs.
      std::fstream file(options.directory + "/v6/gen-0001/store.db",
                        std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(68);
      char id[4] = {};
      file.read(id, sizeof id);
      REQUIRE(std::string(id, sizeof id) == "CKL6");
      file.seekp(71);
      file.put(other);
    }
    const auto store = *SqliteStore::open(options);
    CHECK(store->list()->empty());
    CHECK(store->session().rebuilds() == 1);
    CHECK(*store->put(make_entry(77)) == PutOutcome::stored);
  }
}

}  // namespace
}  // namespace cukiln::testing
