// SPDX-License-Identifier: Apache-2.0
// Stores whose files were damaged, while no process or another process had them open. The numbers
// are those of tests/FAULTS.md.
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "core/store/open_sqlite_store.hpp"

namespace cukiln::testing {
namespace {

/// Opens a damaged store and expects it to work in a new, empty generation.
void expect_new_generation(const std::string& directory) {
  LogRecorder log;
  SqliteStoreOptions options = options_at(directory);
  options.log = log.logger();
  const auto store = open_store_at(options);
  CHECK(count_hits(*store, 0, 5) == 0);
  put_numbers(*store, 0, 5);
  CHECK(count_hits(*store, 0, 5) == 5);
  CHECK(*store->session().generation_name() == "gen-0002");
  CHECK(store->session().rebuilds() == 1);
  CHECK(log.contains("starts a new, empty generation"));
  CHECK(exists(database_in(directory)));  // a collection removes the old one later
}

TEST_CASE("fault 13: garbage in the header page starts a new generation") {
  for (const std::size_t at : {0u, 16u, 44u, 100u}) {
    CAPTURE(at);
    const ScratchFolder folder;
    make_checkpointed_store(folder / "s", 5);
    overwrite(database_in(folder / "s"), at, "\xff\xff\xff\xff");
    expect_new_generation(folder / "s");
  }
}

TEST_CASE("fault 13: a database of another program starts a new generation") {
  const ScratchFolder folder;
  make_checkpointed_store(folder / "s", 5);
  overwrite(database_in(folder / "s"), 68, std::string_view("\0\0\0\1", 4));  // its application id
  expect_new_generation(folder / "s");
}

TEST_CASE("fault 14: a database truncated to half loses entries, and the store keeps working") {
  const ScratchFolder folder;
  make_checkpointed_store(folder / "s", 20);
  const std::string database = database_in(folder / "s");
  const auto size = static_cast<off_t>(read_all(database).size());
  REQUIRE(::truncate(database.c_str(), size / 2) == 0);
  const auto store = open_store_at(folder / "s");
  CHECK(count_hits(*store, 0, 20) < 20);
  CHECK(store->put(make_entry(100)).has_value());
  CHECK(count_hits(*store, 100, 1) == 1);
  CHECK(store->put(make_entry(19)).has_value());
  CHECK(count_hits(*store, 19, 1) == 1);
}

TEST_CASE("fault 15: a database truncated to nothing starts a new generation") {
  const ScratchFolder folder;
  make_checkpointed_store(folder / "s", 5);
  REQUIRE(::truncate(database_in(folder / "s").c_str(), 0) == 0);
  expect_new_generation(folder / "s");
}

TEST_CASE("fault 15: a WAL removed before its checkpoint loses only the entries in it") {
  const ScratchFolder folder;
  make_uncheckpointed_store(folder / "s", 5);
  const std::string copy = folder / "s.copy";
  REQUIRE(::unlink((database_in(copy) + "-wal").c_str()) == 0);
  REQUIRE(::unlink((database_in(copy) + "-shm").c_str()) == 0);
  const auto store = open_store_at(copy);
  CHECK(count_hits(*store, 0, 5, {2000}) == 0);
  put_numbers(*store, 0, 5);
  CHECK(count_hits(*store, 0, 5) == 5);
  CHECK(store->session().rebuilds() == 0);
}

TEST_CASE("fault 16: a byte flipped in a cubin is a miss for that key alone") {
  const ScratchFolder folder;
  make_checkpointed_store(folder / "s", 5);
  const std::string database = database_in(folder / "s");
  const std::string bytes = read_all(database);
  const std::string middle(make_entry(3).cubin.image.view().substr(9000, 64));
  const std::size_t at = bytes.find(middle);
  REQUIRE(at != std::string::npos);
  overwrite(database, at + 10, std::string(1, static_cast<char>(bytes[at + 10] ^ 0x20)));

  LogRecorder log;
  SqliteStoreOptions options = options_at(folder / "s");
  options.log = log.logger();
  const auto store = open_store_at(options);
  CHECK_FALSE(store->get(make_entry(3).key)->has_value());
  CHECK(count_hits(*store, 0, 5) == 4);
  CHECK(store->stats().corrupt == 1);
  CHECK(store->stats().entries == 4);
  CHECK(store->session().rebuilds() == 0);
  CHECK(log.contains("checksum"));
  CHECK((*store->counters())["corrupt"] == 1);
  put_numbers(*store, 3, 1);
  CHECK(count_hits(*store, 0, 5) == 5);
}

TEST_CASE("fault 16: an entry whose cubin is missing or has another size is removed alone") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  put_numbers(*store, 0, 4);
  REQUIRE(store->session().write(std::chrono::seconds(2), [](SqliteHandle& db) -> Result<void> {
    CUKILN_CHECK(db.execute("DELETE FROM payload WHERE id=(SELECT min(id) FROM object)"));
    // A damaged length must not allocate all memory of the machine.
    return db.execute("UPDATE object SET bytes=1<<40 WHERE id=(SELECT max(id) FROM object)");
  }));
  CHECK(count_hits(*store, 0, 4) == 2);
  CHECK(store->stats().corrupt == 2);
  CHECK(store->session().rebuilds() == 0);
  CHECK(*store->put(make_entry(0)) == PutOutcome::stored);
  CHECK(count_hits(*store, 0, 4) == 3);
}

/// Flips one bit of one column, in the second row of its table.
Result<void> flip_bit(SqliteHandle& db, const std::string& table, const std::string& column) {
  const std::string row = " WHERE id=(SELECT id FROM " + table + " ORDER BY id LIMIT 1 OFFSET 1)";
  const std::string read = "SELECT " + column + ", typeof(" + column + ") FROM " + table + row;
  const std::string write = "UPDATE " + table + " SET " + column + "=?" + row;
  std::string value, type;
  std::int64_t number = 0;
  {
    Query query = db.query(read.c_str());
    CUKILN_TRY(const bool there, query.next());
    REQUIRE(there);
    type = query.column_bytes(1);
    number = query.column_number(0) ^ 64;
    value = query.column_bytes(0);
  }
  if (value.empty()) {
    value = "x";
  } else {
    value[value.size() / 2] = static_cast<char>(value[value.size() / 2] ^ 1);
  }
  Query query = db.query(write.c_str());
  return (type == "integer" ? query.number(number)
          : type == "text"  ? query.text(value)
                            : query.blob(value))
      .run();
}

// fault 87
TEST_CASE("fault 16: one wrong bit in any column is found by verify, and costs one compile") {
  std::vector<std::pair<std::string, std::string>> columns;
  {
    const ScratchFolder folder;
    const auto store = open_store_at(folder / "s");
    for (const char* table : {"object", "request", "payload"}) {
      REQUIRE(store->session().read([&](SqliteHandle& db) -> Result<void> {
        Query query = db.query("SELECT name FROM pragma_table_info(?)");
        query.text(table);
        for (;;) {
          CUKILN_TRY(const bool more, query.next());
          if (!more) {
            return {};
          }
          columns.emplace_back(table, query.column_bytes(0));
        }
      }));
    }
  }
  CHECK(columns.size() > 20);
  for (const auto& [table, column] : columns) {
    if (column == "hits" || column == "last_used_s" || (column == "id" && table == "request")) {
      continue;  // a statistic or a row id: neither is part of the content
    }
    CAPTURE(table);
    CAPTURE(column);
    const ScratchFolder folder;
    put_numbers(*open_store_at(folder / "s"), 0, 3);
    REQUIRE(open_store_at(folder / "s")
                ->session()
                .write(std::chrono::seconds(2), [&, &of = table, &name = column](SqliteHandle& db) {
                  return flip_bit(db, of, name);
                }));
    const auto found = open_store_at(folder / "s")->verify(false);
    REQUIRE(found);
    CHECK(found->damaged > 0);
    for (const bool is_stored_again : {false, true}) {
      CAPTURE(is_stored_again);
      const auto store = open_store_at(folder / "s");
      for (std::uint64_t i = 0; i < 3; ++i) {
        const bool hits = finds(*store, make_entry(i));
        CHECK((hits || (i == 1 && !is_stored_again)));
        if (!hits) {
          CHECK(store->put(make_entry(i)).has_value());
        }
        CHECK(finds(*store, make_entry(i)));
      }
    }
    const auto store = open_store_at(folder / "s");
    if (column == "source_text" || (table == "request" && column == "digest")) {
      CHECK(store->verify(true)->repaired == 1);  // no lookup reads these
    }
    CHECK(store->verify(false)->damaged == 0);
    CHECK(store->stats().entries == (column == "source_text" ? 2 : 3));
  }
}

TEST_CASE("fault 87: a damaged source text costs its entry when it is shown") {
  const ScratchFolder folder;
  const StoreEntry entry = make_entry(1);
  StoreEntry other = make_entry(2);
  for (const bool is_other_text : {false, true}) {
    CAPTURE(is_other_text);
    const std::string directory = folder / (is_other_text ? "other" : "flipped");
    const auto store = open_store_at(directory);
    put_numbers(*store, 1, 2);
    // A text that decompresses, and is not the one of the request, is damage too.
    REQUIRE(store->session().write(std::chrono::seconds(2), [&](SqliteHandle& db) {
      return is_other_text
                 ? db.execute(
                       "UPDATE payload SET source_text=(SELECT source_text FROM payload WHERE "
                       "id=2) WHERE id=1")
                 : db.execute(
                       "UPDATE payload SET source_text=CAST(x'00' || substr(source_text, 2) AS "
                       "BLOB) "
                       "WHERE "
                       "id=1");
    }));
    CHECK(store->verify(false)->damaged == 1);
    CHECK(store->verify(false)->findings.front().key == entry.key);
    const auto shown = store->source_text(entry.key);
    REQUIRE_FALSE(shown);
    CHECK(shown.error().code() == ErrorCode::corrupt);
    CHECK(shown.error().message().find(entry.key.hex()) != std::string::npos);
    CHECK(*store->source_text(other.key) == other.source_text);
    CHECK(store->verify(false)->damaged == 0);
    CHECK_FALSE(finds(*store, entry));
    CHECK(*store->put(entry) == PutOutcome::stored);
    CHECK(*store->source_text(entry.key) == entry.source_text);
    CHECK((*store->counters())["corrupt_entry"] == 1);
  }
}

/// Changes rows behind the back of the store.
void execute(SqliteStore& store, const char* sql) {
  REQUIRE(store.session().write(std::chrono::seconds(2),
                                [&](SqliteHandle& db) { return db.execute(sql); }));
}

std::int64_t number_in(SqliteStore& store, const char* sql) {
  return *store.session().read([&](SqliteHandle& db) { return db.number(sql); });
}

TEST_CASE("fault 87: a damaged request costs its entries, and no others") {
  for (const char* damage :
       {"UPDATE request SET tree=x'0102' WHERE id=1", "UPDATE request SET only_entry=9 WHERE id=1",
        "UPDATE request SET canonical=x'00' WHERE id=1",
        "UPDATE request SET digest=randomblob(32) WHERE id=1", "DELETE FROM request WHERE id=1"}) {
    CAPTURE(damage);
    const ScratchFolder folder;
    const auto store = open_store_at(folder / "s");
    const StoreEntry first = make_entry(0);
    const StoreEntry second = make_entry(0, {3000, 1});
    REQUIRE(store->put(first));
    REQUIRE(store->put(second));
    put_numbers(*store, 1, 2);
    execute(*store, damage);
    CHECK_FALSE(finds(*store, first));
    CHECK_FALSE(finds(*store, second));
    REQUIRE(store->put(first));
    CHECK(finds(*store, first));
    CHECK_FALSE(finds(*store, second));
    REQUIRE(store->put(second));
    CHECK(finds(*store, first));
    CHECK(finds(*store, second));
    CHECK(number_in(*store, "SELECT count(*) FROM object") == 4);
    CHECK(number_in(*store, "SELECT count(*) FROM payload") == 4);
    CHECK(finds(*store, make_entry(1)));
    CHECK(finds(*store, make_entry(2)));
    CHECK((*store->counters())["corrupt_set"] == 1);
  }
}

TEST_CASE("fault 87: a row that was found damaged and stored again since is not removed") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  const auto other = open_store_at(folder / "s");
  put_numbers(*store, 0, 1);
  execute(*store, "UPDATE request SET check128=randomblob(16)");
  REQUIRE(other->session().write(std::chrono::seconds(2), [&](SqliteHandle&) -> Result<void> {
    CHECK_FALSE(finds(*store, make_entry(0)));  // cannot be removed now
    return {};
  }));
  CHECK(*other->put(make_entry(0)) == PutOutcome::stored);
  REQUIRE(store->flush(std::chrono::seconds(2)));
  CHECK(finds(*store, make_entry(0)));
}

