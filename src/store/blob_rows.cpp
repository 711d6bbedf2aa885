// SPDX-License-Identifier: Apache-2.0
#include "store/blob_rows.hpp"

#include <algorithm>

#include "base/result.hpp"
#include "store/entry_rows.hpp"

namespace cukiln {

namespace {

constexpr ByteView kKindCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

}  // namespace

Result<BlobName> BlobName::make(ByteView kind, ByteView key) {
  if (kind.empty() || kind.size() > kMaxBlobKindBytes ||
      kind.find_first_not_of(kKindCharacters) != ByteView::npos) {
    return make_error(ErrorCode::invalid_argument,
                      "the kind of a blob is \"{}\"; expected 1 to {} letters, digits, '.', '_' or "
                      "'-'",
                      kind.substr(0, kMaxBlobKindBytes), kMaxBlobKindBytes);
  }
  if (key.empty() || key.size() > kMaxBlobKeyBytes) {
    return make_error(ErrorCode::invalid_argument,
                      "the key of a blob of kind {} has {} bytes; expected 1 to {}: hash a longer "
                      "key",
                      kind, key.size(), kMaxBlobKeyBytes);
  }
  return BlobName{kind, key, id_of(kind, key)};
}

BlobId BlobName::id_of(ByteView kind, ByteView key) noexcept {
  return hash_of<BlobId>({"cukiln blob", kind, ByteView("\0", 1), key});
}

BlobRow::BlobRow(const Query& query)
    : id(query.column_number(0)),
      digest(query.column_bytes(1)),
      kind(query.column_bytes(2)),
      key(query.column_bytes(3)),
      created_s(query.column_number(4)),
      last_used_s(query.column_number(5)),
      hits(query.column_number(6)),
      bytes(query.column_number(7)),
      signer(query.column_bytes(8)),
      check128(query.column_bytes(9)) {}

bool BlobRow::is_sound(ByteView data) const {
  return bytes == static_cast<std::int64_t>(data.size()) &&
         digest == view_of(BlobName::id_of(kind, key)) &&
         check128 == view_of(blob_checksum(kind, key, created_s, signer, data)) &&
         are_possible_uses(hits, last_used_s);
}

BlobSummary BlobRow::summary() const {
  return {digest_from<BlobId>(digest),
          kind,
          key,
          static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0)),
          created_s,
          last_used_s,
          hits,
          signer};
}

Checksum blob_checksum(ByteView kind, ByteView key, std::int64_t created_s, ByteView signer,
                       ByteView data) noexcept {
  return Checksummer()
      .add_sized(kind)
      .add_sized(key)
      .add_number(static_cast<std::uint64_t>(created_s))
      .add_sized(signer)
      .add_sized(data)
      .finish();
}

Result<bool> remove_blob(SqliteHandle& db, const BlobId& id) {
  CUKILN_CHECK(db.query("DELETE FROM blob WHERE digest=?").blob(view_of(id)).run());
  return db.changes() > 0;
}

}  // namespace cukiln
