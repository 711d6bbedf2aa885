// SPDX-License-Identifier: Apache-2.0
#include "core/store/blob_name.hpp"

#include "core/base/hasher.hpp"
#include "core/base/result.hpp"

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

}  // namespace cukiln
