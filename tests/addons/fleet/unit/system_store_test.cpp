// SPDX-License-Identifier: Apache-2.0
// The store that an image hands to other users: who may read it, and that it is never half.
#include "addons/fleet/system_store.hpp"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>

#include "core/store/open_sqlite_store.hpp"

namespace cukiln::testing {
namespace {

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

SystemStoreWriter writer_at(const std::string& directory) {
  auto writer = SystemStoreWriter::create(directory);
  REQUIRE_MESSAGE(writer.has_value(), writer.error().message());
  return *std::move(writer);
}

SystemStoreWriter::Summary write_store(const std::string& directory,
                                       const std::vector<std::uint64_t>& numbers) {
  SystemStoreWriter writer = writer_at(directory);
  for (const std::uint64_t number : numbers) {
    StoreEntry entry = make_entry(number);
    entry.compile_us = static_cast<std::int64_t>(1000 + number);  // as another run would take
    REQUIRE(writer.add(entry));
  }
  const auto done = writer.finish();
  REQUIRE_MESSAGE(done.has_value(), done.error().message());
  return *done;
}

std::unique_ptr<SqliteStore> open_system(const std::string& directory) {
  SqliteStoreOptions options;
  options.directory = directory;
  options.system = true;
  return open_store_at(options);
}

std::vector<std::string> files_below(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& one : std::filesystem::recursive_directory_iterator(directory)) {
    files.push_back(std::filesystem::relative(one.path(), directory).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string refusal(const std::string& directory) {
  const auto writer = SystemStoreWriter::create(directory);
  REQUIRE_FALSE(writer.has_value());
  return writer.error().message();
}

TEST_CASE("a system store is two files that all users may read, whatever the umask") {
  const ScratchFolder folder;
  const mode_t before = ::umask(0077);
  const auto written = write_store(folder / "a/b", {1, 2, 3});
  ::umask(before);
  CHECK(files_below(folder / "a/b") ==
        std::vector<std::string>{"v6", "v6/CURRENT", "v6/gen-0001", "v6/gen-0001/store.db"});
  for (const char* name : {"a", "a/b", "a/b/v6", "a/b/v6/gen-0001"}) {
    CAPTURE(name);
    CHECK(mode_of(folder / name) == 0755);
  }
  CHECK(mode_of(folder / "a/b/v6/CURRENT") == 0644);
  CHECK(mode_of(folder / "a/b" + "/" + written.database) == 0644);
  CHECK(written.entries == 3);
  CHECK(written.bytes == std::filesystem::file_size(folder / "a/b/v6/gen-0001/store.db"));
  const auto store = open_system(folder / "a/b");
  CHECK(store->read_only());
  CHECK(count_hits(*store, 1, 3) == 3);
  CHECK(finds(*store, make_entry(2)));
  CHECK(*store->source_text(make_entry(2).key) == make_entry(2).source_text);
  CHECK(files_below(folder / "a/b").size() == 4);  // a reader leaves nothing
}

TEST_CASE("a system store keeps blobs, and the same ones give the same bytes") {
  const ScratchFolder folder;
  const std::vector<StoreBlob> blobs = {
      make_blob("triton", "one", "1", {}, 7),
      make_blob("triton", "two", std::string(9000, '2'), "k:key", 8),
      make_blob("inductor", "three", "", {}, 9)};
  const auto write = [&](const char* name, const std::vector<std::size_t>& order) {
    SystemStoreWriter writer = writer_at(folder / name);
    for (const std::size_t at : order) {
      CHECK(*writer.add(blobs[at]) == PutOutcome::stored);
      CHECK(*writer.add(blobs[at]) == PutOutcome::already_there);
      REQUIRE(writer.add(make_entry(at)));
    }
    REQUIRE(writer.finish());
  };
  write("first", {0, 1, 2});
  write("second", {2, 0, 1});
  write("third", {1});
  {
    SystemStoreWriter writer = writer_at(folder / "third");  // keeps what is there
    for (const std::size_t at : {2, 0}) {
      CHECK(*writer.add(blobs[at]) == PutOutcome::stored);
      REQUIRE(writer.add(make_entry(at)));
    }
    CHECK(*writer.add(make_blob("triton", "two", "other")) == PutOutcome::already_there);
    REQUIRE(writer.finish());
  }
  const std::string bytes = bytes_of(folder / "first/v6/gen-0001/store.db");
  CHECK(bytes == bytes_of(folder / "second/v6/gen-0001/store.db"));
  CHECK(bytes == bytes_of(folder / "third/v6/gen-0002/store.db"));
  const auto store = open_system(folder / "first");
  CHECK(store->verify(false)->damaged == 0);
  for (const StoreBlob& blob : blobs) {
    const auto found = *store->get(*BlobName::make(blob.kind, blob.key));
    REQUIRE(found);
    CHECK(found->bytes == blob.bytes);
    CHECK(found->signer == blob.signer);
  }
  std::vector<std::string> keys;
  REQUIRE(for_each_of_system_store(
      folder / "first", [](const StoreEntry&) { return Result<void>(); },
      [&](const StoreBlob& blob) {
        keys.push_back(blob.key);
        return Result<void>();
      }));
  CHECK(keys.size() == 3);
  write("other", {1});
  CHECK(bytes_of(folder / "other/v6/gen-0001/store.db") != bytes);
}

TEST_CASE("the same entries give the same bytes, in any order and by any number of writers") {
  const ScratchFolder folder;
  std::vector<std::uint64_t> numbers(40);
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto first = write_store(folder / "first", numbers);
  std::shuffle(numbers.begin(), numbers.end(), std::mt19937(7));
  const auto second = write_store(folder / "second", numbers);
  const std::string bytes = bytes_of(folder / "first/v6/gen-0001/store.db");
  CHECK(bytes.size() > 40 * 20'000);
  CHECK(bytes == bytes_of(folder / "second/v6/gen-0001/store.db"));
  const std::size_t half = numbers.size() / 2;
  write_store(folder / "third", {numbers.begin(), numbers.begin() + half});
  const auto both = write_store(folder / "third", {numbers.begin() + half, numbers.end()});
  CHECK(both.entries == 40);
  CHECK(both.database == "v6/gen-0002/store.db");
  CHECK(bytes == bytes_of(folder / "third/v6/gen-0002/store.db"));
  CHECK(files_below(folder / "third").size() == 4);  // the generation before is gone
  write_store(folder / "other", {1});
  CHECK(bytes_of(folder / "other/v6/gen-0001/store.db") != bytes);
}

TEST_CASE("fault 181: a writer that ends early leaves the store as it was, and blocks no other") {
  const ScratchFolder folder;
  const std::string directory = folder / "s";
  write_store(directory, {1});
  {
    SystemStoreWriter writer = writer_at(directory);
    REQUIRE(writer.add(make_entry(2)));
    CHECK(refusal(directory).find("another process is writing") != std::string::npos);
    CHECK(count_hits(*open_system(directory), 1, 2) == 1);
  }
  CHECK(files_below(directory).size() == 4);
  // What a killed process leaves: its files, and no lock.
  std::filesystem::create_directories(directory + "/v6/part/added/v6/gen-0001");
  std::filesystem::create_directories(directory + "/v6/gen-0002");
  write_all(directory + "/v6/part/CURRENT", "gen-0009\n");
  CHECK(count_hits(*open_system(directory), 1, 2) == 1);
  write_store(directory, {2});
  CHECK(count_hits(*open_system(directory), 1, 2) == 2);
  CHECK_FALSE(exists(directory + "/v6/part"));
  CHECK_FALSE(exists(directory + "/v6/gen-0002"));
}

TEST_CASE("fault 181: a process that has the store open while it is replaced finds both") {
  const ScratchFolder folder;
  const std::string directory = folder / "s";
  write_store(directory, {1});
  const auto reader = open_system(directory);
  REQUIRE(count_hits(*reader, 1, 1) == 1);
  // A second connection is opened by name, in a generation that is gone.
  REQUIRE(reader->session().read([&](SqliteHandle&) -> Result<void> {
    write_store(directory, {2});
    CHECK(reader->get(make_entry(1).key).has_value());
    CHECK(reader->get(make_entry(1).key)->has_value());
    return {};
  }));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  CHECK(count_hits(*reader, 1, 2) == 2);
}

TEST_CASE("folders that are not a system store's are refused, and stay as they are") {
  const ScratchFolder folder;
  { put_numbers(*open_store_at(folder / "user"), 1, 1); }
  CHECK(refusal(folder / "user").find("a store that processes write") != std::string::npos);
  CHECK(count_hits(*open_store_at(folder / "user"), 1, 1) == 1);

  folder.write("home/file", "");
  REQUIRE(::chmod((folder / "home").c_str(), 0700) == 0);
  CHECK(refusal(folder / "home").find("chmod a+rx") != std::string::npos);
  CHECK(mode_of(folder / "home") == 0700);

  std::filesystem::create_directories(folder / "open");
  REQUIRE(::chmod((folder / "open").c_str(), 0777) == 0);
  CHECK(refusal(folder / "open").find("go-w") != std::string::npos);
  CHECK(refusal("relative").find("absolute") != std::string::npos);

  std::filesystem::create_directories(folder / "empty");  // as `mkdir -m 700` made it
  REQUIRE(::chmod((folder / "empty").c_str(), 0700) == 0);
  write_store(folder / "empty", {1});
  CHECK(mode_of(folder / "empty") == 0755);
}

TEST_CASE("a damaged system store is not extended") {
  const ScratchFolder folder;
  write_store(folder / "s", {1, 2});
  const std::string database = folder / "s/v6/gen-0001/store.db";
  const StoreEntry entry = make_entry(2);
  const std::string bytes = bytes_of(database);
  const ByteView part = entry.cubin.image.view().substr(100, 50);
  REQUIRE(bytes.find(part) != std::string::npos);
  for (auto at = bytes.find(part); at != std::string::npos; at = bytes.find(part, at + 1)) {
    overwrite(database, at, std::string(50, 'x'));  // unused room of a page may have it as well
  }
  const std::string why = refusal(folder / "s");
  CHECK(why.find("damaged") != std::string::npos);
  CHECK(exists(database));
}

}  // namespace
}  // namespace cukiln::testing
