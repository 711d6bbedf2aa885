// SPDX-License-Identifier: Apache-2.0
#include "store/entry_rows.hpp"

#include <utility>

#include "base/result.hpp"
#include "key/compile_request.hpp"

namespace cukiln {

Error wrong_request_error(const CacheKey& key) {
  return make_error(ErrorCode::corrupt, "the entry {} names another request", key.hex());
}

Lookup read_entry(SqliteHandle& db, const CacheKey& key, const StoredRow& row,
                  const RequestDigest& request, ByteView request_canonical,
                  std::optional<Error>* damage) {
  // Reads the cubin directly into the memory that is returned. As a column of the statement it
  // would be copied, and a large one into freshly mapped memory twice.
  CUKILN_TRY(SharedBytes image, db.read_blob("cubin", "data", row.cubin_id, row.cubin_bytes));
  const EntryParts parts = row.parts(request_canonical, image);
  const Checksum check = checksum_of(key, digest_from<RequestDigest>(row.request), parts,
                                     row.compile_us, row.created_s, row.dependency_count);
  if (view_of(check) != row.check128 || row.key != view_of(key)) {
    *damage = make_error(ErrorCode::corrupt, "the entry {} does not match its checksum", key.hex());
    return std::optional<StoreEntry>();
  }
  auto entry = row.request == view_of(request)
                   ? decode_entry(key, request, output_of_request(request_canonical), parts,
                                  std::move(image))
                   : Result<StoreEntry>(wrong_request_error(key));
  if (!entry) {
    *damage = std::move(entry).error();
    return std::optional<StoreEntry>();
  }
  entry->compile_us = row.compile_us;
  entry->created_s = row.created_s;
  entry->last_used_s = row.last_used_s;
  entry->hits = row.hits;
  return std::optional<StoreEntry>(*std::move(entry));
}

Lookup read_entry(SqliteHandle& db, const CacheKey& key, std::optional<Error>* damage) {
  Query query = db.query("SELECT " CUKILN_ENTRY_COLUMNS
                         ", r.canonical"
                         " FROM entry e LEFT JOIN request r ON r.digest=e.request WHERE e.key=?");
  CUKILN_TRY(const bool there, query.blob(view_of(key)).next());
  if (!there) {
    return std::optional<StoreEntry>();
  }
  const std::string canonical(query.column_bytes(kEntryColumns));
  return read_entry(db, key, StoredRow(query), CompileRequest::digest_of(canonical), canonical,
                    damage);
}

}  // namespace cukiln