TEST_CASE("fault 87: what a put stores is not removed for the damage that is pending for its key") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  const auto other = open_store_at(folder / "s");
  put_numbers(*store, 0, 1);
  execute(*store, "UPDATE object SET check128=randomblob(16)");
  REQUIRE(other->session().write(std::chrono::seconds(2), [&](SqliteHandle&) -> Result<void> {
    CHECK_FALSE(finds(*store, make_entry(0)));
    return {};
  }));
  CHECK(*store->put(make_entry(0)) == PutOutcome::stored);
  CHECK(finds(*store, make_entry(0)));
}

// fault 87
TEST_CASE("a stat record with a wrong path is not used, and the next one replaces it") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  StatRecord record;
  record.path = "/usr/include/a.h";
  record.digest = hash_of("a");
  record.recorded_ns = 9;
  store->save_stat_records({record});
  REQUIRE(store->flush(std::chrono::seconds(2)));
  const auto rename = [&](const char* sql) {
    REQUIRE(store->session().write(std::chrono::seconds(2),
                                   [&](SqliteHandle& db) { return db.execute(sql); }));
  };
  rename("UPDATE stat_cache SET path='/usr/include/b.h'");
  CHECK_FALSE(store->find_stat_record("/usr/include/a.h"));
  CHECK_FALSE(store->find_stat_record("/usr/include/b.h"));
  CHECK(store->verify(false)->damaged == 1);
  StatRecord right = record;
  right.path = "/usr/include/b.h";
  right.digest = hash_of("b");
  store->save_stat_records({right});
  REQUIRE(store->flush(std::chrono::seconds(2)));
  CHECK(store->find_stat_record("/usr/include/b.h")->digest == right.digest);
  CHECK(store->verify(false)->damaged == 0);

  rename("UPDATE stat_cache SET path='/usr/include/c.h'");
  CHECK(store->verify(false)->damaged == 1);
  CHECK(store->verify(true)->repaired == 1);
  CHECK(store->verify(false)->damaged == 0);
}

