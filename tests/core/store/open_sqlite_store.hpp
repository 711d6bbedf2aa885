// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/store/sqlite_store.hpp"
#include "support/store_entries.hpp"

namespace cukiln::testing {

/// Records the messages that a store logs.
class LogRecorder {
 public:
  LogSink sink() {
    return [this](LogLevel level, std::string_view message) {
      const std::lock_guard hold(mutex_);
      lines_.emplace_back(message);
      warnings_ += level == LogLevel::warn ? 1 : 0;
    };
  }
  Logger logger() { return Logger(sink()); }
  bool contains(std::string_view part) const {
    const std::lock_guard hold(mutex_);
    for (const std::string& line : lines_) {
      if (line.find(part) != std::string::npos) {
        return true;
      }
    }
    return false;
  }
  std::size_t count() const {
    const std::lock_guard hold(mutex_);
    return lines_.size();
  }
  std::size_t warnings() const {
    const std::lock_guard hold(mutex_);
    return warnings_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
  std::size_t warnings_ = 0;
};

inline std::unique_ptr<SqliteStore> open_store_at(SqliteStoreOptions options) {
  auto store = SqliteStore::open(std::move(options));
  REQUIRE_MESSAGE(store.has_value(), store.error().message());
  return *std::move(store);
}

inline SqliteStoreOptions options_at(const std::string& directory,
                                     const Clock& clock = Clock::system()) {
  SqliteStoreOptions options;
  options.directory = directory;
  options.clock = &clock;
  options.reserve_bytes = 1 << 20;
  return options;
}

inline std::unique_ptr<SqliteStore> open_store_at(const std::string& directory) {
  return open_store_at(options_at(directory));
}

inline std::string database_in(const std::string& directory, const char* generation = "gen-0001") {
  return directory + "/v6/" + generation + "/store.db";
}

inline void put_numbers(SqliteStore& store, std::uint64_t first, std::uint64_t count,
                        const EntryShape& shape = {}) {
  for (std::uint64_t i = first; i < first + count; ++i) {
    const auto outcome = store.put(make_entry(i, shape));
    REQUIRE_MESSAGE(outcome.has_value(), outcome.error().message());
    REQUIRE(*outcome == PutOutcome::stored);
  }
}

/// Counts the entries that are hits. A hit that is not what was put fails the test.
inline std::uint64_t count_hits(ObjectTier& store, std::uint64_t first, std::uint64_t count,
                                const EntryShape& shape = {}) {
  std::uint64_t hits = 0;
  for (std::uint64_t i = first; i < first + count; ++i) {
    const StoreEntry entry = make_entry(i, shape);
    const auto found = store.get(entry.key);
    if (found && *found) {
      REQUIRE(same_content(**found, entry));
      ++hits;
    }
  }
  return hits;
}

/// Makes a store of `count` entries with an empty WAL.
inline void make_checkpointed_store(const std::string& directory, std::uint64_t count) {
  const auto store = open_store_at(directory);
  put_numbers(*store, 0, count);
  REQUIRE(store->session().write(
      std::chrono::seconds(2), [&](SqliteHandle& db) { return store->session().checkpoint(db); }));
}

/// The same, with all entries in the WAL, and a copy of it in `directory`.copy.
inline void make_uncheckpointed_store(const std::string& directory, std::uint64_t count) {
  SqliteStoreOptions options = options_at(directory);
  options.checkpoint_bytes = 1ull << 40;
  options.reserve_bytes = 0;
  const auto store = open_store_at(options);
  put_numbers(*store, 0, count, {2000});
  // A copy taken while it is open is what a killed process leaves.
  REQUIRE(std::system(("cp -a '" + directory + "' '" + directory + ".copy'").c_str()) == 0);
}

inline void overwrite(const std::string& path, std::size_t at, std::string_view bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at));
  file << bytes;
}

}  // namespace cukiln::testing
