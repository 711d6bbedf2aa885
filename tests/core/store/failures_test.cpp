// SPDX-License-Identifier: Apache-2.0
// What a store does with the failures of programs that it does not do with entries.
#include "core/store/eviction.hpp"
#include "core/store/memory_store.hpp"
#include "core/store/object_codec.hpp"
#include "core/store/open_sqlite_store.hpp"
#include "core/store/tiered_store.hpp"

namespace cukiln::testing {
namespace {

std::int64_t rows_of(SqliteStore& store) {
  return *store.session().read(
      [](SqliteHandle& db) { return db.number("SELECT count(*) FROM object"); });
}

TEST_CASE("fault 417: failures are evicted before any entry, however old that is") {
  const ScratchFolder folder;
  FakeClock clock;
  const auto store = open_store_at(options_at(folder / "s", clock));
  put_numbers(*store, 0, 3);
  for (std::uint64_t i = 0; i < 3; ++i) {
    clock.now_s_value += 10;
    REQUIRE(store->put(make_failed(i)));
  }
  clock.now_s_value += 10;
  CHECK(finds(*store, make_failed(0)));  // used: now the last of the failures to go
  REQUIRE(store->flush(std::chrono::seconds(2)));
  const auto evict = [&](std::uint64_t bytes) {
    REQUIRE(store->session().write(std::chrono::seconds(2), [&](SqliteHandle& db) -> Result<void> {
      std::vector<std::int64_t> victims;
      CUKILN_TRY(const auto chosen, Eviction::choose(db, bytes, Eviction::kNever, 100, &victims));
      CHECK(chosen.rows() == victims.size());
      for (const std::int64_t id : victims) {
        CUKILN_CHECK(db.query("DELETE FROM object WHERE id=?").number(id).run());
      }
      return {};
    }));
  };
  evict(2 * 4096);
  CHECK_FALSE(finds(*store, make_failed(1)));
  CHECK_FALSE(finds(*store, make_failed(2)));
  CHECK(finds(*store, make_failed(0)));
  evict(4096 + 1);
  CHECK_FALSE(finds(*store, make_failed(0)));
  CHECK_FALSE(finds(*store, make_entry(0)));
  CHECK(finds(*store, make_entry(1)));
  CHECK(finds(*store, make_entry(2)));
}

TEST_CASE("fault 417: young failures hide no old entry from a collection by age") {
  const ScratchFolder folder;
  FakeClock clock;
  const auto store = open_store_at(options_at(folder / "s", clock));
  put_numbers(*store, 0, 2);
  REQUIRE(store->put(make_failed(0)));
  clock.now_s_value += 100;
  for (std::uint64_t i = 1; i < 150; ++i) {  // more than a transaction removes
    REQUIRE(store->put(make_failed(i)));
  }
  put_numbers(*store, 2, 1);
  GcOptions age;
  age.max_age_s = 50;
  const auto report = store->collect(age);
  REQUIRE(report);
  CHECK(report->entries == 2);
  CHECK(report->blobs == 0);
  CHECK(finds(*store, make_entry(2)));
  CHECK_FALSE(finds(*store, make_failed(0)));
  CHECK(rows_of(*store) == 150);
  CHECK((*store->counters())["evicted"] == 2);
  CHECK((*store->counters())["failures_evicted"] == 1);
  CHECK((*store->counters())["failures_stored"] == 150);
  CHECK((*store->counters())["stored"] == 3);
}

TEST_CASE("fault 417: failures fill a store at its cap, and the entries in use stay") {
  const ScratchFolder folder;
  FakeClock clock;
  SqliteStoreOptions options = options_at(folder / "s", clock);
  options.max_bytes = 600'000;
  const auto store = open_store_at(options);
  put_numbers(*store, 0, 10);
  for (std::uint64_t i = 0; i < 400; ++i) {
    ++clock.now_s_value;
    REQUIRE(store->put(make_failed(i)));
  }
  CHECK(count_hits(*store, 0, 10) == 10);
  CHECK(finds(*store, make_failed(399)));
  CHECK((*store->counters())["failures_evicted"] > 0);
  CHECK(store->verify(false)->damaged == 0);
}

TEST_CASE("fault 417: memory drops failures first") {
  MemoryStore store(100'000);
  const EntryShape shape{.cubin_bytes = 30'000};
  REQUIRE(*store.put(make_entry(0, shape)) == PutOutcome::stored);
  REQUIRE(*store.put(make_failed(0)) == PutOutcome::stored);
  CHECK(finds(store, make_failed(0)));
  REQUIRE(*store.put(make_entry(1, shape)) == PutOutcome::stored);
  REQUIRE(*store.put(make_entry(2, {.cubin_bytes = 34'000})) == PutOutcome::stored);
  CHECK_FALSE(finds(store, make_failed(0)));
  for (const auto& [number, bytes] : {std::pair{0, 30'000}, {1, 30'000}, {2, 34'000}}) {
    CHECK(finds(store, make_entry(static_cast<std::uint64_t>(number),
                                  {.cubin_bytes = static_cast<std::size_t>(bytes)})));
  }
}

TEST_CASE("fault 418: no key leads to a failure, and none is taken from elsewhere") {
  const ScratchFolder folder;
  TieredStore::Options options;
  options.store.directory = folder / "s";
  options.store.system_directory.clear();
  const auto store = *TieredStore::open(std::move(options));
  const StoreEntry failed = make_failed(1);
  REQUIRE(store->put(failed));
  CHECK(finds(*store, failed));
  CHECK_FALSE(store->get(failed.key)->has_value());
  CHECK_FALSE(store->peek(failed.key)->has_value());
  CHECK((*store->counters())["failure_hits"] == 1);

  Object object = encode(failed);
  CHECK(decode_entry(object).error().code() == ErrorCode::corrupt);
  CHECK(decode_blob(object).error().code() == ErrorCode::corrupt);
  object.kind.clear();
  CHECK(decode_entry(object).error().code() == ErrorCode::corrupt);
  CHECK_FALSE(BlobName::make(encode(failed).kind, failed.labels.name));
}

TEST_CASE("an entry is no failure, and a failure no entry, whatever a row says") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  StoreEntry entry = make_entry(1);
  entry.is_failure = true;
  CHECK(store->put(entry).error().code() == ErrorCode::invalid_argument);
  StoreEntry failed = make_failed(1);
  failed.is_failure = false;
  CHECK(store->put(failed).error().code() == ErrorCode::invalid_argument);
  failed = make_failed(1);
  failed.cubin.image = {};
  CHECK(store->put(failed).error().code() == ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace cukiln::testing
