// SPDX-License-Identifier: Apache-2.0
#include "store/entry_rows.hpp"

#include <utility>

#include "base/result.hpp"
#include "key/compile_request.hpp"

namespace cukiln {

Checksum checksum_of(const CacheKey& key, const RequestDigest& request, const EntryParts& parts,
                     std::int64_t compile_us, std::int64_t created_s,
                     std::int64_t dependency_count) noexcept {
  const auto& [canonical, dependencies, image, kernels, log, name, source, target, flags, compiler,
               signer, origin] =
      parts;  // the canonical request has a row and a checksum of its own
  Checksummer sum;
  sum.add(view_of(key)).add(view_of(request));
  for (const ByteView part :
       {dependencies, image, kernels, log, name, source, target, flags, compiler, signer}) {
    sum.add_sized(part);
  }
  for (const std::int64_t number : {origin, compile_us, created_s, dependency_count}) {
    sum.add_number(static_cast<std::uint64_t>(number));
  }
  return sum.finish();
}

Result<StoreEntry> check_row(const StoredRow& row, const RequestDigest& request, ByteView canonical,
                             OutputKind output, SharedBytes image) {
  const auto key = digest_from<CacheKey>(row.key);
  if (row.request != view_of(request)) {
    return make_error(ErrorCode::corrupt, "the entry {} names another request", key.hex());
  }
  const EntryParts parts = row.parts(canonical, image);
  const Checksum check =
      checksum_of(key, request, parts, row.compile_us, row.created_s, row.dependency_count);
  if (view_of(check) != row.check128 || row.key != view_of(key) ||
      row.cubin_bytes != static_cast<std::int64_t>(image.size())) {
    return make_error(ErrorCode::corrupt, "the entry {} does not match its checksum", key.hex());
  }
  if (!are_possible_uses(row.hits, row.last_used_s)) {
    return make_error(ErrorCode::corrupt, "the entry {} has impossible uses: {}, the last at {} s",
                      key.hex(), row.hits, row.last_used_s);
  }
  CUKILN_TRY(StoreEntry entry, decode_entry(key, request, output, parts, std::move(image)));
  entry.compile_us = row.compile_us;
  entry.created_s = row.created_s;
  entry.last_used_s = row.last_used_s;
  entry.hits = row.hits;
  return entry;
}

Result<CheckedEntry> read_entry(SqliteHandle& db, const CacheKey& key, const StoredRow& row,
                                const RequestDigest& request, ByteView canonical) {
  CheckedEntry read{key, {}, {}};
  // Reads the cubin directly into the memory that is returned. As a column of the statement it
  // would be copied, and a large one into freshly mapped memory twice.
  CUKILN_TRY(SharedBytes image, db.read_blob("cubin", "data", row.cubin_id, row.cubin_bytes));
  auto entry =
      row.key == view_of(key)
          ? check_row(row, request, canonical, output_of_request(canonical), std::move(image))
          : make_error(ErrorCode::corrupt, "the row of the entry {} has another key", key.hex());
  if (entry) {
    read.sound = *std::move(entry);
  } else {
    read.damage = std::move(entry).error();
  }
  return read;
}

Result<CheckedEntry> read_entry(SqliteHandle& db, const CacheKey& key) {
  Query query = db.query("SELECT " CUKILN_ENTRY_COLUMNS
                         ", r.canonical"
                         " FROM entry e LEFT JOIN request r ON r.digest=e.request WHERE e.key=?");
  CUKILN_TRY(const bool there, query.blob(view_of(key)).next());
  if (!there) {
    return CheckedEntry{key, {}, {}};
  }
  const std::string canonical(query.column_bytes(kEntryColumns));
  return read_entry(db, key, StoredRow(query), CompileRequest::digest_of(canonical), canonical);
}

Result<bool> remove_entry(SqliteHandle& db, const CacheKey& key) {
  CUKILN_CHECK(db.query("DELETE FROM entry WHERE key=?").blob(view_of(key)).run());
  return db.changes() > 0;
}

Result<void> remove_damaged_entry(SqliteHandle& db, const CacheKey& key) {
  CUKILN_CHECK(db.query("UPDATE entry SET cubin_id=0 WHERE key=?1 AND EXISTS (SELECT 1 FROM entry "
                        "other WHERE other.cubin_id=entry.cubin_id AND other.key<>?1)")
                   .blob(view_of(key))
                   .run());
  CUKILN_TRY([[maybe_unused]] const bool removed, remove_entry(db, key));
  return {};
}

}  // namespace cukiln
