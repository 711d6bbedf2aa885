// SPDX-License-Identifier: Apache-2.0
// Stores that released versions wrote still open, and hold what was put into them.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "store/sqlite_store.hpp"
#include "support/golden_entries.hpp"
#include "support/paths.hpp"

namespace cukiln::testing {
namespace {

std::string copy_of(const ScratchFolder& folder, const char* version) {
  const std::string copy = folder / "s";
  // Git keeps no modes: a checkout under the usual umask is open to others.
  const std::string command = "mkdir '" + copy + "' && cp -r '" + testing::sources() +
                              "/cache/golden/" + version + "' '" + copy +
                              "' && chmod -R u+rwX,go= '" + copy + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  return copy;
}

TEST_CASE("the golden store v2 holds its entries byte for byte") {
  const ScratchFolder folder;
  SqliteStoreOptions options;
  options.directory = copy_of(folder, "v2");
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

  const StatRecord record = golden_stat_record();
  const auto remembered = (*store)->find_stat_record(record.path);
  REQUIRE(remembered);
  CHECK(remembered->stamp == record.stamp);
  CHECK(remembered->digest == record.digest);
  CHECK((*(*store)->counters())["compiles"] == 5);
  CHECK((*store)->verify(false)->damaged == 0);
  CHECK((*store)->session().rebuilds() == 0);
}

TEST_CASE("the golden store v2 can be written by this version") {
  const ScratchFolder folder;
  SqliteStoreOptions options;
  options.directory = copy_of(folder, "v2");
  const auto store = *SqliteStore::open(options);
  CHECK(*store->put(make_entry(77)) == PutOutcome::stored);
  CHECK(*store->put(golden_entries()[0]) == PutOutcome::already_there);
}

// fault 124
TEST_CASE("a store of format 1 is ignored: not read, not written, not removed") {
  const ScratchFolder folder;
  SqliteStoreOptions options;
  options.directory = copy_of(folder, "v1");
  const auto listing = [&] {
    std::string all;
    for (const auto& item :
         std::filesystem::recursive_directory_iterator(options.directory + "/v1")) {
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
  }
  CHECK(listing() == before);
}

// fault 124
TEST_CASE("tables of format 1 in the place of format 2 are no store") {
  const ScratchFolder folder;
  SqliteStoreOptions options;
  options.directory = copy_of(folder, "v1");
  std::filesystem::rename(options.directory + "/v1", options.directory + "/v2");
  const auto store = *SqliteStore::open(options);
  CHECK(store->list()->empty());
  CHECK(store->session().rebuilds() == 1);
  CHECK(*store->put(make_entry(77)) == PutOutcome::stored);
}

TEST_CASE("keys of format 2 never change") {
  const std::vector<StoreEntry> entries = golden_entries();
  CHECK(entries[0].request.hex() ==
        "760a76cd641db60bec778899a4b66de700a5560f84094627b3b2f9c6fb662528");
  CHECK(entries[0].key.hex() == "7eea073173dc1fdeaeb6dd2fc394701f37179053d2df08fa3d4e220a8013930d");
  CHECK(entries[1].key.hex() == "e031e96007881703572c0c29932b9786e8b56995b09af8564f8404a2e9f4c7f9");
}

}  // namespace
}  // namespace cukiln::testing
