// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/base/cancel_flags.hpp"
#include "core/base/file_lock.hpp"
#include "core/store/blob_name.hpp"
#include "core/store/store_blob.hpp"

#include <cukiln/result.hpp>

namespace cukiln {

/// Lets one thread of all processes that use a store produce a missing blob (single flight). The
/// others wait for its lock file, which the kernel unlocks if the process dies. Threads: safe.
class BlobLeases {
  struct Holders;

 public:
  /// The right to produce one blob. The destructor drops it. May outlive the BlobLeases.
  class Lease {
   public:
    /// Holds no lock.
    Lease() = default;
    Lease(Lease&& other) noexcept = default;
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { drop(); }

    /// False without a lock, and in a forked child.
    bool exclusive() const noexcept { return lock_.is_at(path_); }
    /// Ends it with the blob stored: those that wait look it up.
    void finish() noexcept;
    /// Ends it without: those that wait produce the blob themselves, concurrently, so that what
    /// fails in each process does not fail in one after the other.
    void drop() noexcept;

   private:
    friend class BlobLeases;
    void forget_thread() noexcept;

    FileLock lock_;
    std::string path_;
    std::shared_ptr<Holders> holders_;
    std::thread::id thread_;
  };

  struct Wait {
    std::string lock_folder;          ///< empty: there is no lock
    std::chrono::milliseconds limit;  ///< of a wait, and for the age of a lock that is waited for
    CancelFlags cancelled;
  };
  struct Outcome {
    bool stored = false;  ///< `is_stored` said so
    Lease lease;          ///< if it is not stored
    bool waited = false;
    std::string reason;  ///< why the lease is not exclusive
  };

  BlobLeases();

  /// Takes the lock, or waits until it is released and `is_stored` finds the blob. Without a lock
  /// that works, and after `limit`, the caller gets a lease that is not exclusive. A thread that
  /// has a lease never waits: it could wait for itself, or for a thread that waits for it. Errors:
  /// timeout (cancelled).
  Result<Outcome> take(const BlobName& name, const Wait& wait,
                       const std::function<bool()>& is_stored);

 private:
  const std::shared_ptr<Holders> holders_;
};

class TieredStore;

struct FoundOrLeased {
  std::optional<StoreBlob> blob;
  BlobLeases::Lease lease;
};
/// Returns the blob, or the right to produce it: see BlobLeases::take. Errors: timeout (cancelled).
Result<FoundOrLeased> get_or_lease(TieredStore& tiers, const BlobName& name,
                                   std::chrono::milliseconds wait, CancelFlags cancelled);

}  // namespace cukiln
