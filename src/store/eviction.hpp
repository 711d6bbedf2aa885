// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "store/maintenance_log.hpp"
#include "store/store_accounting.hpp"
#include "store/store_session.hpp"

namespace cukiln {

/// Bytes of the pages in use: what the cap counts.
Result<std::uint64_t> live_bytes(SqliteHandle& db);

/// Makes room in an SQLite store: below its cap, and on a full disk. The least recently used
/// entries go first. Members that take a handle are called as the only writer.
class Eviction {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int64_t kBatchRows = 100;  ///< a transaction's, so that others may write

  Eviction(StoreSession& session, StoreAccounting& accounting, MaintenanceLog& log)
      : session_(session), accounting_(accounting), log_(log) {}

  /// Makes room below the cap, in transactions of at most kBatchRows rows each.
  Result<void> make_room(SqliteHandle& db, std::uint64_t bytes);
  /// Makes room on a full disk. The reserve is gone afterwards.
  void free_disk(SqliteHandle& db, std::uint64_t bytes);

  struct Evicted {
    std::uint64_t entries = 0, bytes = 0;
  };
  /// One transaction: least recently used first, until `bytes` are gone, or all unused since then.
  Result<Evicted> evict_batch(SqliteHandle& db, std::uint64_t bytes, std::int64_t unused_since_s,
                              std::int64_t rows);
  /// What it would remove; `ids` may be null.
  static Result<Evicted> choose(SqliteHandle& db, std::uint64_t bytes, std::int64_t unused_since_s,
                                std::int64_t limit, std::vector<std::int64_t>* ids);

  /// Gives free pages back to the file system, and makes the reserve again.
  Result<void> shrink_file();

  /// A deletion, as the only writer; on a full disk once more, with the reserve's space.
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

 private:
  /// `is_run`: something had to go.
  Result<void> evict_for(SqliteHandle& db, std::uint64_t bytes, bool& is_run);
  /// Deleting writes to the WAL first, so on a full disk nothing goes without the reserve.
  void make_room_to_delete(SqliteHandle& db);
  void give_back_space(SqliteHandle& db);

  StoreSession& session_;
  StoreAccounting& accounting_;
  MaintenanceLog& log_;
};

}  // namespace cukiln
