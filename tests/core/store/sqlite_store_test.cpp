// SPDX-License-Identifier: Apache-2.0
// The rules of SqliteStore beyond the contract of every store.
#include <algorithm>
#include <filesystem>
#include <thread>

#include "core/store/open_sqlite_store.hpp"
#include "support/paths.hpp"

namespace cukiln::testing {
namespace {

TEST_CASE("entries outlive the store object that put them") {
  const ScratchFolder folder;
  put_numbers(*open_store_at(folder / "s"), 0, 10);
  const auto store = open_store_at(folder / "s");
  CHECK(count_hits(*store, 0, 10) == 10);
  CHECK(*store->source_text(make_entry(3).key) == make_entry(3).source_text);
}

TEST_CASE("two stores of one process share a directory") {
  const ScratchFolder folder;
  const auto first = open_store_at(folder / "s");
  const auto second = open_store_at(folder / "s");
  put_numbers(*first, 0, 3);
  put_numbers(*second, 3, 3);
  CHECK(count_hits(*first, 0, 6) == 6);
  CHECK(count_hits(*second, 0, 6) == 6);
  CHECK(*second->put(make_entry(0)) == PutOutcome::already_there);
}

TEST_CASE("at the cap the least recently used goes first, and the cap holds") {
  const ScratchFolder folder;
  FakeClock clock;
  SqliteStoreOptions options = options_at(folder / "s", clock);
  options.max_bytes = 1 << 20;
  const auto store = open_store_at(options);
  for (std::uint64_t i = 0; i < 100; ++i) {
    clock.now_s_value += 10;
    put_numbers(*store, i, 1);
    CHECK(count_hits(*store, 0, 1) == 1);  // used all the time: never the one to go
    REQUIRE(store->session().read([](SqliteHandle& db) -> Result<void> {
      const auto pages = db.number("PRAGMA page_count");
      const auto unused = db.number("PRAGMA freelist_count");
      const auto size = db.number("PRAGMA page_size");
      CHECK((*pages - *unused) * *size <= (1 << 20) + 40'000);  // one entry more at most
      return {};
    }));
  }
  CHECK(count_hits(*store, 99, 1) == 1);
  CHECK(count_hits(*store, 1, 40) == 0);
  CHECK(count_hits(*store, 75, 25) == 25);
  CHECK((*store->counters())["evicted"] == static_cast<std::int64_t>(store->stats().evicted));
  CHECK((*store->counters())["evicted_bytes"] > (*store->counters())["evicted"] * 1000);
  const MaintenanceStats maintenance = store->maintenance_stats();
  CHECK(maintenance.gc_by_put.done > 0);
  CHECK(maintenance.gc_by_put.failed == 0);
  CHECK(maintenance.gc_by_put.total_time.count() > 0);
  CHECK(maintenance.gc_last_success_s > clock.now_s_value - 100);
}

TEST_CASE("the maintenance owner evicts to a cap that was lowered while the store is open") {
  const ScratchFolder folder;
  FakeClock clock;
  SqliteStoreOptions options = options_at(folder / "s", clock);
  options.maintenance_owner = true;
  const auto store = open_store_at(options);
  REQUIRE(store->oldest_use_s());
  CHECK_FALSE(*store->oldest_use_s());
  const std::int64_t first = clock.now_s_value;
  for (std::uint64_t i = 0; i < 60; ++i) {
    clock.now_s_value = first + static_cast<std::int64_t>(i);
    put_numbers(*store, i, 1);
  }
  CHECK(**store->oldest_use_s() == first);
  REQUIRE(store->maintain());
  CHECK(store->stats().evicted == 0);
  store->set_max_bytes(1 << 20);
  {
    const auto other = FileLock::acquire(folder / "s/v6/gc.lock", FileLock::Mode::exclusive,
                                         std::chrono::milliseconds(0));
    REQUIRE(other);
    REQUIRE(store->maintain());  // another process collects
  }
  CHECK(store->stats().evicted == 0);
  REQUIRE(store->maintain());
  CHECK(store->stats().evicted > 10);
  CHECK(**store->oldest_use_s() > first);
  CHECK(count_hits(*store, 55, 5) == 5);
  CHECK(store->maintenance_stats().gc_by_timer.done == 2);
  CHECK(store->maintenance_stats().gc_by_timer.blocked == 1);
  CHECK(store->maintenance_stats().gc_by_put.all() == 0);
}

TEST_CASE("fault 75: an entry larger than the cap is too large, and nothing is evicted for it") {
  const ScratchFolder folder;
  SqliteStoreOptions options = options_at(folder / "s");
  options.max_bytes = 1 << 20;
  const auto store = open_store_at(options);
  put_numbers(*store, 0, 5);
  CHECK(*store->put(make_entry(9, {2 << 20})) == PutOutcome::too_large);
  CHECK(count_hits(*store, 0, 5) == 5);
}

TEST_CASE("hits and the time of the last use are written when the store is closed") {
  const ScratchFolder folder;
  FakeClock clock;
  SqliteStoreOptions options = options_at(folder / "s", clock);
  put_numbers(*open_store_at(options), 0, 2);
  clock.now_s_value += 7200;
  {
    const auto store = open_store_at(options);
    CHECK(count_hits(*store, 0, 1) + count_hits(*store, 0, 1) == 2);
  }
  const auto entries = *open_store_at(options)->list();
  CHECK(entries[0].hits == 2);
  CHECK(entries[0].last_used_s == clock.now_s_value);
  CHECK(entries[1].hits == 0);
  CHECK(entries[1].last_used_s == clock.now_s_value - 7200);
}

TEST_CASE("fault 31: a clock that jumps does not change the eviction order") {
  const ScratchFolder folder;
  FakeClock clock;
  SqliteStoreOptions options = options_at(folder / "s", clock);
  options.max_bytes = 2 << 20;
  const auto store = open_store_at(options);
  put_numbers(*store, 0, 20);
  clock.now_s_value += 10ll * 365 * 86400;  // forward ten years, one entry, and back
  put_numbers(*store, 20, 1);
  clock.now_s_value -= 11ll * 365 * 86400;
  put_numbers(*store, 21, 20);
  CHECK(count_hits(*store, 0, 41) == 41);
  CHECK(store->stats().evicted == 0);
  const auto entries = *store->list();
  for (std::size_t i = 1; i < entries.size(); ++i) {
    CHECK(entries[i].last_used_s >= entries[i - 1].last_used_s);  // the order is that of use
  }
  GcOptions old;
  old.max_age_s = 86400;
  const auto report = store->collect(old);
  REQUIRE(report);
  CHECK(report->entries <= 20);  // those of before the jump; what came after stays
  CHECK(count_hits(*store, 20, 21) == 21);
}

TEST_CASE("fault 31: a clock outside of what a store can record damages nothing") {
  constexpr std::int64_t kYear = 365ll * 86400;
  const BlobName name = *BlobName::make("triton", "key");
  for (const std::int64_t jump : {-60 * kYear, 200 * kYear}) {
    CAPTURE(jump);
    const ScratchFolder folder;
    FakeClock clock;
    SqliteStoreOptions options = options_at(folder / "s", clock);
    put_numbers(*open_store_at(options), 0, 1);
    clock.now_s_value += jump;
    {
      const auto store = open_store_at(options);
      CHECK(count_hits(*store, 0, 1) == 1);
      put_numbers(*store, 1, 1);
      CHECK(store->put(StoreBlob::borrowed(name.kind, name.key, "bytes")));
      CHECK(*store->get(name));
    }
    clock.now_s_value += 86400 - jump;
    const auto store = open_store_at(options);
    CHECK(store->verify(false)->damaged == 0);
    put_numbers(*store, 2, 1);
    const auto entries = *store->list();
    REQUIRE(entries.size() == 3);
    CHECK(entries[1].last_used_s >= entries[0].last_used_s);
    CHECK(entries[2].last_used_s == clock.now_s_value);
  }
}

TEST_CASE("collect evicts by size, by age, and shrinks the file") {
  const ScratchFolder folder;
  FakeClock clock;
  const auto store = open_store_at(options_at(folder / "s", clock));
  put_numbers(*store, 0, 150);
  clock.now_s_value += 1000;
  put_numbers(*store, 150, 150);

  GcOptions by_age;
  by_age.max_age_s = 500;
  by_age.dry_run = true;
  const auto dry = store->collect(by_age);
  REQUIRE(dry);
  CHECK(dry->entries == 150);
  CHECK(store->stats().entries == 300);
  by_age.dry_run = false;
  const auto aged = store->collect(by_age);
  REQUIRE(aged);
  CHECK(aged->entries == 150);
  CHECK(aged->bytes_after < aged->bytes_before * 6 / 10);
  CHECK(count_hits(*store, 150, 150) == 150);

  GcOptions by_size;
  by_size.max_bytes = 1 << 20;
  const auto sized = store->collect(by_size);
  REQUIRE(sized);
  CHECK(sized->bytes_after <= (1 << 20) + 40'000);
  CHECK(count_hits(*store, 290, 10) == 10);
}

TEST_CASE("fault 77: a concurrent second collection does nothing") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  put_numbers(*store, 0, 5);
  const auto first = FileLock::acquire(folder / "s/v6/gc.lock", FileLock::Mode::exclusive,
                                       std::chrono::milliseconds(0));
  REQUIRE(first);
  GcOptions everything;
  everything.max_bytes = 0;
  const auto second = store->collect(everything);
  REQUIRE(second);
  CHECK(second->already_running);
  CHECK(store->stats().entries == 5);
}

TEST_CASE("fault 74: readers get whole entries during an eviction") {
  const ScratchFolder folder;
  SqliteStoreOptions options = options_at(folder / "s");
  const auto store = open_store_at(options);
  put_numbers(*store, 0, 60, {5000});
  std::atomic<bool> stop{false};
  std::atomic<int> errors{0}, hits{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 8; ++reader) {
    readers.emplace_back([&, reader] {
      const auto own = reader % 2 == 0 ? nullptr : open_store_at(options);
      SqliteStore& used = own ? *own : *store;
      for (std::uint64_t i = static_cast<std::uint64_t>(reader); !stop; ++i) {
        const StoreEntry entry = make_entry(i % 60, {5000});
        const auto found = used.get(entry.key);
        if (!found || (*found && !same_content(**found, entry))) {
          ++errors;
        } else if (*found) {
          ++hits;
        }
      }
    });
  }
  GcOptions half;
  half.max_bytes = 200'000;
  for (int round = 0; round < 5; ++round) {
    REQUIRE(store->collect(half));
    for (std::uint64_t i = 0; i < 60; ++i) {
      REQUIRE(store->put(make_entry(i, {5000})));
    }
  }
  stop = true;
  for (std::thread& reader : readers) {
    reader.join();
  }
  CHECK(errors == 0);
  CHECK(hits > 0);
}

TEST_CASE("fault 28: a reader that holds the WAL delays its truncation and is logged") {
  const ScratchFolder folder;
  LogRecorder log;
  SqliteStoreOptions options = options_at(folder / "s");
  options.checkpoint_bytes = 256 << 10;
  options.log = log.logger();
  const auto store = open_store_at(options);
  put_numbers(*store, 0, 1);
  const std::string wal = database_in(folder / "s") + "-wal";
  {
    auto reader = SqliteHandle::open(database_in(folder / "s"), {});
    REQUIRE(reader);
    Query pinned = reader->query("SELECT id FROM object");
    REQUIRE(*pinned.next());
    put_numbers(*store, 1, 80);
    CHECK(std::filesystem::file_size(wal) > 4 * options.checkpoint_bytes);
    CHECK(log.contains("because a reader holds it"));
    CHECK(store->maintenance_stats().checkpoints.blocked > 0);
    CHECK(store->maintenance_stats().checkpoints.done == 0);
  }
  put_numbers(*store, 81, 30);
  CHECK(store->maintenance_stats().checkpoints.done > 0);
  CHECK(std::filesystem::file_size(wal) < 2 * options.checkpoint_bytes);
  CHECK(count_hits(*store, 0, 111) == 111);
}

TEST_CASE("counters add up over processes") {
  const ScratchFolder folder;
  for (int process = 0; process < 3; ++process) {
    const auto store = open_store_at(folder / "s");
    store->count("compiles", 2);
    store->count("saved_us", 1'000'000);
    CHECK((*store->counters())["compiles"] == 2 * (process + 1));
  }
  const auto store = open_store_at(folder / "s");
  CHECK((*store->counters())["saved_us"] == 3'000'000);
}

TEST_CASE("fault 325: counters of any size stay in the range that verify takes for sound") {
  const ScratchFolder folder;
  for (int process = 0; process < 2; ++process) {
    const auto store = open_store_at(folder / "s");
    store->count("hits", 1);
    for (int i = 0; i < 3; ++i) {
      store->count("hits", INT64_MAX);
      store->count("compiles", std::int64_t{1} << 59);
      CHECK((*store->counters())["hits"] == std::int64_t{1} << 60);
    }
  }
  const auto store = open_store_at(folder / "s");
  CHECK(store->verify(false)->damaged == 0);
  CHECK((*store->counters())["compiles"] == std::int64_t{1} << 60);
}

TEST_CASE("stat records are found by path, immediately and after the store was opened again") {
  const ScratchFolder folder;
  StatRecord record;
  record.path = "/usr/include/a.h";
  record.stamp = {1, 2, 3, 4, 5};
  record.digest = hash_of("a");
  record.note = "13.0.88";
  record.recorded_ns = 99;
  {
    const auto store = open_store_at(folder / "s");
    CHECK_FALSE(store->find_stat_record(record.path));
    store->save_stat_records({record});
    CHECK(store->find_stat_record(record.path));
  }
  const auto found = open_store_at(folder / "s")->find_stat_record(record.path);
  REQUIRE(found);
  CHECK(found->stamp == record.stamp);
  CHECK(found->digest == record.digest);
  CHECK(found->note == record.note);
  CHECK(found->recorded_ns == record.recorded_ns);
}

TEST_CASE("fault 424: a query for a stat record reads those that follow in its folder") {
  const ScratchFolder folder;
  std::vector<StatRecord> records;
  for (const char* const path : {"/inc/a.h", "/inc/b.h", "/inc/sub/c.h", "/inc2/d.h"}) {
    records.emplace_back();
    records.back().path = path;
    records.back().digest = hash_of(path);
  }
  {
    const auto store = open_store_at(folder / "s");
    store->save_stat_records(records);
    REQUIRE(store->flush(std::chrono::seconds(5)));
  }
  const auto store = open_store_at(folder / "s");
  CHECK_FALSE(store->find_stat_record("/inc/a"));
  REQUIRE(store->find_stat_record("/inc/a.h"));
  const auto remove = [](SqliteHandle& db) { return db.execute("DELETE FROM stat_cache"); };
  REQUIRE(store->session().write(std::chrono::seconds(5), remove));
  CHECK(store->find_stat_record("/inc/b.h")->digest == hash_of("/inc/b.h"));
  CHECK(store->find_stat_record("/inc/sub/c.h")->path == "/inc/sub/c.h");
  CHECK_FALSE(store->find_stat_record("/inc2/d.h"));
}

TEST_CASE("the second query for stat records of a folder reads all of them") {
  const ScratchFolder folder;
  const auto path_of = [](int number) { return "/inc/" + std::to_string(100 + number) + ".h"; };
  std::vector<StatRecord> records(40);
  for (int i = 0; i < 40; ++i) {
    records[static_cast<std::size_t>(i)].path = path_of(i);
  }
  {
    const auto store = open_store_at(folder / "s");
    store->save_stat_records(records);
    REQUIRE(store->flush(std::chrono::seconds(5)));
  }
  const auto store = open_store_at(folder / "s");
  REQUIRE(store->find_stat_record(path_of(30)));
  REQUIRE(store->find_stat_record(path_of(20)));
  const auto remove = [](SqliteHandle& db) { return db.execute("DELETE FROM stat_cache"); };
  REQUIRE(store->session().write(std::chrono::seconds(5), remove));
  for (int i = 0; i < 40; ++i) {
    CHECK(store->find_stat_record(path_of(i)).has_value() == (i != 20));  // it was given away
  }
}

TEST_CASE("stat records are pruned, the oldest first") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  std::vector<StatRecord> records(kMaxStatRecords + 100);
  for (std::size_t i = 0; i < records.size(); ++i) {
    records[i].path = "/include/" + std::to_string(i);
    records[i].recorded_ns = static_cast<std::int64_t>(i);
  }
  store->save_stat_records(records);
  REQUIRE(store->flush(std::chrono::seconds(5)));
  CHECK_FALSE(store->find_stat_record("/include/0"));
  CHECK(store->find_stat_record("/include/" + std::to_string(kMaxStatRecords)));
}

TEST_CASE("remove_all leaves an empty store with a small file") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  put_numbers(*store, 0, 50);
  CHECK(*store->remove_all() == 50);
  CHECK(store->stats().entries == 0);
  CHECK(store->stats().bytes < 200'000);
  put_numbers(*store, 0, 5);
}

TEST_CASE("the reserve is at most an eighth of the cap") {
  const ScratchFolder folder;
  SqliteStoreOptions options = options_at(folder / "s");
  options.reserve_bytes = 8 << 20;
  options.max_bytes = 16 << 20;
  open_store_at(options);
  CHECK(std::filesystem::file_size(folder / "s/v6/reserve.bin") == (2 << 20));
}

TEST_CASE("fault 12, fault 27: nothing opens a store immutable, and no transaction is deferred") {
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(testing::sources() + "/src/core/store")) {
    const std::string text = read_all(file.path().string());
    CAPTURE(file.path().string());
    CHECK(text.find("immutable=") == std::string::npos);
    CHECK(text.find("SQLITE_OPEN_URI") == std::string::npos);
    for (std::size_t at = text.find("\"BEGIN"); at != std::string::npos;
         at = text.find("\"BEGIN", at + 1)) {
      CHECK(text.compare(at, 17, "\"BEGIN IMMEDIATE\"") == 0);
    }
  }
}

}  // namespace
}  // namespace cukiln::testing
