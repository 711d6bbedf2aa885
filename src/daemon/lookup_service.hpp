// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "daemon/blocking_pool.hpp"
#include "daemon/event_loop.hpp"
#include "daemon/sealed_entry_cache.hpp"
#include "daemon/user_stores.hpp"
#include "wire/daemon_frame.hpp"

namespace cukiln::daemon {

/// What a client is told.
struct Reply {
  wire::DaemonOp op = wire::DaemonOp::error;
  std::string body;
  std::shared_ptr<UniqueFd> attachment{};
};

/// What came with a frame: its body, or the sealed file beside it. Errors: invalid_argument (it is
/// not sealed, or too large), io.
Result<SharedBytes> read_content(wire::DaemonFrame& frame, std::uint64_t max_bytes);

/// Looks up dependency sets and entries in users' stores. Stores are asked in threads of a
/// BlockingPool; only entries that are in memory already are found on the loop.
class LookupService {
 public:
  /// All of it outlives this.
  LookupService(UserStores& stores, BlockingPool& pool, EventLoop& loop,
                std::uint64_t cached_bytes);

  // For a thread of the pool. Nothing, as a `Reply`: the message makes no sense.
  static std::optional<Reply> find_sets(UserStores& stores, uid_t user, wire::DaemonFrame& frame);
  /// Null: the user's store has no such entry. Errors: the store's.
  static Result<std::shared_ptr<UniqueFd>> seal_entry(UserStores& stores, uid_t user,
                                                      const CacheKey& key);

  // For the loop.
  /// Null: ask the store.
  std::shared_ptr<UniqueFd> cached(uid_t user, const CacheKey& key);
  SealedEntryCache& cache() noexcept { return cache_; }
  /// Notes hits of the cache in their stores, in this thread: at the end, when no loop runs.
  void save_uses();

 private:
  static void save(UserStores& stores, const std::vector<SealedEntryCache::Key>& uses);

  UserStores& stores_;
  BlockingPool& pool_;
  SealedEntryCache cache_;
  EventLoop::Timer save_uses_;
};

}  // namespace cukiln::daemon
