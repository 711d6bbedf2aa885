// SPDX-License-Identifier: Apache-2.0
#include "store/stray_rows.hpp"

#include <cassert>

#include "base/result.hpp"
#include "store/pending_writes.hpp"
#include "store/set_records.hpp"

namespace cukiln {

Result<StrayRows> find_stray_rows(SqliteHandle& db) {
  StrayRows rows;
  CUKILN_TRY(rows.requests,
             db.query("SELECT 1 FROM request WHERE NOT EXISTS "
                      "(SELECT 1 FROM entry WHERE entry.request=request.digest) LIMIT 1")
                 .next());
  CUKILN_TRY(const std::int64_t damaged,
             db.number("SELECT value FROM counter WHERE name='corrupt'"));
  if (damaged != 0) {
    CUKILN_TRY(rows.cubins, db.query("SELECT 1 FROM cubin WHERE id NOT IN "
                                     "(SELECT cubin_id FROM entry) LIMIT 1")
                                .next());
  }
  Query query = db.query("SELECT " CUKILN_STAT_COLUMNS " FROM stat_cache");
  for (;;) {
    CUKILN_TRY(const bool there, query.next());
    if (!there) {
      return rows;
    }
    if (!stat_record_of(query)) {
      rows.stat_records.emplace_back(query.column_bytes(0));
    }
  }
}

Result<void> remove_stray_rows(SqliteHandle& db, const StrayRows& rows) {
  assert(db.in_transaction());
  if (rows.requests) {
    CUKILN_CHECK(remove_stray_requests(db));
  }
  if (rows.cubins) {
    CUKILN_CHECK(remove_stray_cubins(db));
  }
  for (const std::string& path : rows.stat_records) {
    CUKILN_CHECK(db.query("DELETE FROM stat_cache WHERE path=?").text(path).run());
  }
  return {};
}

Result<void> remove_stray_cubins(SqliteHandle& db) {
  return db.query("DELETE FROM cubin WHERE id NOT IN (SELECT cubin_id FROM entry)").run();
}

}  // namespace cukiln
