// SPDX-License-Identifier: Apache-2.0
#include <cukiln/blob_store.hpp>

#include <utility>

#include "core/base/result.hpp"
#include "core/store/tiered_store.hpp"

namespace cukiln {

struct BlobLease::State {
  TieredStore* tiers;
  std::string kind, key;
  BlobLeases::Lease lease;
};

BlobLease::BlobLease(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
BlobLease::BlobLease(BlobLease&& other) noexcept = default;
BlobLease& BlobLease::operator=(BlobLease&& other) noexcept = default;
BlobLease::~BlobLease() = default;

bool BlobLease::exclusive() const noexcept {
  return state_ != nullptr && state_->lease.exclusive();
}

Result<void> BlobLease::put(std::string_view bytes) {
  return guarded([&]() -> Result<void> {
    if (state_ == nullptr) {
      return make_error(ErrorCode::invalid_argument,
                        "the lease of this blob has ended: put it into the BlobStore");
    }
    const std::unique_ptr<State> state = std::move(state_);  // drops it if nothing is stored
    CUKILN_CHECK(state->tiers->put(StoreBlob::borrowed(state->kind, state->key, bytes)));
    state->lease.finish();
    return {};
  });
}

void BlobLease::drop() noexcept { state_.reset(); }

BlobStore::BlobStore(Store& store) noexcept : tiers_(&TieredStore::of(store)) {}

Result<std::optional<std::string>> BlobStore::get(std::string_view kind, std::string_view key) {
  return guarded([&]() -> Result<std::optional<std::string>> {
    CUKILN_TRY(const BlobName name, BlobName::make(kind, key));
    CUKILN_TRY(const auto blob, tiers_->get(name));
    return blob ? std::optional(std::string(blob->bytes.view())) : std::nullopt;
  });
}

Result<BlobOrLease> BlobStore::get_or_lease(std::string_view kind, std::string_view key,
                                            std::chrono::milliseconds wait,
                                            std::optional<CancelToken> cancel) {
  return guarded([&, token = std::move(cancel)]() -> Result<BlobOrLease> {
    CUKILN_TRY(const BlobName name, BlobName::make(kind, key));
    CUKILN_TRY(FoundOrLeased got,
               cukiln::get_or_lease(*tiers_, name, wait,
                                    token ? CancelFlags(token->flag()) : CancelFlags()));
    if (got.blob) {
      return BlobOrLease(std::string(got.blob->bytes.view()));
    }
    return BlobOrLease(BlobLease(std::make_unique<BlobLease::State>(
        BlobLease::State{tiers_, std::string(kind), std::string(key), std::move(got.lease)})));
  });
}

Result<bool> BlobStore::contains(std::string_view kind, std::string_view key) {
  return guarded([&]() -> Result<bool> {
    CUKILN_TRY(const BlobName name, BlobName::make(kind, key));
    return tiers_->contains(name);
  });
}

Result<void> BlobStore::put(std::string_view kind, std::string_view key, std::string_view bytes) {
  return guarded([&]() -> Result<void> {
    CUKILN_CHECK(tiers_->put(StoreBlob::borrowed(kind, key, bytes)));
    return {};
  });
}

Result<bool> BlobStore::remove(std::string_view kind, std::string_view key) {
  return guarded([&]() -> Result<bool> {
    CUKILN_TRY(const BlobName name, BlobName::make(kind, key));
    return tiers_->remove(ObjectName::of(name.id));
  });
}

Result<std::vector<BlobSummary>> BlobStore::list(std::string_view kind) {
  return guarded([&]() -> Result<std::vector<BlobSummary>> {
    if (!kind.empty()) {
      CUKILN_TRY([[maybe_unused]] const BlobName name, BlobName::make(kind, "any"));
    }
    return tiers_->list_blobs(kind);
  });
}

}  // namespace cukiln
