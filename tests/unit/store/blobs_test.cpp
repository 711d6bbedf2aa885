// SPDX-License-Identifier: Apache-2.0
// What other compilers and caches keep in the store, beside its entries.
#include "store/sqlite_blobs.hpp"
#include "unit/store/open_sqlite_store.hpp"

namespace cukiln::testing {
namespace {

BlobName name_of(std::string_view kind, std::string_view key) {
  const auto name = BlobName::make(kind, key);
  REQUIRE_MESSAGE(name.has_value(), name.error().message());
  return *name;
}

void put_blob(SqliteStore& store, std::string_view key, std::string_view bytes) {
  const auto stored = store.blobs().put(name_of("test", key), bytes);
  REQUIRE_MESSAGE(stored.has_value(), stored.error().message());
}

std::optional<std::string> get_blob(SqliteStore& store, std::string_view key) {
  auto found = store.blobs().get(name_of("test", key));
  REQUIRE_MESSAGE(found.has_value(), found.error().message());
  return *found ? std::optional((*found)->bytes) : std::nullopt;
}

void execute_sql(SqliteStore& store, const char* sql) {
  REQUIRE(store.session().write(std::chrono::seconds(2),
                                [&](SqliteHandle& db) { return db.execute(sql); }));
}

TEST_CASE("fault 240: a blob larger than the cap is refused, and nothing is evicted for it") {
  const ScratchFolder folder;
  SqliteStoreOptions options = options_at(folder / "s");
  options.max_bytes = 1 << 20;
  const auto store = open_store_at(options);
  put_numbers(*store, 0, 3);
  const auto refused = store->blobs().put(name_of("k", "key"), std::string((1 << 20) + 1, 'x'));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::invalid_argument);
  CHECK(refused.error().message().find("max_size") != std::string::npos);
  CHECK(count_hits(*store, 0, 3) == 3);
}

TEST_CASE("fault 241: a byte of a blob flips: it is absent, counted and removed") {
  for (const char* damage :
       {"UPDATE blob SET data=x'6669727375' WHERE key=x'31'",
        "UPDATE blob SET key=x'39' WHERE key=x'31'",
        "UPDATE blob SET created_s=created_s+1 WHERE key=x'31'",
        "UPDATE blob SET kind='tess' WHERE key=x'31'",
        "UPDATE blob SET signer='other' WHERE key=x'31'",
        "UPDATE blob SET check128=x'00' WHERE key=x'31'",
        "UPDATE blob SET bytes=-7 WHERE key=x'31'", "UPDATE blob SET data=x'' WHERE key=x'31'"}) {
    CAPTURE(damage);
    const ScratchFolder folder;
    const auto store = open_store_at(folder / "s");
    put_blob(*store, "1", "first");
    put_blob(*store, "2", "second");
    execute_sql(*store, damage);
    CHECK(store->verify(false)->damaged == 1);
    CHECK_FALSE(get_blob(*store, "1"));
    CHECK((*store->counters())["corrupt_blob"] == 1);
    CHECK(store->blobs().list("")->size() == 1);
    CHECK(store->verify(false)->damaged == 0);
    CHECK(*get_blob(*store, "2") == "second");
    put_blob(*store, "1", "again");
    CHECK(*get_blob(*store, "1") == "again");
  }
}

TEST_CASE("fault 241: a blob whose digest is damaged is absent, and verify removes the row") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  put_blob(*store, "1", "first");
  execute_sql(*store, "UPDATE blob SET digest=x'00'");
  CHECK_FALSE(get_blob(*store, "1"));
  put_blob(*store, "1", "again");
  CHECK(store->blobs().list("")->size() == 2);
  CHECK(store->verify(true)->repaired == 1);
  CHECK(store->blobs().list("")->size() == 1);
  CHECK(*get_blob(*store, "1") == "again");
}

TEST_CASE("fault 241: verify counts blobs, names the damaged ones and removes them") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  put_numbers(*store, 0, 2);
  put_blob(*store, "1", "first");
  put_blob(*store, "2", "second");
  put_blob(*store, "3", "third");
  CHECK(store->verify(false)->checked == 2);
  CHECK(store->verify(false)->checked_blobs == 3);
  execute_sql(*store, "UPDATE blob SET data=x'00' WHERE key=x'31'");
  execute_sql(*store, "UPDATE blob SET hits=-5 WHERE key=x'32'");
  const auto report = store->verify(true);
  REQUIRE(report->findings.size() == 2);
  CHECK(report->findings[0].key.hex() == name_of("test", "1").id.hex());
  CHECK(report->findings[1].what.find("impossible uses") != std::string::npos);
  CHECK(report->repaired == 2);
  CHECK(store->verify(false)->damaged == 0);
  CHECK_FALSE(get_blob(*store, "1"));
  CHECK_FALSE(get_blob(*store, "2"));
  CHECK(*get_blob(*store, "3") == "third");
  CHECK(count_hits(*store, 0, 2) == 2);
}

