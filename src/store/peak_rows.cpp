// SPDX-License-Identifier: Apache-2.0
#include "store/peak_rows.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/hasher.hpp"
#include "base/result.hpp"

namespace cukiln {

namespace {

std::int64_t check_of_peak(ByteView key, std::int64_t peak_bytes) noexcept {
  const Checksum whole =
      Checksummer().add_sized(key).add_number(static_cast<std::uint64_t>(peak_bytes)).finish();
  std::int64_t check = 0;
  std::memcpy(&check, whole.bytes.data(), sizeof check);
  return check;
}

}  // namespace

Result<PeakRows> read_peaks(SqliteHandle& db) {
  PeakRows rows;
  Query query = db.query("SELECT key, peak_bytes, check64 FROM compile_peak");
  for (;;) {
    CUKILN_TRY(const bool row, query.next());
    if (!row) {
      return rows;
    }
    const ByteView key = query.column_bytes(0);
    const std::int64_t peak = query.column_number(1);
    if (peak > 0 && key.size() == CacheKey().bytes.size() &&
        query.column_number(2) == check_of_peak(key, peak)) {
      rows.peaks[digest_from<CacheKey>(key)] = static_cast<std::uint64_t>(peak);
    } else {
      rows.damaged.emplace_back(key);
    }
  }
}

Result<std::uint64_t> read_peak(SqliteHandle& db, const RequestDigest& request) {
  std::uint64_t highest = 0;
  Query query = db.query(
      "SELECT p.key, p.peak_bytes, p.check64 FROM entry e JOIN compile_peak p ON p.key=e.key "
      "WHERE e.request=?");
  query.blob(view_of(request));
  for (;;) {
    CUKILN_TRY(const bool row, query.next());
    if (!row) {
      return highest;
    }
    const std::int64_t peak = query.column_number(1);
    if (peak > 0 && query.column_number(2) == check_of_peak(query.column_bytes(0), peak)) {
      highest = std::max(highest, static_cast<std::uint64_t>(peak));
    }
  }
}

Result<void> write_peak(SqliteHandle& db, const CacheKey& key, std::uint64_t peak_bytes) {
  assert(db.in_transaction());
  const auto peak = static_cast<std::int64_t>(peak_bytes);
  return db.query("INSERT OR REPLACE INTO compile_peak(key, peak_bytes, check64) VALUES(?,?,?)")
      .blob(view_of(key))
      .number(peak)
      .number(check_of_peak(view_of(key), peak))
      .run();
}

}  // namespace cukiln
