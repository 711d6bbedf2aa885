// SPDX-License-Identifier: Apache-2.0
#include "core/store/contract.hpp"

#include "core/store/memory_store.hpp"
#include "core/store/sqlite_store.hpp"
#include "core/store/tiered_store.hpp"

namespace cukiln::testing {
namespace {

TEST_CASE("MemoryStore keeps the contract") {
  check_contract([] { return std::make_unique<MemoryStore>(64 << 20); });
}

TEST_CASE("SqliteStore keeps the contract") {
  const ScratchFolder folder;
  check_contract([&]() -> std::unique_ptr<CubinStore> {
    SqliteStoreOptions options;
    options.directory = folder / "store";
    auto store = SqliteStore::open(options);
    REQUIRE_MESSAGE(store.has_value(), store.error().message());
    return *std::move(store);
  });
}

TEST_CASE("TieredStore keeps the contract on disk") {
  const ScratchFolder folder;
  check_contract([&]() -> std::unique_ptr<CubinStore> {
    TieredStore::Options options;
    options.store.directory = folder / "store";
    options.store.system_directory.clear();
    auto store = TieredStore::open(options);
    REQUIRE_MESSAGE(store.has_value(), store.error().message());
    CHECK((*store)->bypass_reason().empty());
    return *std::move(store);
  });
}

TEST_CASE("TieredStore keeps the contract in memory alone") {
  check_contract([]() -> std::unique_ptr<CubinStore> {
    TieredStore::Options options;
    options.store.memory_only = true;
    return *TieredStore::open(options);
  });
}

}  // namespace
}  // namespace cukiln::testing
