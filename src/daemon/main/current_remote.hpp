// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "remote/remote_store.hpp"

namespace cukiln::daemon {

/// The fleet's stores as the settings name them now: they may be others, or none, a moment later.
/// Whoever asks keeps what it asked until it has its answer. Threads: safe.
class CurrentRemote final : public RemoteTier {
 public:
  /// Null: there is none.
  std::shared_ptr<RemoteStore> get() const {
    const std::lock_guard lock(mutex_);
    return store_;
  }
  /// Gives the one before.
  std::shared_ptr<RemoteStore> exchange(std::shared_ptr<RemoteStore> store) {
    const std::lock_guard lock(mutex_);
    return std::exchange(store_, std::move(store));
  }

  std::optional<StoreEntry> find(ByteView request_canonical, SetCheck& check,
                                 Freshness freshness) override {
    const auto store = get();
    return store ? store->find(request_canonical, check, freshness) : std::nullopt;
  }
  bool found_while_waiting(ByteView request_canonical, std::chrono::milliseconds limit,
                           const std::atomic<bool>& cancelled,
                           const std::function<bool()>& found) override {
    const auto store = get();
    return store && store->found_while_waiting(request_canonical, limit, cancelled, found);
  }
  void end_turn(ByteView request_canonical) override {
    if (const auto store = get()) {
      store->end_turn(request_canonical);
    }
  }
  void put(const StoreEntry& entry) override {
    if (const auto store = get()) {
      store->put(entry);
    }
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<RemoteStore> store_;
};

}  // namespace cukiln::daemon