// fault 394
TEST_CASE("blobs and entries are evicted together, the least recently used first") {
  const ScratchFolder folder;
  FakeClock clock;
  SqliteStoreOptions options = options_at(folder / "s");
  options.clock = &clock;
  const auto store = open_store_at(options);
  const auto tick = [&] { clock.now_s_value += 10; };
  put_blob(*store, "old", std::string(5000, 'o'));
  tick();
  put_numbers(*store, 0, 1);
  tick();
  put_blob(*store, "used", std::string(5000, 'u'));
  tick();
  put_blob(*store, "young", std::string(5000, 'y'));
  tick();
  CHECK(get_blob(*store, "used"));  // now the youngest

  GcOptions age;
  age.max_age_s = 35;
  age.dry_run = true;
  GcReport report = *store->collect(age);
  CHECK(report.entries == 0);
  CHECK(report.blobs == 1);
  CHECK(report.bytes == 8192);
  age.dry_run = false;
  CHECK(store->collect(age)->blobs == 1);
  CHECK_FALSE(get_blob(*store, "old"));
  CHECK((*store->counters())["blobs_evicted"] == 1);
  CHECK((*store->counters())["blob_bytes_evicted"] == 8192);
  CHECK((*store->counters())["evicted"] == 0);

  age.max_age_s = 15;
  report = *store->collect(age);
  CHECK(report.entries == 1);
  CHECK(report.blobs == 0);
  age.max_age_s = 5;
  CHECK(store->collect(age)->blobs == 1);
  CHECK_FALSE(get_blob(*store, "young"));
  CHECK(get_blob(*store, "used"));
  GcOptions nothing;
  nothing.max_bytes = 0;
  CHECK(store->collect(nothing)->blobs == 1);
  CHECK(store->blobs().list("")->empty());
}

TEST_CASE("blobs fill a store to its cap and no further, and the latest stay") {
  const ScratchFolder folder;
  FakeClock clock;
  SqliteStoreOptions options = options_at(folder / "s");
  options.clock = &clock;
  options.max_bytes = 2 << 20;
  options.maintenance_owner = true;
  const auto store = open_store_at(options);
  for (int i = 0; i < 100; ++i) {
    ++clock.now_s_value;
    put_blob(*store, std::to_string(i), std::string(100'000, 'b'));
  }
  const auto live = store->session().read([](SqliteHandle& db) { return live_bytes(db); });
  CHECK(*live <= options.max_bytes);
  CHECK(store->blobs().list("")->size() >= 15);
  CHECK(get_blob(*store, "99"));
  CHECK_FALSE(get_blob(*store, "0"));
  CHECK(store->verify(false)->damaged == 0);
}

TEST_CASE("uses of blobs are written when the store is closed, and all blobs go with all entries") {
  const ScratchFolder folder;
  {
    const auto store = open_store_at(folder / "s");
    put_numbers(*store, 0, 2);
    put_blob(*store, "1", "first");
    CHECK(get_blob(*store, "1"));
    CHECK(get_blob(*store, "1"));
  }
  const auto store = open_store_at(folder / "s");
  CHECK(store->blobs().list("test")->front().hits == 2);
  CHECK(store->blobs().totals()->blobs == 1);
  CHECK(store->blobs().totals()->bytes == 5);
  CHECK(*store->remove_all() == 3);
  CHECK(store->blobs().list("")->empty());
}

TEST_CASE("a blob is read with its signers without a use, and a damaged one is named") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  const BlobName name = name_of("test", "1");
  CHECK_FALSE(*store->blobs().peek(name.id));
  REQUIRE(store->blobs().put(name, "first", "a:key b:key"));
  const StoreBlob blob = **store->blobs().peek(name.id);
  CHECK(blob.kind == "test");
  CHECK(blob.key == "1");
  CHECK(blob.bytes == "first");
  CHECK(blob.signer == "a:key b:key");
  CHECK(blob.created_s == store->blobs().list("")->front().created_s);
  REQUIRE(store->flush(std::chrono::seconds(2)));
  CHECK(store->blobs().list("")->front().hits == 0);
  CHECK(store->blobs().list("")->front().signer == "a:key b:key");
  execute_sql(*store, "UPDATE blob SET data=x'00'");
  const auto damaged = store->blobs().peek(name.id);
  REQUIRE_FALSE(damaged);
  CHECK(damaged.error().code() == ErrorCode::corrupt);
  CHECK(damaged.error().message().find("verify --repair") != std::string::npos);
  CHECK(store->blobs().list("")->size() == 1);
}

TEST_CASE("fault 243: a new generation has no blobs, and takes new ones") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  put_blob(*store, "1", "first");
  CHECK(get_blob(*store, "1"));  // a use that is pending for a row that is gone
  REQUIRE(store->session().start_new_generation(Error(ErrorCode::corrupt, "a test")));
  put_numbers(*store, 0, 1);
  REQUIRE(store->flush(std::chrono::seconds(2)));
  CHECK_FALSE(get_blob(*store, "1"));
  put_blob(*store, "1", "again");
  CHECK(*get_blob(*store, "1") == "again");
}

}  // namespace
}  // namespace cukiln::testing
