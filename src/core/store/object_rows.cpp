// SPDX-License-Identifier: Apache-2.0
#include "core/store/object_rows.hpp"

#include <cassert>
#include <utility>

#include "core/base/result.hpp"
#include "core/key/compile_request.hpp"

namespace cukiln {

namespace {

const char* word_of(const Object& object) noexcept {
  return object.is_entry() ? "entry" : object.is_failure() ? "failure" : "blob";
}

}  // namespace

ObjectRow::ObjectRow(const Query& query, int first)
    : id(query.column_number(first)),
      request(query.column_bytes(first + 3)),
      check128(query.column_bytes(first + 9)),
      last_used_s(query.column_number(first + 5)),
      hits(query.column_number(first + 6)),
      bytes(query.column_number(first + 7)),
      origin(query.column_number(first + 8)) {
  object.name = digest_from<ObjectName>(query.column_bytes(first + 1));
  object.kind = query.column_bytes(first + 2);
  object.created_s = query.column_number(first + 4);
  object.origin = static_cast<Origin>(origin);
  object.signer = query.column_bytes(first + 10);
  object.summary = query.column_bytes(first + 11);
  object.details = query.column_bytes(first + 12);
}

Result<void> ObjectRow::check(const ObjectName& name) const {
  const char* const word = word_of(object);
  if (object.name != name) {
    return make_error(ErrorCode::corrupt, "the row of the {} {} has another name", word,
                      name.hex());
  }
  if (view_of(checksum_of(object, request)) != check128 ||
      bytes != static_cast<std::int64_t>(object.data.size()) ||
      origin != static_cast<std::int64_t>(object.origin)) {
    return make_error(ErrorCode::corrupt, "the {} {} does not match its checksum", word,
                      name.hex());
  }
  if (hits < 0 || hits >= kMaxHits || last_used_s < 0 || last_used_s >= kMaxLastUsedS) {
    return make_error(ErrorCode::corrupt, "the {} {} has impossible uses: {}, the last at {} s",
                      word, name.hex(), hits, last_used_s);
  }
  return {};
}

Checksum checksum_of(const Object& object, ByteView request) noexcept {
  const auto& [name, kind, canonical, summary, details, signer, origin, created_s, data] =
      object;  // the canonical request has a row and a checksum of its own
  Checksummer sum;
  sum.add(view_of(name)).add_sized(request);
  for (const ByteView part :
       {ByteView(kind), ByteView(summary), ByteView(details), ByteView(signer), data.view()}) {
    sum.add_sized(part);
  }
  return sum.add_number(static_cast<std::uint64_t>(origin))
      .add_number(static_cast<std::uint64_t>(created_s))
      .finish();
}

Result<void> read_data(SqliteHandle& db, ObjectRow& row) {
  // Reads directly into the memory that is returned. As a column of the statement it would be
  // copied, and a large one into freshly mapped memory twice.
  CUKILN_TRY(row.object.data, db.read_blob("payload", "data", row.id, row.bytes));
  return {};
}

Result<Checked<StoreEntry>> read_entry(SqliteHandle& db, const CacheKey& key, ObjectRow row,
                                       const RequestDigest& request, ByteView canonical) {
  Checked<StoreEntry> read{ObjectName::of(key), {}, {}};
  CUKILN_CHECK(read_data(db, row));
  auto checked = row.check(read.name);
  if (checked && row.request != view_of(request)) {
    checked = make_error(ErrorCode::corrupt, "the entry {} names another request", key.hex());
  }
  if (!checked) {
    read.damage = std::move(checked).error();
    return read;
  }
  row.object.request = canonical;
  auto entry = decode_entry(std::move(row.object), request, output_of_request(canonical));
  if (entry) {
    entry->last_used_s = row.last_used_s;
    entry->hits = row.hits;
    read.sound = *std::move(entry);
  } else {
    read.damage = std::move(entry).error();
  }
  return read;
}

Result<Checked<StoreEntry>> read_entry(SqliteHandle& db, const CacheKey& key) {
  Query query = db.query("SELECT " CUKILN_OBJECT_COLUMNS
                         ", r.canonical FROM object o LEFT JOIN request r ON r.digest=o.request "
                         "WHERE o.name=?");
  CUKILN_TRY(const bool there, query.blob(view_of(key)).next());
  if (!there) {
    return Checked<StoreEntry>{ObjectName::of(key), {}, {}};
  }
  const std::string canonical(query.column_bytes(kObjectColumns));
  return read_entry(db, key, ObjectRow(query), CompileRequest::digest_of(canonical), canonical);
}

Result<Checked<StoreBlob>> read_blob(SqliteHandle& db, const BlobId& id) {
  Checked<StoreBlob> read{ObjectName::of(id), {}, {}};
  Query query = db.query("SELECT " CUKILN_OBJECT_COLUMNS " FROM object o WHERE o.name=?");
  CUKILN_TRY(const bool there, query.blob(view_of(id)).next());
  if (!there) {
    return read;
  }
  ObjectRow row(query);
  CUKILN_CHECK(read_data(db, row));
  auto checked = row.check(read.name);
  auto blob =
      checked ? decode_blob(std::move(row.object)) : Result<StoreBlob>(std::move(checked).error());
  if (blob) {
    read.sound = *std::move(blob);
  } else {
    read.damage = std::move(blob).error();
  }
  return read;
}

Result<std::int64_t> insert_object(SqliteHandle& db, const Object& object, ByteView request,
                                   ByteView source_text, std::int64_t now_s) {
  assert(db.in_transaction());
  CUKILN_CHECK(db.query("INSERT INTO object(name, kind, request, created_s, last_used_s, hits, "
                        "bytes, origin, check128, signer, summary, details) "
                        "VALUES(?,?,?,?,?,0,?,?,?,?,?,?)")
                   .blob(view_of(object.name))
                   .text(object.kind)
                   .blob(request)
                   .number(object.created_s)
                   .number(now_s)
                   .number(static_cast<std::int64_t>(object.data.size()))
                   .number(static_cast<std::int64_t>(object.origin))
                   .blob(view_of(checksum_of(object, request)))
                   .text(object.signer)
                   .blob(object.summary)
                   .blob(object.details)
                   .run());
  const std::int64_t id = db.last_row_id();
  CUKILN_CHECK(db.query("INSERT OR REPLACE INTO payload(id, source_text, data) VALUES(?,?,?)")
                   .number(id)
                   .blob(source_text)
                   .blob(object.data)
                   .run());
  return id;
}

Result<bool> remove_object(SqliteHandle& db, const ObjectName& name) {
  CUKILN_CHECK(db.query("DELETE FROM object WHERE name=?").blob(view_of(name)).run());
  return db.changes() > 0;
}

}  // namespace cukiln
