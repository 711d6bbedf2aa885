// SPDX-License-Identifier: Apache-2.0
#include "core/store/tiered_blobs.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"

namespace cukiln {

std::optional<SharedBytes> TieredBlobs::search_daemon(const BlobName& name) {
  if (daemon_ == nullptr) {
    return std::nullopt;
  }
  auto found = daemon_->get_blob(name);
  if (!found) {
    log_.debug("cukilnd was not asked for a blob of kind {}: {}", name.kind,
               found.error().message());
    return std::nullopt;
  }
  if (*found) {
    records_.count("blob_daemon_hits", 1);
  }
  return *std::move(found);
}

DaemonTier::BlobPut TieredBlobs::put_in_daemon(const BlobName& name, ByteView bytes) {
  if (daemon_ == nullptr) {
    return DaemonTier::BlobPut::not_asked;
  }
  const auto stored = daemon_->put_blob(name, bytes);
  if (!stored) {
    log_.debug("cukilnd did not store a blob of kind {}: {}", name.kind, stored.error().message());
  }
  return stored ? *stored : DaemonTier::BlobPut::not_asked;
}

std::optional<SharedBytes> TieredBlobs::search_disk(const BlobName& name) {
  std::optional<SharedBytes> found;
  for (SqliteTier* const tier : {&disk_, &system_}) {
    if (found) {
      break;
    }
    auto blob = tier->query("get", [&](SqliteStore& store) { return store.get(name); })
                    .value_or(std::nullopt);
    if (blob && may_use(blob->signer)) {
      found = std::move(blob->bytes);
    } else if (blob) {
      log_.info("the blob {} of kind {} is not used: a key that signed it {}",
                name.id.hex().substr(0, 12), name.kind,
                revoked_.signed_any_of(blob->signer) ? "was revoked" : "signs some modules only");
    }
  }
  return found;
}

std::optional<SharedBytes> TieredBlobs::find(const BlobName& name) {
  auto found = search_disk(name);
  return found ? std::move(found) : search_daemon(name);
}

Result<std::optional<SharedBytes>> TieredBlobs::get(const BlobName& name) {
  auto found = find(name);
  records_.count(found ? "blob_hits" : "blob_misses", 1);
  return found;
}

Result<TieredBlobs::BytesOrFlight> TieredBlobs::get_or_produce(const BlobName& name,
                                                               std::chrono::milliseconds wait,
                                                               CancelFlags cancelled) {
  BytesOrFlight got;
  got.bytes = find(name);
  if (!got.bytes) {
    SqliteStore* const store = disk_.store();
    auto outcome = flights_.take(
        name, {store == nullptr ? std::string() : store->lock_folder(), wait, cancelled}, [&] {
          got.bytes = search_disk(name);  // its producer put it there
          return got.bytes.has_value();
        });
    if (!outcome) {
      return std::move(outcome).error();
    }
    if (outcome->waited) {
      records_.count("blob_waits", 1);
    }
    if (!outcome->stored && !outcome->flight.exclusive()) {
      log_.debug("a blob of kind {} is produced without a lock: {}", name.kind, outcome->reason);
    }
    got.flight = std::move(outcome->flight);
  }
  records_.count(got.bytes ? "blob_hits" : "blob_misses", 1);
  return got;
}

Result<bool> TieredBlobs::contains(const BlobName& name) {
  for (SqliteTier* const tier : {&disk_, &system_}) {
    const auto signer =
        tier->query("get", [&](SqliteStore& store) { return store.signer_of(name); })
            .value_or(std::nullopt);
    if (signer && may_use(*signer)) {
      return true;
    }
  }
  return false;
}

Result<std::optional<StoreBlob>> TieredBlobs::peek(const BlobId& id) {
  std::optional<StoreBlob> found;
  for (SqliteTier* const tier : {&disk_, &system_}) {
    if (!found && tier->store() != nullptr) {
      CUKILN_TRY(found, tier->store()->peek(id));
    }
  }
  return found;
}

Result<PutOutcome> TieredBlobs::add(const StoreBlob& blob) {
  CUKILN_TRY(const BlobName name, BlobName::make(blob.kind, blob.key));
  SqliteStore* const disk = disk_.store_for_put();
  if (disk != nullptr && disk->read_only()) {
    return PutOutcome::not_stored;
  }
  if (disk != nullptr) {
    const auto there = disk->peek(name.id);  // a damaged one is replaced
    if (there && *there && may_use((*there)->signer)) {
      return PutOutcome::already_there;
    }
  }
  CUKILN_CHECK(put(name, blob.bytes, blob.signer));
  return PutOutcome::stored;
}

Result<void> TieredBlobs::put(const BlobName& name, ByteView bytes, std::string_view signer) {
  if (bytes.size() > kMaxBlobBytes) {
    return make_error(ErrorCode::invalid_argument,
                      "a blob of kind {} has {} bytes; at most {} are stored", name.kind,
                      bytes.size(), kMaxBlobBytes);
  }
  // The daemon would take an imported blob for one that was made here.
  const auto in_daemon =
      signer.empty() ? put_in_daemon(name, bytes) : DaemonTier::BlobPut::not_asked;
  if (in_daemon == DaemonTier::BlobPut::stored_in_own) {
    return {};
  }
  auto stored = put_on_disk(name, bytes, signer);
  return in_daemon == DaemonTier::BlobPut::stored ? Result<void>() : std::move(stored);
}

Result<void> TieredBlobs::put_on_disk(const BlobName& name, ByteView bytes,
                                      std::string_view signer) {
  SqliteStore* const disk = disk_.store_for_put();
  if (disk == nullptr) {
    return make_error(ErrorCode::io, "there is no store on disk: {}", bypass_reason_);
  }
  if (!disk_.allows()) {
    return make_error(ErrorCode::timeout, "the disk store failed and is not used for {} s",
                      SqliteTier::kPause.count());
  }
  auto stored = disk->put(name, bytes, signer);
  if (!stored && stored.error().code() != ErrorCode::invalid_argument) {
    disk_.failed("put", stored.error());
  } else {
    disk_.succeeded();
  }
  return stored;
}

Result<bool> TieredBlobs::remove(const BlobId& id) {
  return disk_.store() == nullptr ? Result<bool>(false) : disk_.store()->remove(id);
}

Result<std::vector<BlobSummary>> TieredBlobs::list(ByteView kind) {
  std::vector<BlobSummary> blobs;
  std::unordered_set<BlobId> known;
  for (SqliteTier* const tier : {&disk_, &system_}) {
    if (tier->store() == nullptr) {
      continue;
    }
    CUKILN_TRY(std::vector<BlobSummary> more, tier->store()->list_blobs(kind));
    for (BlobSummary& blob : more) {
      if (known.insert(blob.id).second) {
        blobs.push_back(std::move(blob));
      }
    }
  }
  return blobs;
}

}  // namespace cukiln
