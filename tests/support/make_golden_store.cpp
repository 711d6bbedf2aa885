// SPDX-License-Identifier: Apache-2.0
// Writes a store with known entries for cache/golden/:
//
//   make_golden_store DIRECTORY
//
// Keep its v6/CURRENT, store.db and store.db-wal. Run it when the number of the format is raised.
// No test runs it.
#include <cstdio>

#include "core/store/sqlite_store.hpp"
#include "support/golden_entries.hpp"

int main(int count, char** values) {
  using namespace cukiln;
  if (count != 2) {
    std::fprintf(stderr, "usage: make_golden_store DIRECTORY (absolute)\n");
    return 2;
  }
  SqliteStoreOptions options;
  options.directory = values[1];
  options.reserve_bytes = 0;
  testing::FakeClock clock;
  options.clock = &clock;
  auto store = SqliteStore::open(options);
  if (!store) {
    std::fprintf(stderr, "%s\n", store.error().message().c_str());
    return 1;
  }
  const StoreBlob blob = testing::golden_blob();
  if (!(*store)->put(blob)) {
    return 1;
  }
  const std::vector<StoreEntry> entries = testing::golden_entries();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i + 1 ==
        entries.size()) {  // the last one stays in the WAL, so that reading it is tested too
      const auto cut = (*store)->session().write(std::chrono::seconds(5), [&](SqliteHandle& db) {
        return (*store)->session().checkpoint(db);
      });
      if (!cut) {
        return 1;
      }
    }
    if (const auto put = (*store)->put(entries[i]); !put) {
      std::fprintf(stderr, "%s\n", put.error().message().c_str());
      return 1;
    }
  }
  (*store)->save_stat_records({testing::golden_stat_record()});
  (*store)->count("compiles", static_cast<std::int64_t>(entries.size()));
  return (*store)->flush(std::chrono::seconds(5)) ? 0 : 1;
}