TEST_CASE("the memory of a compile is kept with its request, and goes with it") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  put_numbers(*store, 0, 2);  // without a peak
  CHECK((*store->list())[0].peak_bytes == 0);
  CHECK(store->peak_bytes(make_entry(0).request) == 0);
  StoreEntry entry = make_entry(2);
  entry.peak_bytes = 300 << 20;
  CHECK(*store->put(entry) == PutOutcome::stored);
  CHECK((*store->list())[2].peak_bytes == entry.peak_bytes);
  CHECK(store->peak_bytes(entry.request) == entry.peak_bytes);
  CHECK(store->peak_bytes(make_entry(0).request) == 0);
  CHECK(store->verify(false)->damaged == 0);
  CHECK(*store->remove(ObjectName::of(entry.key)));
  CHECK(store->peak_bytes(entry.request) == 0);
  CHECK(*store->put(entry) == PutOutcome::stored);
  CHECK(*store->remove_all() == 3);
  CHECK(store->peak_bytes(entry.request) == 0);
}

// fault 179
TEST_CASE("damage in the memory of a compile is not believed, and costs the request") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  StoreEntry entry = make_entry(0);
  entry.peak_bytes = 300 << 20;
  CHECK(*store->put(entry) == PutOutcome::stored);
  REQUIRE(store->session().write(std::chrono::seconds(2), [](SqliteHandle& db) {
    return db.execute("UPDATE request SET peak_bytes=peak_bytes+1");
  }));
  CHECK(store->peak_bytes(entry.request) == 0);
  CHECK(store->verify(false)->damaged == 2);  // the request and its entry
  CHECK_FALSE(finds(*store, entry));
  CHECK(store->verify(false)->damaged == 0);
  CHECK(*store->put(entry) == PutOutcome::stored);
  CHECK(store->peak_bytes(entry.request) == entry.peak_bytes);
}

