// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/store/maintenance.hpp"
#include "core/store/store_accounting.hpp"
#include "core/store/store_session.hpp"

namespace cukiln {

/// Returns the bytes of the pages in use, which the cap limits.
Result<std::uint64_t> live_bytes(SqliteHandle& db);

/// Evicts objects of an SQLite store to stay below the cap or to make room on a full disk: failures
/// first, then entries and blobs, the least recently used first. Members that take a handle are
/// called with the writer lock held.
class Eviction {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int64_t kBatchRows = 100;  ///< of a transaction, so that others may write

  Eviction(StoreSession& session, StoreAccounting& accounting, MaintenanceLog& log)
      : session_(session), accounting_(accounting), log_(log) {}

  /// Makes room for `bytes` below the cap, in transactions of at most kBatchRows rows each.
  Result<void> make_room(SqliteHandle& db, std::uint64_t bytes);
  /// Makes room for `bytes` on a full disk. Releases the reserve.
  void free_disk(SqliteHandle& db, std::uint64_t bytes);

  struct Evicted {
    std::uint64_t entries = 0, blobs = 0, failures = 0, bytes = 0;
    std::uint64_t entry_bytes = 0, blob_bytes = 0;  ///< parts of `bytes`
    std::uint64_t rows() const noexcept { return entries + blobs + failures; }
  };
  /// Evicts at most `rows` objects in one transaction, until `bytes` are evicted and none is left
  /// that was last used before `unused_since_s`.
  Result<Evicted> evict_batch(SqliteHandle& db, std::uint64_t bytes, std::int64_t unused_since_s,
                              std::int64_t rows);
  /// Describes the entries among the objects for events; nothing if none are wanted.
  std::vector<Event> events_of(SqliteHandle& db, const std::vector<std::int64_t>& ids);
  /// Returns what evict_batch would remove. Adds the ids of the objects to `victims`, which may be
  /// null.
  static Result<Evicted> choose(SqliteHandle& db, std::uint64_t bytes, std::int64_t unused_since_s,
                                std::int64_t limit, std::vector<std::int64_t>* victims);

  /// Returns free pages to the file system, and makes the reserve again.
  Result<void> shrink_file();

  /// Runs a deletion with the writer lock held; on a full disk once more, after the reserve was
  /// released.
  template <class Body>
  auto write_deletion(Body&& body) -> decltype(body(std::declval<SqliteHandle&>())) {
    return session_.write(session_.options().write_wait, [&](SqliteHandle& db) {
      auto done = body(db);
      if (!done && db.trouble() == SqliteTrouble::full) {
        make_room_to_delete(db);
        done = body(db);
      }
      return done;
    });
  }

  /// Runs an insertion of `bytes` with the writer lock held, after it made room below the cap; on a
  /// full disk once more, after it made room there.
  template <class Insert>
  auto write_insertion(std::uint64_t bytes, Insert&& insert)
      -> decltype(insert(std::declval<SqliteHandle&>())) {
    return session_.write(session_.options().write_wait, [&](SqliteHandle& db) {
      if (auto made = make_room(db, bytes); !made) {
        return decltype(insert(db))(std::move(made).error());
      }
      auto first = insert(db);
      if (first || db.trouble() != SqliteTrouble::full) {
        return first;
      }
      free_disk(db, bytes);
      auto again = insert(db);
      session_.make_reserve();
      if (!again) {
        return decltype(insert(db))(no_space_error(again.error()));
      }
      warn_of_full_disk(first.error());
      return again;
    });
  }

 private:
  Error no_space_error(const Error& why) const;
  /// Warns once.
  void warn_of_full_disk(const Error& why);
  /// `is_run` is set if entries had to be evicted.
  Result<void> evict_for(SqliteHandle& db, std::uint64_t bytes, bool& is_run);
  /// Releases the reserve: a deletion writes to the WAL first, which a full disk has no room for.
  void make_room_to_delete(SqliteHandle& db);
  void return_free_pages(SqliteHandle& db);

  StoreSession& session_;
  StoreAccounting& accounting_;
  MaintenanceLog& log_;
  std::atomic<bool> warned_of_full_disk_{false};
};

}  // namespace cukiln
