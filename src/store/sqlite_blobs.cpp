// SPDX-License-Identifier: Apache-2.0
#include "store/sqlite_blobs.hpp"

#include <algorithm>
#include <utility>

#include "base/result.hpp"

namespace cukiln {

namespace {

struct FoundBlob {
  bool there = false;
  std::optional<StoreBlob> blob;  ///< if it is sound
};

Result<FoundBlob> read_blob_of(SqliteHandle& db, const BlobId& id) {
  FoundBlob found;
  Query query = db.query("SELECT " CUKILN_BLOB_COLUMNS ", data FROM blob WHERE digest=?");
  CUKILN_TRY(found.there, query.blob(view_of(id)).next());
  if (found.there) {
    std::string data(query.column_bytes(kBlobColumns));
    if (BlobRow row(query); row.is_sound(data)) {
      found.blob = {std::move(row.kind), std::move(row.key), std::move(data), std::move(row.signer),
                    row.created_s};
    }
  }
  return found;
}

}  // namespace

Result<std::optional<StoreBlob>> SqliteBlobs::get(const BlobName& name) {
  CUKILN_TRY(FoundBlob found,
             session_.read([&](SqliteHandle& db) { return read_blob_of(db, name.id); }));
  if (found.blob) {
    accounting_.touch(name.id);
  } else if (found.there) {
    accounting_.drop_damaged(name.id, make_error(ErrorCode::corrupt, "the blob {} of kind {}",
                                                 name.id.hex().substr(0, 12), name.kind));
  }
  return std::move(found.blob);
}

Result<std::optional<StoreBlob>> SqliteBlobs::peek(const BlobId& id) {
  CUKILN_TRY(FoundBlob found,
             session_.read([&](SqliteHandle& db) { return read_blob_of(db, id); }));
  if (found.there && !found.blob) {
    return make_error(ErrorCode::corrupt,
                      "the blob {} is damaged; 'cukiln verify --repair' removes it",
                      id.hex().substr(0, 12));
  }
  return std::move(found.blob);
}

Result<std::optional<std::string>> SqliteBlobs::signer_of(const BlobName& name) {
  return session_.read([&](SqliteHandle& db) -> Result<std::optional<std::string>> {
    std::optional<std::string> signer;
    Query query = db.query("SELECT signer FROM blob WHERE digest=?");
    CUKILN_TRY(const bool there, query.blob(view_of(name.id)).next());
    if (there) {
      signer = query.column_bytes(0);
    }
    return signer;
  });
}

Result<void> SqliteBlobs::put(const BlobName& name, ByteView bytes, ByteView signer) {
  const std::uint64_t size = bytes.size() + name.kind.size() + name.key.size() + signer.size();
  const std::uint64_t cap = session_.limits().max_bytes();
  if (size > cap) {
    return make_error(ErrorCode::invalid_argument,
                      "a blob of kind {} has {} bytes, and the store's cap is {}; raise max_size",
                      name.kind, bytes.size(), cap);
  }
  auto stored = eviction_.write_insertion(
      size, [&](SqliteHandle& db) { return insert(db, name, bytes, signer); });
  if (stored) {
    accounting_.pending().add_count("blobs_stored", 1);
  }
  return stored;
}

Result<void> SqliteBlobs::insert(SqliteHandle& db, const BlobName& name, ByteView bytes,
                                 ByteView signer) {
  CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
  const std::int64_t created = session_.options().clock->now_s();
  CUKILN_TRY(const std::int64_t now, accounting_.now_s(db));
  const Checksum check = blob_checksum(name.kind, name.key, created, signer, bytes);
  CUKILN_CHECK(db.query("INSERT OR REPLACE INTO blob(digest, kind, key, created_s, last_used_s, "
                        "hits, bytes, signer, check128, data) VALUES(?,?,?,?,?,0,?,?,?,?)")
                   .blob(view_of(name.id))
                   .text(name.kind)
                   .blob(name.key)
                   .number(created)
                   .number(now)
                   .number(static_cast<std::int64_t>(bytes.size()))
                   .text(signer)
                   .blob(view_of(check))
                   .blob(bytes)
                   .run());
  return transaction.commit();
}

Result<bool> SqliteBlobs::remove(const BlobId& id) {
  int attempts = 0;
  CUKILN_TRY(const bool removed, eviction_.write_deletion([&](SqliteHandle& db) -> Result<bool> {
    ++attempts;
    CUKILN_TRY(WriteTransaction transaction, WriteTransaction::begin(db));
    CUKILN_TRY(const bool there, remove_blob(db, id));
    CUKILN_CHECK(transaction.commit());
    return there;
  }));
  if (attempts > 1) {
    CUKILN_CHECK(eviction_.shrink_file());  // makes the reserve again
  }
  return removed;
}

Result<std::vector<BlobSummary>> SqliteBlobs::list(ByteView kind) {
  return session_.read([&](SqliteHandle& db) -> Result<std::vector<BlobSummary>> {
    std::vector<BlobSummary> blobs;
    Query query =
        db.query("SELECT " CUKILN_BLOB_COLUMNS " FROM blob WHERE ?1='' OR kind=?1 ORDER BY id");
    query.text(kind);
    for (;;) {
      CUKILN_TRY(const bool there, query.next());
      if (!there) {
        return blobs;
      }
      blobs.push_back(BlobRow(query).summary());
    }
  });
}

Result<SqliteBlobs::Totals> SqliteBlobs::totals() {
  return session_.read([](SqliteHandle& db) -> Result<Totals> {
    Totals totals;
    Query query = db.query("SELECT count(*), coalesce(sum(bytes), 0) FROM blob");
    CUKILN_TRY([[maybe_unused]] const bool row, query.next());
    totals.blobs = static_cast<std::uint64_t>(query.column_number(0));
    totals.bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(query.column_number(1), 0));
    return totals;
  });
}

}  // namespace cukiln
