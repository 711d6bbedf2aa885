// SPDX-License-Identifier: Apache-2.0
// What other compilers and caches keep in the store, beside its entries.
#include "core/store/open_sqlite_store.hpp"

namespace cukiln::testing {
namespace {

BlobName name_of(std::string_view kind, std::string_view key) {
  const auto name = BlobName::make(kind, key);
  REQUIRE_MESSAGE(name.has_value(), name.error().message());
  return *name;
}

void put_blob(SqliteStore& store, std::string_view key, std::string_view bytes) {
  const auto stored = store.put(StoreBlob::borrowed("test", key, bytes));
  REQUIRE_MESSAGE(stored.has_value(), stored.error().message());
}

std::optional<std::string> get_blob(SqliteStore& store, std::string_view key) {
  auto found = store.get(name_of("test", key));
  REQUIRE_MESSAGE(found.has_value(), found.error().message());
  return *found ? std::optional(std::string((*found)->bytes)) : std::nullopt;
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
  const auto refused = store->put(make_blob("k", "key", std::string((1 << 20) + 1, 'x')));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::invalid_argument);
  CHECK(refused.error().message().find("max_size") != std::string::npos);
  CHECK(count_hits(*store, 0, 3) == 3);
}

TEST_CASE("fault 241: a byte of a blob flips: it is absent, counted and removed") {
  for (const char* damage :
       {"UPDATE payload SET data=x'6669727375' WHERE id=1",
        "UPDATE object SET summary=x'39' WHERE id=1", "UPDATE object SET details=x'39' WHERE id=1",
        "UPDATE object SET created_s=created_s+1 WHERE id=1",
        "UPDATE object SET kind='tess' WHERE id=1", "UPDATE object SET kind='' WHERE id=1",
        "UPDATE object SET request=x'00' WHERE id=1", "UPDATE object SET origin=1 WHERE id=1",
        "UPDATE object SET signer='other' WHERE id=1",
        "UPDATE object SET check128=x'00' WHERE id=1", "UPDATE object SET bytes=-7 WHERE id=1",
        "UPDATE payload SET data=x'' WHERE id=1", "DELETE FROM payload WHERE id=1"}) {
    CAPTURE(damage);
    const ScratchFolder folder;
    const auto store = open_store_at(folder / "s");
    put_blob(*store, "1", "first");
    put_blob(*store, "2", "second");
    execute_sql(*store, damage);
    CHECK(store->verify(false)->damaged == 1);
    CHECK_FALSE(get_blob(*store, "1"));
    CHECK((*store->counters())["corrupt_blob"] == 1);
    CHECK(store->list_blobs("")->size() == 1);
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
  execute_sql(*store, "UPDATE object SET name=x'00'");
  CHECK_FALSE(get_blob(*store, "1"));
  put_blob(*store, "1", "again");
  CHECK(store->list_blobs("")->size() == 2);
  CHECK(store->verify(true)->repaired == 1);
  CHECK(store->list_blobs("")->size() == 1);
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
  execute_sql(*store, "UPDATE payload SET data=x'00' WHERE id=3");
  execute_sql(*store, "UPDATE object SET hits=-5 WHERE id=4");
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
  const auto store = open_store_at(options_at(folder / "s", clock));
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
  CHECK(store->list_blobs("")->empty());
}

TEST_CASE("blobs fill a store to its cap and no further, and the latest stay") {
  const ScratchFolder folder;
  FakeClock clock;
  SqliteStoreOptions options = options_at(folder / "s", clock);
  options.max_bytes = 2 << 20;
  options.maintenance_owner = true;
  const auto store = open_store_at(options);
  for (int i = 0; i < 100; ++i) {
    ++clock.now_s_value;
    put_blob(*store, std::to_string(i), std::string(100'000, 'b'));
  }
  const auto live = store->session().read([](SqliteHandle& db) { return live_bytes(db); });
  CHECK(*live <= options.max_bytes);
  CHECK(store->list_blobs("")->size() >= 15);
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
  CHECK(store->list_blobs("test")->front().hits == 2);
  CHECK(store->blob_totals()->blobs == 1);
  CHECK(store->blob_totals()->bytes == 5);
  CHECK(*store->remove_all() == 3);
  CHECK(store->list_blobs("")->empty());
}

TEST_CASE("a blob is read with its signers without a use, and a damaged one is named") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  const BlobName name = name_of("test", "1");
  CHECK_FALSE(*store->peek(name.id));
  REQUIRE(store->put(make_blob("test", "1", "first", "a:key b:key")));
  const StoreBlob blob = **store->peek(name.id);
  CHECK(blob.kind == "test");
  CHECK(blob.key == "1");
  CHECK(blob.bytes.view() == "first");
  CHECK(blob.signer == "a:key b:key");
  CHECK(blob.created_s == store->list_blobs("")->front().created_s);
  REQUIRE(store->flush(std::chrono::seconds(2)));
  CHECK(store->list_blobs("")->front().hits == 0);
  CHECK(store->list_blobs("")->front().signer == "a:key b:key");
  execute_sql(*store, "UPDATE payload SET data=x'00'");
  const auto damaged = store->peek(name.id);
  REQUIRE_FALSE(damaged);
  CHECK(damaged.error().code() == ErrorCode::corrupt);
  CHECK(damaged.error().message().find("verify --repair") != std::string::npos);
  CHECK(store->list_blobs("")->size() == 1);
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
