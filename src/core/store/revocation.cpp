// SPDX-License-Identifier: Apache-2.0
#include "core/store/revocation.hpp"

#include "core/base/result.hpp"
#include "core/store/tiered_store.hpp"

namespace cukiln {

Result<std::uint64_t> remove_revoked(CubinStore& store, const RevokedKeys& keys) {
  std::uint64_t removed = 0;
  if (!keys.any()) {
    return removed;
  }
  CUKILN_TRY(const std::vector<EntrySummary> entries, store.list());
  for (const EntrySummary& entry : entries) {
    if (keys.signed_any_of(entry.signer)) {
      CUKILN_TRY(const bool gone, store.remove(entry.key));
      removed += gone ? 1 : 0;
    }
  }
  return removed;
}

Result<std::uint64_t> remove_revoked(TieredStore& store, const RevokedKeys& keys) {
  CUKILN_TRY(std::uint64_t removed, remove_revoked(static_cast<CubinStore&>(store), keys));
  if (!keys.any()) {
    return removed;
  }
  CUKILN_TRY(const std::vector<BlobSummary> blobs, store.blobs().list({}));
  for (const BlobSummary& blob : blobs) {
    if (keys.signed_any_of(blob.signer)) {
      CUKILN_TRY(const bool gone, store.blobs().remove(blob.id));
      removed += gone ? 1 : 0;
    }
  }
  return removed;
}

}  // namespace cukiln
