// SPDX-License-Identifier: Apache-2.0
#include <cukiln/blob_store.hpp>

#include <utility>

#include "base/result.hpp"
#include "store/tiered_store.hpp"

namespace cukiln {

BlobStore::BlobStore(Store& store) noexcept : tiers_(&TieredStore::of(store)) {}

Result<std::optional<std::string>> BlobStore::get(std::string_view kind, std::string_view key) {
  return guarded([&]() -> Result<std::optional<std::string>> {
    CUKILN_TRY(const BlobName name, BlobName::make(kind, key));
    return tiers_->blobs().get(name);
  });
}

Result<bool> BlobStore::contains(std::string_view kind, std::string_view key) {
  return guarded([&]() -> Result<bool> {
    CUKILN_TRY(const BlobName name, BlobName::make(kind, key));
    return tiers_->blobs().contains(name);
  });
}

Result<void> BlobStore::put(std::string_view kind, std::string_view key, std::string_view bytes) {
  return guarded([&]() -> Result<void> {
    CUKILN_TRY(const BlobName name, BlobName::make(kind, key));
    return tiers_->blobs().put(name, bytes);
  });
}

Result<bool> BlobStore::remove(std::string_view kind, std::string_view key) {
  return guarded([&]() -> Result<bool> {
    CUKILN_TRY(const BlobName name, BlobName::make(kind, key));
    return tiers_->blobs().remove(name.id);
  });
}

Result<std::vector<BlobSummary>> BlobStore::list(std::string_view kind) {
  return guarded([&]() -> Result<std::vector<BlobSummary>> {
    if (!kind.empty()) {
      CUKILN_TRY([[maybe_unused]] const BlobName name, BlobName::make(kind, "any"));
    }
    return tiers_->blobs().list(kind);
  });
}

}  // namespace cukiln
