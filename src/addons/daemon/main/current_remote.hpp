// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "core/base/mutex.hpp"
#include "core/store/remote_tier.hpp"

namespace cukiln::daemon {

/// The remote store that the settings name now; a reload may replace it. A call that runs keeps its
/// store alive. Threads: safe.
class CurrentRemote final : public RemoteTier {
 public:
  /// Null if none is configured.
  std::shared_ptr<RemoteTier> get() const {
    const MutexLock lock(mutex_);
    return store_;
  }
  /// Replaces the store and returns the previous one.
  std::shared_ptr<RemoteTier> exchange(std::shared_ptr<RemoteTier> store) {
    const MutexLock lock(mutex_);
    return std::exchange(store_, std::move(store));
  }

  std::optional<StoreEntry> find(ByteView request_canonical, std::string_view module,
                                 SetCheck& check, Freshness freshness) override {
    const auto store = get();
    return store ? store->find(request_canonical, module, check, freshness) : std::nullopt;
  }
  /// Keeps the store that granted a lease alive until the lease is released.
  std::optional<RemoteLease> await_peer_or_lease(ByteView request_canonical,
                                                 std::chrono::milliseconds limit,
                                                 CancelFlags cancelled,
                                                 const std::function<bool()>& found) override {
    const auto store = get();
    if (store == nullptr) {
      return RemoteLease();
    }
    auto lease = store->await_peer_or_lease(request_canonical, limit, cancelled, found);
    if (lease && lease->held()) {
      lease->keep_alive(store);
    }
    return lease;
  }
  std::optional<StoreBlob> get(const BlobName& name, Freshness freshness) override {
    const auto store = get();
    return store ? store->get(name, freshness) : std::nullopt;
  }
  void put(const StoreObject& object) override {
    if (const auto store = get()) {
      store->put(object);
    }
  }
  bool shares_blobs() const override { return get() != nullptr; }
  RemoteReport report() const override {
    const auto store = get();
    return store != nullptr ? store->report() : RemoteReport();
  }

 private:
  void release_lease(ByteView /*request_canonical*/) override {}  // the store's own leases only

  mutable Mutex mutex_;
  std::shared_ptr<RemoteTier> store_ CUKILN_GUARDED_BY(mutex_);
};

}  // namespace cukiln::daemon