TEST_CASE("fault 16: verify removes a damaged request with its entries, and no others") {
  for (const std::string column : {"check128", "only_entry", "tree"}) {
    CAPTURE(column);
    const ScratchFolder folder;
    const auto store = open_store_at(folder / "s");
    put_numbers(*store, 0, 3);
    REQUIRE(store->session().write(std::chrono::seconds(2), [&](SqliteHandle& db) {
      return flip_bit(db, "request", column);
    }));
    const auto report = store->verify(true);
    REQUIRE(report);
    CHECK(report->damaged == 2);  // the request and its entry
    CHECK(report->repaired == 2);
    CHECK(store->verify(false)->damaged == 0);
    CHECK_FALSE(finds(*store, make_entry(1)));
    CHECK(count_hits(*store, 0, 3) == 2);
    put_numbers(*store, 1, 1);
    CHECK(finds(*store, make_entry(1)));
  }
}

TEST_CASE("a put counts what is pending once, whether the entry was there or not") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  put_numbers(*store, 0, 1);
  store->count("compiles", 1);
  CHECK(*store->put(make_entry(0)) == PutOutcome::already_there);
  CHECK(*store->put(make_entry(1)) == PutOutcome::stored);
  REQUIRE(store->flush(std::chrono::seconds(2)));
  CHECK((*store->counters())["compiles"] == 1);
}

