// Stores that released versions wrote still open, and hold what was put into them.
#include <doctest/doctest.h>

#include <cstdlib>

#include "store/sqlite_store.hpp"
#include "support/golden_entries.hpp"

namespace cukiln::testing {
namespace {

std::string copy_of(const ScratchFolder& folder, const char* version) {
  const std::string copy = folder / "s";
  // Git keeps no modes: a checkout under the usual umask is open to others.
  const std::string command = "mkdir '" + copy +
                              "' && cp -r '" CUKILN_TEST_SOURCE_DIR "/cache/golden/" + version +
                              "' '" + copy + "' && chmod -R u+rwX,go= '" + copy + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  return copy;
}

TEST_CASE("the golden store v1 holds its entries byte for byte") {
  const ScratchFolder folder;
  SqliteStoreOptions options;
  options.directory = copy_of(folder, "v1");
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
  const auto sets = (*store)->find_dependency_sets(twice.request, twice.request_canonical);
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

TEST_CASE("the golden store v1 can be written by this version") {
  const ScratchFolder folder;
  SqliteStoreOptions options;
  options.directory = copy_of(folder, "v1");
  const auto store = *SqliteStore::open(options);
  CHECK(*store->put(make_entry(77)) == PutOutcome::stored);
  CHECK(*store->put(golden_entries()[0]) == PutOutcome::already_there);
}

TEST_CASE("keys of the first version never change") {
  const std::vector<StoreEntry> entries = golden_entries();
  CHECK(entries[0].request.hex() == "fcd97d740cd7486e7a88847596e3038a");
  CHECK(entries[0].key.hex() == "50ea14ac19e9d47b5601e0eea93e8458");
  CHECK(entries[1].key.hex() == "ca334cf07135f4b2c42f367c81b1423c");
}

}  // namespace
}  // namespace cukiln::testing
