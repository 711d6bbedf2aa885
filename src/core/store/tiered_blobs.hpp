// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/base/logger.hpp"
#include "core/store/blob_flights.hpp"
#include "core/store/blob_name.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/daemon_tier.hpp"
#include "core/store/signers.hpp"
#include "core/store/sqlite_tier.hpp"
#include "core/store/store_blob.hpp"
#include "core/store/store_records.hpp"

namespace cukiln {

/// The blobs of the user's store, of the system store and of cukilnd's, in this order. A tier that
/// fails is a miss, which is counted and logged. So is a blob whose signers `may_use` refuses.
/// Threads: safe.
class TieredBlobs {
 public:
  TieredBlobs(SqliteTier& disk, SqliteTier& system, StoreRecords& records, const Logger& log,
              const std::string& bypass_reason, const RevokedKeys& revoked, const KeyScopes& scopes)
      : disk_(disk),
        system_(system),
        records_(records),
        log_(log),
        bypass_reason_(bypass_reason),
        revoked_(revoked),
        scopes_(scopes) {}

  /// False if one of the signers of a blob was revoked, or is trusted for some modules only: a blob
  /// is of no module.
  bool may_use(std::string_view signers) const noexcept {
    return !revoked_.signed_any_of(signers) && scopes_.cover(signers, {});
  }

  /// Adds the daemon's store, which `get` asks last and `put` also fills. Outlives this.
  void use_daemon(DaemonTier& daemon) noexcept { daemon_ = &daemon; }

  Result<std::optional<SharedBytes>> get(const BlobName& name);
  /// As `get`, and does not count: for cukilnd, whose clients count.
  std::optional<SharedBytes> find(const BlobName& name);
  /// Returns the bytes, or the right to produce them: see BlobFlights::take. Errors: timeout
  /// (cancelled).
  struct BytesOrFlight {
    std::optional<SharedBytes> bytes;
    BlobFlights::Flight flight;
  };
  Result<BytesOrFlight> get_or_produce(const BlobName& name, std::chrono::milliseconds wait,
                                       CancelFlags cancelled);
  Result<bool> contains(const BlobName& name);
  /// Does not count as a use, and returns what `may_use` refuses too. Errors: corrupt, io, timeout.
  Result<std::optional<StoreBlob>> peek(const BlobId& id);
  /// Replaces the blob of this name. `signer` is the chain of its signers.
  Result<void> put(const BlobName& name, ByteView bytes, std::string_view signer = {});
  /// Puts a blob unless there is one of its name that can be used. Errors: those of `put`.
  Result<PutOutcome> add(const StoreBlob& blob);
  Result<bool> remove(const BlobId& id);
  Result<std::vector<BlobSummary>> list(ByteView kind);

 private:
  /// Gets a blob from the stores on disk, and does not count.
  std::optional<SharedBytes> search_disk(const BlobName& name);
  /// Gets a blob from the daemon. What it does not answer is a miss.
  std::optional<SharedBytes> search_daemon(const BlobName& name);
  DaemonTier::BlobPut put_in_daemon(const BlobName& name, ByteView bytes);
  Result<void> put_on_disk(const BlobName& name, ByteView bytes, std::string_view signer);
  SqliteTier& disk_;
  SqliteTier& system_;
  StoreRecords& records_;
  const Logger& log_;
  const std::string& bypass_reason_;
  const RevokedKeys& revoked_;
  const KeyScopes& scopes_;
  BlobFlights flights_;
  DaemonTier* daemon_ = nullptr;
};

}  // namespace cukiln