TEST_CASE("fault 16: a damaged length is not a negative size in the inventory") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  put_numbers(*store, 0, 1);
  REQUIRE(store->session().write(std::chrono::seconds(2), [](SqliteHandle& db) -> Result<void> {
    return db.execute("UPDATE object SET bytes=-5, summary=x''");
  }));
  const auto entries = store->list();
  REQUIRE(entries);
  REQUIRE(entries->size() == 1);
  CHECK(entries->front().cubin_bytes == 0);
  CHECK(entries->front().dependencies == 0);
}

TEST_CASE("fault 16: verify reports damage, and removes it with --repair only") {
  const ScratchFolder folder;
  make_checkpointed_store(folder / "s", 5);
  const std::string database = database_in(folder / "s");
  const std::string bytes = read_all(database);
  const std::size_t at = bytes.find(std::string(make_entry(2).cubin.image.view().substr(9000, 64)));
  overwrite(database, at, "X");
  const auto store = open_store_at(folder / "s");
  const auto found = store->verify(false);
  REQUIRE(found);
  CHECK(found->checked == 5);
  CHECK(found->damaged == 1);
  CHECK(found->repaired == 0);
  CHECK(found->findings.front().key == make_entry(2).key);
  CHECK(store->stats().entries == 5);
  const auto repaired = store->verify(true);
  REQUIRE(repaired);
  CHECK(repaired->damaged == 1);
  CHECK(repaired->repaired == 1);
  CHECK(store->stats().entries == 4);
  CHECK(store->verify(false)->damaged == 0);
}

TEST_CASE("fault 16: a flipped byte anywhere never gives wrong bytes") {
  const ScratchFolder folder;
  make_checkpointed_store(folder / "s", 8);
  const std::string whole = read_all(database_in(folder / "s"));
  std::uint64_t state = 7;
  for (int round = 0; round < 60; ++round) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const std::size_t at = (state >> 20) % whole.size();
    CAPTURE(at);
    const std::string copy = folder / ("copy" + std::to_string(round));
    REQUIRE(std::system(("cp -a '" + (folder / "s") + "' '" + copy + "'").c_str()) == 0);
    overwrite(database_in(copy), at, std::string(1, static_cast<char>(whole[at] ^ 0x5a)));
    const auto store = open_store_at(copy);
    count_hits(*store, 0, 8);  // requires every hit to be what was put
    CHECK(store->put(make_entry(100)).has_value());
    CHECK(count_hits(*store, 100, 1) == 1);
  }
}

