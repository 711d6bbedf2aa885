// SPDX-License-Identifier: Apache-2.0
#include "core/store/contract.hpp"

#include "core/store/memory_store.hpp"
#include "core/store/sqlite_store.hpp"
#include "core/store/tiered_store.hpp"

namespace cukiln::testing {
namespace {

std::unique_ptr<ObjectTier> open_sqlite(const ScratchFolder& folder) {
  SqliteStoreOptions options;
  options.directory = folder / "store";
  auto store = SqliteStore::open(options);
  REQUIRE_MESSAGE(store.has_value(), store.error().message());
  return *std::move(store);
}

std::unique_ptr<ObjectTier> open_tiers(const ScratchFolder& folder) {
  TieredStore::Options options;
  options.store.directory = folder / "store";
  options.store.system_directory.clear();
  auto store = TieredStore::open(options);
  REQUIRE_MESSAGE(store.has_value(), store.error().message());
  CHECK((*store)->bypass_reason().empty());
  return *std::move(store);
}

std::unique_ptr<ObjectTier> open_memory_tiers() {
  TieredStore::Options options;
  options.store.memory_only = true;
  return *TieredStore::open(options);
}

std::unique_ptr<ObjectTier> open_memory() { return std::make_unique<MemoryStore>(64 << 20); }

TEST_CASE("MemoryStore keeps the contract") {
  SUBCASE("of entries") { check_contract(open_memory); }
  SUBCASE("of objects") { check_objects<Entries>(open_memory); }
  SUBCASE("without blobs") { check_no_blobs(*open_memory()); }
}

TEST_CASE("SqliteStore keeps the contract") {
  const ScratchFolder folder;
  const auto open = [&] { return open_sqlite(folder); };
  SUBCASE("of entries") { check_contract(open); }
  SUBCASE("of objects, with entries") { check_objects<Entries>(open); }
  SUBCASE("of objects, with blobs") { check_objects<Blobs>(open); }
}

TEST_CASE("TieredStore keeps the contract on disk") {
  const ScratchFolder folder;
  const auto open = [&] { return open_tiers(folder); };
  SUBCASE("of entries") { check_contract(open); }
  SUBCASE("of objects, with entries") { check_objects<Entries>(open); }
  SUBCASE("of objects, with blobs") { check_objects<Blobs>(open); }
}

TEST_CASE("TieredStore keeps the contract in memory alone") {
  SUBCASE("of entries") { check_contract(open_memory_tiers); }
  SUBCASE("without blobs") { check_no_blobs(*open_memory_tiers()); }
}

}  // namespace
}  // namespace cukiln::testing