TEST_CASE("fault 17: a byte flipped in the WAL costs hits, never bytes") {
  const ScratchFolder folder;
  make_uncheckpointed_store(folder / "s", 20);
  const std::string copy = folder / "s.copy";
  const std::string wal = database_in(copy) + "-wal";
  REQUIRE(::unlink((database_in(copy) + "-shm").c_str()) == 0);
  const std::string bytes = read_all(wal);
  REQUIRE(bytes.size() > 100'000);
  overwrite(wal, bytes.size() / 2, std::string(1, static_cast<char>(bytes[bytes.size() / 2] ^ 1)));
  const auto store = open_store_at(copy);
  const std::uint64_t hits = count_hits(*store, 0, 20, {2000});
  CHECK(hits > 0);
  CHECK(hits < 20);
  CHECK(store->put(make_entry(100)).has_value());
}

TEST_CASE("fault 18: a -shm of garbage that no process uses is rebuilt") {
  const ScratchFolder folder;
  make_uncheckpointed_store(folder / "s", 20);
  const std::string copy = folder / "s.copy";
  write_all(database_in(copy) + "-shm", fake_cubin(90, 32'768 - 64, 5));
  REQUIRE(std::system(("chmod 600 '" + database_in(copy) + "-shm'").c_str()) == 0);
  const auto store = open_store_at(copy);
  CHECK(count_hits(*store, 0, 20, {2000}) == 20);
}

TEST_CASE("fault 19: unlinking open files starts a new generation at the next write") {
  for (const char* suffix : {"", "-wal", "-shm"}) {
    CAPTURE(suffix);
    const ScratchFolder folder;
    const auto store = open_store_at(folder / "s");
    put_numbers(*store, 0, 5);
    REQUIRE(::unlink((database_in(folder / "s") + suffix).c_str()) == 0);
    put_numbers(*store, 10, 5);
    CHECK(count_hits(*store, 10, 5) == 5);
    CHECK(*store->session().generation_name() == "gen-0002");
    const auto other = open_store_at(folder / "s");
    CHECK(count_hits(*other, 10, 5) == 5);
  }
}

TEST_CASE("fault 19: a store that is removed while it is open is created again") {
  const ScratchFolder folder;
  const auto store = open_store_at(folder / "s");
  put_numbers(*store, 0, 5);
  REQUIRE(std::system(("rm -rf '" + (folder / "s") + "'").c_str()) == 0);
  put_numbers(*store, 10, 5);
  CHECK(count_hits(*store, 10, 5) == 5);
  CHECK(mode_of(folder / "s") == 0700);
}

TEST_CASE("a process follows to the generation that another process started") {
  const ScratchFolder folder;
  const auto first = open_store_at(folder / "s");
  const auto second = open_store_at(folder / "s");
  put_numbers(*first, 0, 1);
  REQUIRE(second->session().start_new_generation(Error(ErrorCode::corrupt, "for the test")));
  put_numbers(*second, 1, 1);
  put_numbers(*first, 2, 1);
  CHECK(*first->session().generation_name() == "gen-0002");
  CHECK(count_hits(*first, 1, 2) == 2);
  CHECK(count_hits(*second, 1, 2) == 2);
}

TEST_CASE("a collection removes an old generation that no process has open") {
  const ScratchFolder folder;
  make_checkpointed_store(folder / "s", 3);
  overwrite(database_in(folder / "s"), 0, "garbage");
  const auto store = open_store_at(folder / "s");
  CHECK(exists(folder / "s/v6/gen-0001"));
  REQUIRE(store->collect({}));
  CHECK_FALSE(exists(folder / "s/v6/gen-0001"));
  CHECK(exists(folder / "s/v6/gen-0002"));
}

// fault 343
TEST_CASE("damage starts at most one new generation a minute") {
  const ScratchFolder folder;
  make_checkpointed_store(folder / "s", 5);
  overwrite(database_in(folder / "s"), 16, "\xff\xff\xff\xff");
  expect_new_generation(folder / "s");
  overwrite(database_in(folder / "s", "gen-0002"), 16, "\xff\xff\xff\xff");
  const auto refused = SqliteStore::open(options_at(folder / "s"));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::io);
  CHECK(read_all(folder / "s/v6/CURRENT") == "gen-0002\n");
  std::filesystem::last_write_time(
      folder / "s/v6/CURRENT",
      std::filesystem::file_time_type::clock::now() - std::chrono::seconds(61));
  const auto store = open_store_at(folder / "s");
  CHECK(*store->session().generation_name() == "gen-0003");
}

TEST_CASE("a CURRENT that names no generation starts a new one") {
  const ScratchFolder folder;
  make_checkpointed_store(folder / "s", 3);
  for (const char* text : {"", "gen-0009\n", "../../etc\n", "nonsense"}) {
    CAPTURE(text);
    write_all(folder / "s/v6/CURRENT", text);
    const auto store = open_store_at(folder / "s");
    put_numbers(*store, 50, 1);
    REQUIRE(store->remove(ObjectName::of(make_entry(50).key)));
  }
}

}  // namespace
}  // namespace cukiln::testing
